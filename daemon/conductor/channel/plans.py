# SPDX-License-Identifier: Apache-2.0
"""Convert the channel URI of a publication, subscription or destination to a plan (its checked
settings): fill in defaults, and refuse contradictions. The input is a URI that the module
:mod:`penstock.config.uri` has parsed."""

from __future__ import annotations

import functools
from typing import Final

import attrs

from penstock.config import uri
from penstock.core.driver_types import CongestionControl, Isolation
from penstock.daemon.conductor.channel.credits import with_credits
from penstock.daemon.conductor.channel.isolation import with_isolation
from penstock.daemon.conductor.saga import Refused
from penstock.daemon.conductor.settings import MIB, ConductorSettings

_TERMS: Final = 3                        # of a log
#: Length of the padding frame that states dropped messages.
_DROP_FRAME_BYTES: Final = 32
_LARGEST_WINDOW: Final = 512 * MIB      # half of the longest term there is
CONGESTION_CONTROL: Final = {
    "static": CongestionControl.STATIC, "cubic": CongestionControl.CUBIC
}


def congestion_plan(
    given: uri.CongestionControl | None, settings: ConductorSettings
) -> uri.CongestionControl:
    """Return the congestion control that the channel states, or else that of the configuration.
    Options that the channel omits get their defaults.

    :raises Refused: this daemon has no such congestion control.
    """
    chosen = given
    if chosen is None:
        chosen = uri.read_congestion_control("congestion_control", settings.congestion_control)
    if chosen.control not in CONGESTION_CONTROL and not chosen.is_custom:
        raise Refused(
            "not_supported",
            f"cc={chosen}: this daemon has no such congestion control "
            f"(accepted: {', '.join(CONGESTION_CONTROL)}, py:NAME, py:MODULE:CLASS)",
        )
    if chosen.control == "cubic" and chosen.reno is None:
        return attrs.evolve(chosen, reno=settings.cubic_reno_friendly)
    return chosen


@attrs.frozen(kw_only=True)
class EndpointPlan:
    """The addresses and socket options of a channel."""

    channel: str
    endpoint: uri.Address | None = None
    control: uri.Address | None = None
    control_mode: str = ""              # "", "dynamic" or "manual"
    interface: uri.Interface | None = None
    ttl: int = 0
    channel_tag: int | None = None
    sndbuf_bytes: int | None = None     # None: not given
    rcvbuf_bytes: int | None = None


@attrs.frozen(kw_only=True)
class Tethering:
    window_limit_timeout_ns: int
    linger_timeout_ns: int
    resting_timeout_ns: int


@attrs.frozen(kw_only=True)
class PublicationPlan:
    address: EndpointPlan
    is_ipc: bool
    entity_tag: int = -1
    session_id: int | None = None
    session_tag: int | None = None
    term_length: int
    mtu: int
    initial_term_id: int | None = None  # the three are given together
    term_id: int | None = None
    term_offset: int | None = None
    linger_ns: int
    window_bytes: int
    max_resend: int
    signal_eos: bool = True
    spies_simulate_connection: bool = False
    sparse: bool = True
    flow_control: uri.FlowControl | None = None     # None: by media
    rate: uri.Rate = attrs.field(factory=uri.Rate)
    policy: str = ""                    # when the log is full; "": as Aeron
    low_watermark_bytes: int = 0        # under a policy
    depth_messages: int = 0             # that publishers may be ahead; 0: no limit
    low_watermark_messages: int = 0
    fanout: str = ""                    # "min", "independent"; "": the slowest, fc as by default
    depth_bytes: int = 0                # drop_oldest: of its readers; 0: a quarter of their window
    reader_depth_messages: int = 0      # drop_oldest: of its readers; 0: no limit in messages
    retention_bytes: int = 0            # readers get no data that is further behind; 0: no limit
    retention_ns: int = 0               # readers get no data that is older; 0: no limit
    priority: int | None = None         # None: by recency, if auto_priority
    auto_priority: bool = True
    never_throttle: bool = False
    credit_weight: int = 0              # in the division of a local reader's credits; 0: by rule
    tethering: Tethering
    send_timestamp_offset: int | None = None
    given: frozenset[str] = frozenset()

    @property
    def channel(self) -> str:
        return self.address.channel


@attrs.frozen(kw_only=True)
class SubscriptionPlan:
    address: EndpointPlan
    kind: str                           # "udp", "ipc" or "spy"
    session_id: int | None = None
    reliable: bool = True
    sparse: bool = True
    receiver_window: int
    window_stated: bool = False
    credits: int = 0                    # messages that it grants at once; 0: it grants none
    credit_burst: int = 0               # while nothing is outstanding; 0: as credits
    credit_auto: bool = False           # credits is the first value; the daemon measures
    credit_message_bytes: int = 0       # that a credit has room for; 0: one frame
    credit_policy: str = ""             # "": each publisher gets all credits
    credit_pool: bool = False           # the pool of the client, and not of this subscription
    credit_most: int = 0                # of automatic credits
    credits_required: bool = False
    congestion_control: uri.CongestionControl
    nak_delay_ns: int = -1
    group: bool | None = None           # None: as the channel and the SETUP say
    tether: bool = True
    rejoin: bool = True
    isolation: Isolation = Isolation.GATES
    depth_bytes: int = 0                # when isolated; 0: a quarter of the window
    depth_messages: int = 0             # when isolated; 0: no limit in messages
    must_block: bool = False            # it states ps-sub-policy=block
    fanin: str = ""                     # "equal", "priority"; "": each publisher has the window
    tethering: Tethering
    group_tag: int | None = None
    media_timestamp_offset: int | None = None
    channel_timestamp_offset: int | None = None

    @property
    def channel(self) -> str:
        return self.address.channel


#: A client usually adds many streams on one channel. A ChannelUri does not change.
_parsed: Final = functools.lru_cache(maxsize=256)(uri.parse)


def parse(channel: str) -> uri.ChannelUri:
    """Parse a channel URI. If the URI is invalid, raise Refused with a text that names the
    mistake."""
    try:
        return _parsed(channel)
    except uri.ChannelError as error:
        raise Refused("invalid_channel", str(error)) from error


def publication_plan(
    parsed: uri.ChannelUri, channel: str, settings: ConductorSettings
) -> PublicationPlan:
    """Plan a publication on the given channel."""
    try:
        uri.check_publication(parsed)
    except uri.ChannelError as error:
        raise Refused("invalid_channel", str(error)) from error
    ipc = parsed.is_ipc
    default_term = settings.ipc_term_length if ipc else settings.term_length
    term_length = default_term if parsed.term_length is None else parsed.term_length
    mtu = (settings.ipc_mtu if ipc else settings.mtu) if parsed.mtu is None else parsed.mtu
    if parsed.term_offset is not None and parsed.term_offset > term_length:
        raise Refused(
            "invalid_channel",
            f"{channel}: term-offset={parsed.term_offset} exceeds the term of {term_length} bytes",
        )
    buffer = settings.sndbuf_bytes if parsed.so_sndbuf is None else parsed.so_sndbuf
    if not ipc and 0 < buffer < mtu:
        raise Refused(
            "socket_buffer",
            f"{channel}: mtu={mtu} exceeds the socket's send buffer of {buffer} bytes: raise "
            "so-sndbuf or choose a smaller mtu",
        )
    session = parsed.session_id
    policy = _policy(parsed, channel, settings)
    skips = policy == "drop_oldest"     # the depth is that of readers
    most_bytes = _publication_window(parsed, channel, term_length, mtu, settings, skips=skips)
    depth_bytes = _depth(parsed, channel, most_bytes, settings, policy)
    window_bytes = most_bytes if skips else depth_bytes
    depth_messages, reader_messages = _depth_messages(parsed, settings, skips=skips)
    ratio = parsed.ps_low_watermark or settings.low_watermark_ratio or 0.5
    return PublicationPlan(
        address=_endpoint_plan(parsed, channel),
        is_ipc=ipc,
        entity_tag=-1 if parsed.tags is None or parsed.tags.entity is None else parsed.tags.entity,
        session_id=session if isinstance(session, int) else None,
        session_tag=session.tag if isinstance(session, uri.SessionTag) else None,
        term_length=term_length,
        mtu=mtu,
        initial_term_id=parsed.init_term_id,
        term_id=parsed.term_id,
        term_offset=parsed.term_offset,
        linger_ns=settings.linger_ns if parsed.linger_ns is None else parsed.linger_ns,
        window_bytes=window_bytes,
        max_resend=settings.max_resend if parsed.max_resend is None else parsed.max_resend,
        signal_eos=parsed.eos is not False,
        spies_simulate_connection=(
            settings.spies_simulate_connection if parsed.ssc is None else parsed.ssc
        ),
        sparse=settings.sparse if parsed.sparse is None else parsed.sparse,
        flow_control=parsed.fc or _fanout_strategy(parsed),
        rate=parsed.ps_rate or uri.Rate(),
        policy=policy,
        low_watermark_bytes=max(1, int(window_bytes * ratio)) if policy else 0,
        depth_messages=depth_messages,
        low_watermark_messages=max(1, int(depth_messages * ratio)) if depth_messages else 0,
        fanout=parsed.ps_fanout or "",
        depth_bytes=depth_bytes if skips and depth_bytes < most_bytes else 0,
        reader_depth_messages=reader_messages,
        retention_bytes=_retention(parsed, channel, term_length, mtu),
        retention_ns=parsed.ps_retention_time_ns or 0,
        priority=parsed.ps_priority,
        auto_priority=settings.auto_priority if parsed.ps_auto_priority is None
        else parsed.ps_auto_priority,
        never_throttle=parsed.ps_never_throttle is True,
        credit_weight=parsed.ps_credit_weight or 0,
        tethering=_tethering(parsed, settings),
        send_timestamp_offset=parsed.channel_snd_ts_offset,
        given=frozenset(parsed.given()),
    )


def subscription_plan(
    parsed: uri.ChannelUri, channel: str, settings: ConductorSettings
) -> SubscriptionPlan:
    """Plan a subscription on the given channel."""
    try:
        uri.check_subscription(parsed)
    except uri.ChannelError as error:
        raise Refused("invalid_channel", str(error)) from error
    group = {uri.Group.TRUE: True, uri.Group.FALSE: False}
    plan = SubscriptionPlan(
        address=_endpoint_plan(parsed, channel),
        kind="spy" if parsed.spy else ("ipc" if parsed.is_ipc else "udp"),
        session_id=parsed.session_id if isinstance(parsed.session_id, int) else None,
        reliable=settings.reliable if parsed.reliable is None else parsed.reliable,
        sparse=settings.sparse if parsed.sparse is None else parsed.sparse,
        receiver_window=settings.receiver_window if parsed.rcv_wnd is None else parsed.rcv_wnd,
        window_stated=parsed.rcv_wnd is not None,
        congestion_control=congestion_plan(parsed.cc, settings),
        nak_delay_ns=-1 if parsed.nak_delay_ns is None else parsed.nak_delay_ns,
        group=None if parsed.group is None else group.get(parsed.group),
        tether=settings.tether if parsed.tether is None else parsed.tether,
        rejoin=settings.rejoin if parsed.rejoin is None else parsed.rejoin,
        fanin=parsed.ps_fanin or "",
        tethering=_tethering(parsed, settings),
        group_tag=settings.receiver_group_tag if parsed.gtag is None else parsed.gtag,
        media_timestamp_offset=parsed.media_rcv_ts_offset,
        channel_timestamp_offset=parsed.channel_rcv_ts_offset,
    )
    return with_isolation(parsed, channel, settings, with_credits(parsed, channel, settings, plan))


def group_subscription_plan(
    parsed: uri.ChannelUri, channel: str, settings: ConductorSettings
) -> SubscriptionPlan:
    """Plan a consumer group's subscription on the given channel. The sender waits for the consumer
    group. Unless the channel states a receiver window, the plan of a consumer group has the largest
    window that the log allows. A consumer group grants credits only if its channel states them;
    credits of a ``[[stream]]`` rule or of the configuration have no effect on a group."""
    parsed = attrs.evolve(parsed, ps_sub_policy="block", ps_sub_depth=None, ps_fanin=None)
    if parse(channel).ps_credits is None:
        parsed = without_credits(parsed)
    plan = subscription_plan(parsed, channel, attrs.evolve(settings, default_credits=""))
    window = _LARGEST_WINDOW if parsed.rcv_wnd is None else plan.receiver_window
    return attrs.evolve(plan, tether=True, receiver_window=window)


def without_credits(parsed: uri.ChannelUri) -> uri.ChannelUri:
    """Return the channel without its parameters for a subscription's credits."""
    return attrs.evolve(
        parsed, ps_credits=None, ps_credit_burst=None, ps_max_message=None, ps_credit_policy=None,
        ps_credit_pool=None, ps_credits_required=None,
    )


def destination_plan(
    parsed: uri.ChannelUri, channel: str, *, subscription: bool
) -> EndpointPlan:
    """Plan one destination of a publication or subscription with ``control-mode=manual``."""
    try:
        uri.check_destination(parsed, subscription=subscription)
    except uri.ChannelError as error:
        raise Refused("invalid_channel", str(error)) from error
    if parsed.is_ipc or parsed.spy:
        kind = "a spy" if parsed.spy else "aeron:ipc"
        raise Refused(
            "not_supported",
            f"{channel}: {kind} as a destination of a subscription is not supported; add a "
            "separate subscription",
        )
    return _endpoint_plan(parsed, channel)


def _endpoint_plan(parsed: uri.ChannelUri, channel: str) -> EndpointPlan:
    return EndpointPlan(
        channel=channel,
        endpoint=parsed.endpoint,
        control=parsed.control,
        control_mode="" if parsed.control_mode is None else parsed.control_mode.value,
        interface=parsed.interface,
        ttl=parsed.ttl or 0,
        channel_tag=None if parsed.tags is None else parsed.tags.channel,
        sndbuf_bytes=parsed.so_sndbuf,
        rcvbuf_bytes=parsed.so_rcvbuf,
    )


def _publication_window(
    parsed: uri.ChannelUri, channel: str, term_length: int, mtu: int, settings: ConductorSettings,
    *, skips: bool,
) -> int:
    """Bytes that may be published ahead of the consumers: at most half a term, on IPC a term. If
    readers skip, 7/8 of a term unless a window is stated: the log drops beyond it, and a message of
    an eighth of a term ends within a term of the sender."""
    largest = term_length if parsed.is_ipc else term_length // 2
    if parsed.pub_wnd is not None:
        if not mtu <= parsed.pub_wnd <= largest:
            raise Refused(
                "invalid_channel",
                f"{channel}: pub-wnd={parsed.pub_wnd} is not in {mtu}..{largest} "
                f"(one MTU up to {'a term' if parsed.is_ipc else 'half a term'})",
            )
        return parsed.pub_wnd
    if skips and not parsed.is_ipc and not settings.publication_window:
        largest = term_length // 8 * 7
    window = min(settings.publication_window or largest, largest)
    if mtu > window:
        raise Refused(
            "invalid_channel",
            f"{channel}: mtu={mtu} exceeds the publication window of {window} bytes: choose a "
            "larger term-length or a smaller mtu",
        )
    return window


def _depth(
    parsed: uri.ChannelUri, channel: str, window_bytes: int, settings: ConductorSettings,
    policy: str,
) -> int:
    """The window, or the depth within it: bytes that publishers may be ahead."""
    depth = settings.default_depth if parsed.ps_depth is None else parsed.ps_depth.bytes
    if policy == "drop_newest" and 0 < depth <= _DROP_FRAME_BYTES:
        raise Refused(
            "invalid_channel",
            f"{channel}: a depth of {depth} bytes (ps-depth) has no room for messages under "
            f"ps-policy=drop_newest: the frame that states dropped messages takes "
            f"{_DROP_FRAME_BYTES} bytes: choose a larger depth, or one in messages",
        )
    if parsed.ps_depth is None:
        return min(window_bytes, depth or window_bytes)
    if parsed.ps_depth.bytes > window_bytes:
        raise Refused(
            "invalid_channel",
            f"{channel}: ps-depth={parsed.ps_depth} exceeds the publication window of "
            f"{window_bytes} bytes (pub-wnd; at most half a term, or one term on IPC): choose a "
            "larger term-length or a smaller depth",
        )
    return parsed.ps_depth.bytes or window_bytes


def _depth_messages(
    parsed: uri.ChannelUri, settings: ConductorSettings, *, skips: bool
) -> tuple[int, int]:
    """Messages that publishers may be ahead, and that readers may be behind; 0: no limit."""
    stated = parsed.ps_depth
    messages = settings.default_depth_messages if stated is None else stated.messages
    return (0, messages) if skips else (messages, 0)


def _retention(parsed: uri.ChannelUri, channel: str, term_length: int, mtu: int) -> int:
    """Bytes behind the newest data that readers still get; 0: no limit."""
    stated = parsed.ps_retention
    if stated is None:
        return 0
    if stated < 2 * mtu:
        raise Refused(
            "invalid_channel",
            f"{channel}: ps-retention={stated} is less than two datagrams of mtu={mtu}: choose a "
            "longer retention or a smaller mtu",
        )
    if stated > _TERMS * term_length:
        raise Refused(
            "invalid_channel",
            f"{channel}: ps-retention={stated} exceeds the log, which has {_TERMS} terms of "
            f"term-length={term_length} bytes: choose a larger term-length or a shorter retention",
        )
    return stated


def _fanout_strategy(parsed: uri.ChannelUri) -> uri.FlowControl | None:
    """The flow control of a group for its fan-out; None: the fan-out is not stated."""
    if parsed.ps_fanout is None or parsed.is_ipc:
        return None
    strategy = "min" if parsed.ps_fanout == "min" else "max"
    return uri.FlowControl(strategy=strategy, by_rule=True)     # ignored for a single receiver


def _policy(parsed: uri.ChannelUri, channel: str, settings: ConductorSettings) -> str:
    """The policy, "" for none."""
    default = settings.default_policy
    policy = parsed.ps_policy or (default if default in uri.POLICIES else "")
    ratio = parsed.ps_low_watermark or settings.low_watermark_ratio
    if not policy and (parsed.ps_depth is not None or settings.default_depth
                       or settings.default_depth_messages or ratio):
        policy = "block"
    if policy == "rate_limit" and parsed.ps_rate is None:
        raise Refused(
            "invalid_channel",
            f"{channel}: backpressure.default_policy = rate_limit needs ps-rate, which is missing: "
            "state a rate, or ps-policy=block",
        )
    if policy == "drop_oldest" and parsed.ps_fanout == "min":
        raise Refused(
            "invalid_channel",
            f"{channel}: ps-fanout=min contradicts backpressure.default_policy = drop_oldest, "
            "under which readers skip messages: state ps-policy=block, or ps-fanout=independent",
        )
    return policy


def _tethering(parsed: uri.ChannelUri, settings: ConductorSettings) -> Tethering:
    limit = parsed.untethered_window_limit_timeout_ns
    if limit is None:
        limit = settings.untethered_window_limit_timeout_ns
    linger = parsed.untethered_linger_timeout_ns
    if linger is None:
        linger = settings.untethered_linger_timeout_ns
    resting = parsed.untethered_resting_timeout_ns
    if resting is None:
        resting = settings.untethered_resting_timeout_ns
    return Tethering(
        window_limit_timeout_ns=limit,
        linger_timeout_ns=limit if linger is None else linger,
        resting_timeout_ns=resting,
    )
