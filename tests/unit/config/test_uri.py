# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import uri
from penstock.config.uri import ChannelError, ChannelUri, FlowControl, SessionTag, Tags

# ---- what is read --------------------------------------------------------------------------------


def test_all_parts_of_a_channel_are_typed() -> None:
    found = uri.parse(
        "aeron:udp?endpoint=239.20.0.1:40456|interface=10.0.0.0/24|term-length=64k|mtu=8k"
        "|fc=tagged,g:5/2,t:5s,rrwm:4|session-id=tag:4|linger=5ms|tags=1,2|ssc=true|ttl=3"
    )
    assert str(found.endpoint) == "239.20.0.1:40456"
    assert found.is_multicast
    assert found.interface == uri.Interface(host="10.0.0.0", prefix_length=24)
    assert (found.term_length, found.mtu, found.ttl) == (65536, 8192, 3)
    assert found.fc == FlowControl(
        strategy="tagged", receiver_timeout_ns=5 * 10**9, group_tag=5, group_min_size=2,
        retransmit_window_multiple=4,
    )
    assert found.session_id == SessionTag(tag=4)
    assert found.linger_ns == 5_000_000
    assert found.tags == Tags(channel=1, entity=2)
    assert found.ssc is True
    assert found.eos is None


@pytest.mark.parametrize(("text", "host", "port", "scope"), [
    ("10.0.0.1:5", "10.0.0.1", 5, ""),
    ("[fe80::1%eth0]:40456", "fe80::1", 40456, "eth0"),
    ("[::1]:0", "::1", 0, ""),
    ("receiver-7.example:1", "receiver-7.example", 1, ""),
    ("[receiver.example]:1", "receiver.example", 1, ""),
])
def test_addresses_are_read(text: str, host: str, port: int, scope: str) -> None:
    found = uri.parse(f"aeron:udp?endpoint={text}").endpoint
    assert found is not None
    assert (found.host, found.port, found.scope) == (host, port, scope)
    assert found.ipv6 == text.startswith("[")
    assert str(found) == text


@pytest.mark.parametrize("text", [
    "127.0.0.1", "10.0.0.0/8", "{eth0}", "{eth0}:40456", "[fe80::1%eth0]:7/64", "[::1]",
    "localhost:40456",
])
def test_interfaces_are_written_as_they_were_read(text: str) -> None:
    assert str(uri.parse(f"aeron:udp?interface={text}").interface) == text


def test_a_timestamp_can_go_into_the_reserved_value() -> None:
    found = uri.parse("aeron:ipc?channel-rcv-ts-offset=reserved|media-rcv-ts-offset=16")
    assert found.channel_rcv_ts_offset == uri.RESERVED_VALUE_OFFSET
    assert found.media_rcv_ts_offset == 16


# ---- what is refused, and in which words ---------------------------------------------------------


@pytest.mark.parametrize(("text", "parameter", "words"), [
    ("udp?endpoint=1.2.3.4:5", "URI", "does not begin as a channel URI does"),
    ("aeron:tcp?endpoint=1.2.3.4:5", "URI", "aeron:udp"),
    ("aeron:udp?", "URI", "no parameter"),
    ("aeron:udp?=5", "URI", "without a name"),
    ("aeron:udp?endpoint=1.2.3.4:5|", "URI", "without a name"),
    ("aeron:udp?endpoint", "endpoint", "no value"),
    ("aeron:udp?endpoint=|ttl=3", "endpoint", "no value"),
    ("aeron:udp?ttl=3|ttl=3", "ttl", "twice"),
    ("aeron:udp?term-lenght=64k", "term-lenght", "did you mean term-length?"),
    ("aeron:udp?endpoint=1.2.3.4", "endpoint", "no port"),
    ("aeron:udp?endpoint=1.2.3.4:65536", "endpoint", "0..65535"),
    ("aeron:udp?endpoint=1.2.3.256:5", "endpoint", "not an IPv4 address"),
    ("aeron:udp?endpoint=[1.2.3.4]:5", "endpoint", "brackets"),
    ("aeron:udp?endpoint=[::1:5", "endpoint", "bracket"),
    ("aeron:udp?endpoint=-x:5", "endpoint", "host name"),
    ("aeron:udp?endpoint=1.2.3.4%eth0:5", "endpoint", "scope"),
    ("aeron:udp?interface=10.0.0.0/33", "interface", "0..32"),
    ("aeron:udp?interface={}", "interface", "interface name"),
    ("aeron:udp?interface={eth0", "interface", "interface name"),
    ("aeron:ipc?term-length=65k", "term-length", "power of two"),
    ("aeron:ipc?term-length=32k", "term-length", "65536"),
    ("aeron:ipc?term-length=2g", "term-length", "1073741824"),
    ("aeron:ipc?mtu=1400", "mtu", "multiple of 32"),
    ("aeron:ipc?mtu=32", "mtu", "64..65504"),
    ("aeron:ipc?mtu=65536", "mtu", "65504"),
    ("aeron:ipc?linger=5h", "linger", "ns, us, ms or s"),
    ("aeron:ipc?linger=99999999999s", "linger", "duration"),
    ("aeron:ipc?sparse=yes", "sparse", "true, false"),
    ("aeron:ipc?session-id=2147483648", "session-id", "-2147483648..2147483647"),
    ("aeron:ipc?session-id=tag:x", "session-id", "integer"),
    ("aeron:ipc?max-resend=0", "max-resend", "1..256"),
    ("aeron:ipc?tags=1,", "tags", "integer"),
    ("aeron:ipc?group=perhaps", "group", "infer"),
    ("aeron:udp?control-mode=automatic", "control-mode", "dynamic, manual"),
    ("aeron:udp?fc=max,g:5", "fc", "no option except rrwm"),
    ("aeron:udp?fc=min,x:5", "fc", "x:5"),
    ("aeron:udp?fc=min,g:", "fc", "neither"),
    ("aeron:udp?fc=min,t:1s,t:2s", "fc", "twice"),
    ("aeron:udp?fc=min,rrwm:0", "fc", "1.."),
    # refused by name, with the reason
    ("aeron:udp?control-mode=response", "control-mode", "response channels"),
    ("aeron:udp?response-correlation-id=5", "response-correlation-id", "response channels"),
    ("aeron:udp?response-endpoint=a:5", "response-endpoint", "response channels"),
    ("aeron:udp?ats=true", "ats", "not supported"),
    ("aeron:udp?ps-fanin=fair", "ps-fanin", "equal, priority"),
    ("aeron:udp?ps-credits=0", "ps-credits", "or auto"),
    ("aeron:udp?ps-credits=-3", "ps-credits", "1..16777216 messages"),
    ("aeron:udp?ps-credits=16777217", "ps-credits", "or auto"),
    ("aeron:udp?ps-credits=99999999999999999999999", "ps-credits", "or auto"),
    ("aeron:udp?ps-credits=lots", "ps-credits", "or auto"),
    ("aeron:udp?ps-credit-burst=0", "ps-credit-burst", "1..16777216"),
    ("aeron:udp?ps-max-message=0", "ps-max-message", "1.."),
    ("aeron:udp?ps-credits-required=1", "ps-credits-required", "true, false"),
    ("aeron:udp?ps-credit-policy=greedy", "ps-credit-policy", "round_robin"),
    ("aeron:udp?ps-credit-weight=0", "ps-credit-weight", "1..1000"),
    ("aeron:udp?ps-colour=5", "ps-colour", "unknown"),
])
def test_a_refusal_names_parameter_and_reason(text: str, parameter: str, words: str) -> None:
    with pytest.raises(ChannelError) as caught:
        uri.parse(text)
    assert caught.value.parameter == parameter
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_length_is_bounded() -> None:
    with pytest.raises(ChannelError, match="at most 4095"):
        uri.parse("aeron:udp?alias=" + "x" * 4096)


# ---- what goes together --------------------------------------------------------------------------


@pytest.mark.parametrize("text", [
    "aeron:udp?endpoint=10.0.0.2:40456",
    "aeron:udp?endpoint=10.0.0.2:40456|control=10.0.0.1:0",
    "aeron:udp?control=10.0.0.1:40456|control-mode=dynamic|fc=max,rrwm:4",
    "aeron:udp?control-mode=manual",
    "aeron:udp?control-mode=manual|control=10.0.0.1:0",
    "aeron:udp?endpoint=224.0.1.1:40456|interface=127.0.0.1|fc=max",
    "aeron:udp?endpoint=[ff02::1]:40456|interface=[::1]",
    "aeron:udp?endpoint=239.0.0.1:40456|interface={eth0}",
    "aeron:udp?tags=7",
    "aeron:ipc?init-term-id=-1|term-id=2147483646|term-offset=64|term-length=64k",
    "aeron:udp?endpoint=10.0.0.2:40456|rcv-wnd=64k|rejoin=false",    # the other side's: ignored
])
def test_a_publication_accepts_channels_that_fit(text: str) -> None:
    uri.check_publication(uri.parse(text))


@pytest.mark.parametrize(("text", "parameter"), [
    ("aeron-spy:aeron:udp?endpoint=10.0.0.2:40456", "aeron-spy"),
    ("aeron:udp", "endpoint"),
    ("aeron:udp?ttl=4", "endpoint"),
    ("aeron:udp?endpoint=10.0.0.2:0", "endpoint"),
    ("aeron:udp?endpoint=239.0.0.2:40456", "endpoint"),
    ("aeron:udp?endpoint=239.0.0.1:0", "endpoint"),
    ("aeron:udp?endpoint=[ff02::2]:40456", "endpoint"),
    ("aeron:udp?endpoint=239.0.0.1:40456|control=10.0.0.1:5", "control"),
    ("aeron:udp?endpoint=239.0.0.1:40456|control-mode=manual", "control-mode"),
    ("aeron:udp?endpoint=239.0.0.1:40456|interface=[::1]", "interface"),
    ("aeron:udp?endpoint=10.0.0.2:4|interface=[::1]", "interface"),
    ("aeron:udp?control=10.0.0.1:5", "control"),
    ("aeron:udp?control=239.0.0.1:5|control-mode=dynamic", "control"),
    ("aeron:udp?control-mode=dynamic", "control"),
    ("aeron:udp?control-mode=manual|endpoint=10.0.0.1:5", "endpoint"),
    ("aeron:udp?endpoint=10.0.0.2:40456|fc=max", "fc"),
    ("aeron:ipc?endpoint=10.0.0.2:40456", "endpoint"),
    ("aeron:ipc?fc=max", "fc"),
    ("aeron:ipc?term-id=5", "init-term-id"),
    ("aeron:ipc?init-term-id=5|term-id=4|term-offset=0", "term-id"),
    ("aeron:ipc?init-term-id=5|term-id=5|term-offset=31", "term-offset"),
    ("aeron:ipc?init-term-id=5|term-id=5|term-offset=65568|term-length=64k", "term-offset"),
    ("aeron:ipc?pub-wnd=65k|term-length=64k", "pub-wnd"),
    ("aeron:ipc?pub-wnd=1024|mtu=4k", "pub-wnd"),
])
def test_a_publication_refuses_channels_that_do_not_fit(text: str, parameter: str) -> None:
    with pytest.raises(ChannelError) as caught:
        uri.check_publication(uri.parse(text))
    assert caught.value.parameter == parameter


@pytest.mark.parametrize("text", [
    "aeron:udp?endpoint=10.0.0.1:0",
    "aeron:udp?endpoint=10.0.0.1:40456|control=10.0.0.2:40457|control-mode=dynamic",
    "aeron:udp?endpoint=10.0.0.1:40456|control=10.0.0.2:40457",
    "aeron:udp?control-mode=manual",
    "aeron-spy:aeron:udp?control=10.0.0.1:40456|control-mode=dynamic",
    "aeron-spy:aeron:ipc",
    "aeron:udp?endpoint=239.0.0.1:40456|term-length=64k|fc=max",
    "aeron:ipc?session-id=-5",
])
def test_a_subscription_accepts_channels_that_fit(text: str) -> None:
    uri.check_subscription(uri.parse(text))


@pytest.mark.parametrize(("text", "parameter"), [
    ("aeron:udp", "endpoint"),
    ("aeron:udp?control=10.0.0.1:40456", "endpoint"),
    ("aeron:udp?endpoint=10.0.0.1:4|control=10.0.0.2:0", "control"),
    ("aeron:udp?endpoint=10.0.0.1:4|control=[::1]:4", "control"),
    ("aeron:udp?endpoint=10.0.0.1:4|control-mode=manual", "endpoint"),
    ("aeron:udp?endpoint=239.0.0.2:40456", "endpoint"),
    ("aeron:udp?endpoint=10.0.0.1:4|session-id=tag:4", "session-id"),
])
def test_a_subscription_refuses_channels_that_do_not_fit(text: str, parameter: str) -> None:
    with pytest.raises(ChannelError) as caught:
        uri.check_subscription(uri.parse(text))
    assert caught.value.parameter == parameter


def test_a_destination_accepts_channels_that_fit() -> None:
    uri.check_destination(uri.parse("aeron:udp?endpoint=10.0.0.1:4"), subscription=False)
    uri.check_destination(uri.parse("aeron:udp?endpoint=10.0.0.1:0"), subscription=True)
    uri.check_destination(uri.parse("aeron:ipc"), subscription=True)


@pytest.mark.parametrize(("text", "subscription", "parameter"), [
    ("aeron:udp?endpoint=10.0.0.1:4|mtu=4k", False, "mtu"),
    ("aeron:udp?endpoint=10.0.0.1:4|so-rcvbuf=4k", True, "so-rcvbuf"),
    ("aeron:udp?control-mode=manual", True, "control-mode"),
    ("aeron:udp?endpoint=10.0.0.1:0", False, "endpoint"),
    ("aeron:udp?control=10.0.0.1:4", False, "endpoint"),
    ("aeron:ipc", False, "URI"),
])
def test_a_destination_refuses_channels_that_do_not_fit(
    text: str, subscription: bool, parameter: str
) -> None:
    with pytest.raises(ChannelError) as caught:
        uri.check_destination(uri.parse(text), subscription=subscription)
    assert caught.value.parameter == parameter


# ---- properties ----------------------------------------------------------------------------------

_I64 = st.integers(-(2**63), 2**63 - 1)
_DURATIONS = st.integers(0, 2**63 - 1)
_PORTS = st.integers(0, 65535)
_ADDRESSES = st.one_of(
    st.builds(lambda ip, port: uri.Address(host=str(ip), port=port), st.ip_addresses(v=4), _PORTS),
    st.builds(
        lambda ip, scope, port: uri.Address(host=str(ip), scope=scope, port=port, ipv6=True),
        st.ip_addresses(v=6).filter(lambda ip: ip.scope_id is None),  # type: ignore[union-attr]
        st.sampled_from(["", "eth0", "lo"]), _PORTS,
    ),
    st.builds(
        lambda name, port, v6: uri.Address(host=name, port=port, ipv6=v6),
        st.from_regex(r"[a-z][a-z0-9-]{0,20}(\.[a-z0-9]{1,5})?", fullmatch=True), _PORTS,
        st.booleans(),
    ),
)
_FLOW_CONTROLS = st.builds(
    FlowControl,
    strategy=st.sampled_from(["min", "tagged", "preferred", "py:a_b.c:D"]),
    receiver_timeout_ns=st.none() | _DURATIONS,
    group_tag=st.none() | _I64,
    group_min_size=st.none() | st.integers(0, 2**31 - 1),
    retransmit_window_multiple=st.none() | st.integers(1, 2**31 - 1),
)
_CHANNELS = st.builds(
    ChannelUri,
    media=st.sampled_from(uri.Media),
    spy=st.booleans(),
    endpoint=st.none() | _ADDRESSES,
    control=st.none() | _ADDRESSES,
    control_mode=st.none() | st.sampled_from(uri.ControlMode),
    tags=st.none() | st.builds(Tags, channel=_I64, entity=st.none() | _I64),
    alias=st.none() | st.from_regex(r"[a-zA-Z0-9=?:, -]{1,30}", fullmatch=True),
    session_id=st.none() | st.integers(-(2**31), 2**31 - 1) | st.builds(SessionTag, tag=_I64),
    term_length=st.none() | st.integers(16, 30).map(lambda bits: 1 << bits),
    mtu=st.none() | st.integers(2, 2047).map(lambda n: n * 32),
    term_offset=st.none() | st.integers(0, 1 << 30),
    linger_ns=st.none() | _DURATIONS,
    pub_wnd=st.none() | st.integers(1, 1 << 29),
    eos=st.none() | st.booleans(),
    fc=st.none() | _FLOW_CONTROLS,
    group=st.none() | st.sampled_from(uri.Group),
    so_rcvbuf=st.none() | st.integers(0, 2**31 - 1),
    media_rcv_ts_offset=st.none() | st.just(-8) | st.integers(0, 65504),
)


@given(_CHANNELS)
def test_what_is_written_reads_as_the_same(channel: ChannelUri) -> None:
    assert uri.parse(str(channel)) == channel


def _use(text: str) -> None:
    try:
        channel = uri.parse(text)
    except ChannelError:
        return
    assert uri.parse(str(channel)) == channel
    for check in (uri.check_publication, uri.check_subscription):
        with contextlib.suppress(ChannelError):
            check(channel)


@given(st.text())
def test_any_text_is_a_channel_or_a_channel_error(text: str) -> None:
    _use(text)


@given(st.lists(st.tuples(
    st.sampled_from([*uri.PARAMETERS, *uri.REFUSED]),
    st.one_of(st.text(max_size=20), _ADDRESSES.map(str), st.integers().map(str),
              st.sampled_from(["64k", "5s", "true", "tag:1", "1,2", "max,rrwm:2", "dynamic"])),
), max_size=6))
def test_any_parameters_are_a_channel_or_a_channel_error(items: list[tuple[str, str]]) -> None:
    query = "|".join(f"{key}={value}" for key, value in items)
    _use(f"aeron:udp?{query}")
    _use(f"aeron:ipc?{query}")


@pytest.mark.parametrize(("text", "control", "reno"), [
    ("static", "static", None), ("cubic", "cubic", None), ("cubic,reno:true", "cubic", True),
    ("cubic,reno:false", "cubic", False), ("py:a.b:C", "py:a.b:C", None), ("bbr", "bbr", None),
])
def test_congestion_controls_are_read_and_written_alike(
    text: str, control: str, reno: bool | None
) -> None:
    found = uri.read_congestion_control("cc", text)
    assert (found.control, found.reno) == (control, reno)
    assert str(found) == text


@pytest.mark.parametrize(("text", "why"), [
    ("", "is not the name"), ("Cubic", "is not the name"), ("py:", "is not the name"),
    ("py:a b", "is not the name"), ("cubic,", "unknown option ''"),
    ("cubic,reno", "unknown option 'reno'"), ("cubic,beta:0.7", "unknown option 'beta:0.7'"),
    ("cubic,reno:", "reno: is neither true nor false"),
    ("cubic,reno:yes", "reno:yes is neither true nor false"),
    ("cubic,reno:true,reno:true", "reno: twice"), ("static,reno:true", "static has no options"),
    ("py:a:B,reno:true", "py:a:B has no options"),
])
def test_congestion_controls_that_make_no_sense_are_named(text: str, why: str) -> None:
    with pytest.raises(uri.ChannelError, match=why) as caught:
        uri.read_congestion_control("cc", text)
    assert "static, cubic[,reno:true|false], py:NAME, py:MODULE:CLASS" in str(caught.value)
