# SPDX-License-Identifier: Apache-2.0
"""The rule by which requests and replies find each other: numbers, addresses, errors."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.client import _asking as rule
from penstock.client._service import check_concurrency

SESSIONS = st.integers(-(2**31), 2**31 - 1)
COUNTERS = st.integers(1, rule.MAX_COUNTER)


@given(session=SESSIONS, counter=COUNTERS, failed=st.booleans())
def test_a_reserved_value_states_session_counter_and_failure(
    session: int, counter: int, failed: bool
) -> None:
    value = rule.correlation(session, counter, failed=failed)
    assert -(2**63) <= value < 2**63
    assert rule.correlated(value) == (session, counter, failed)


def test_the_layout_of_the_reserved_value_is_the_documented_one() -> None:
    """An Aeron peer computes the same bits."""
    assert rule.correlation(0x12345678, 9) == 0x1234567800000009
    assert rule.correlation(0x12345678, 9, failed=True) == 0x1234567880000009
    assert rule.correlation(-1, 1) == -(1 << 32) + 1


@pytest.mark.parametrize(("source", "session", "address"), [
    ("10.0.0.7:40123", 0x7ABC9C40, ("aeron:udp?endpoint=10.0.0.7:40000", 5)),
    ("[fe80::1]:40123", -0x80000000 + 80, ("aeron:udp?endpoint=[fe80::1]:80", 5)),
    ("aeron:ipc", -7, ("aeron:ipc", -7)),
    ("10.0.0.7:40123", 0x7ABC0000, None),       # port 0
    ("aeron-spy", 7, None),
    ("", 7, None),
])
def test_replies_go_where_the_request_came_from(
    source: str, session: int, address: tuple[str, int] | None
) -> None:
    assert rule.reply_address(source, session, 5) == address


@given(text=st.text())
def test_errors_travel_as_type_and_text(text: str) -> None:
    sent = rule.error_payload(ValueError(text))
    assert len(sent) <= 1024
    error = rule.remote_error(sent)
    assert error.type == "ValueError"
    if len(text.encode(errors="replace")) < 1000:
        assert error.text == text.encode(errors="replace").decode()


@given(payload=st.binary())
def test_any_error_payload_becomes_a_remote_error(payload: bytes) -> None:
    assert isinstance(rule.remote_error(payload), penstock.RemoteError)


@pytest.mark.parametrize("channel", [
    "aeron-spy:aeron:udp?endpoint=127.0.0.1:40456",
    "aeron:udp?endpoint=127.0.0.1:40456|session-id=4",
    "aeron:udp?endpoint=127.0.0.1:40456|channel-rcv-ts-offset=reserved",
])
def test_channels_that_the_rule_needs_for_itself_are_refused(channel: str) -> None:
    with pytest.raises(penstock.InvalidArgument, match=r"spy|remove"):
        rule.check_request_channel(channel)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "2"])
def test_a_concurrency_that_is_no_number_of_threads_is_refused(wrong: int) -> None:
    with pytest.raises(penstock.InvalidArgument, match="concurrency"):
        check_concurrency(wrong)


@pytest.mark.parametrize(("plain", "awaited"), [
    (penstock.Requester, penstock.AsyncRequester), (penstock.Service, penstock.AsyncService),
])
def test_both_clients_have_the_same_words(plain: type, awaited: type) -> None:
    def names(of: type) -> set[str]:
        return {name for name in dir(of) if not name.startswith("_")}

    assert names(awaited) - {"sync"} == names(plain)
    for name in names(plain):
        mine, its = inspect.getattr_static(awaited, name), inspect.getattr_static(plain, name)
        if isinstance(mine, property):
            assert isinstance(its, property), name
        else:
            assert inspect.signature(mine) == inspect.signature(its), name
