# SPDX-License-Identifier: Apache-2.0
"""``publication.pressure()``: what it decodes, and what it costs in CPU time.

``tests/native/memory/test_pressure_view.c`` measures the part in C: 1 to 4 096 publications alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from local_port import CHANNEL, STREAM, LocalPort

from penstock.client import Client
from penstock.client._pressure import Pressure, pressure_of
from penstock.core import client as core_client
from penstock.core import pressure
from penstock.core._lib import CORE

MOST_US = 15.0
REFERENCE_US = 4.3                      # of reference() where MOST_US was measured, undisturbed
CALLS, ROUNDS = 1000, 25


def reference() -> object:
    """Python's own work of the same kind: it is as slow as the processor is at the moment."""
    return {str(number): (number, [number]) for number in range(30)}


def once_us(act: Callable[[], object]) -> float:
    before = time.thread_time()
    for _ in range(CALLS):
        act()
    return (time.thread_time() - before) / CALLS * 1e6


def cost_us(act: Callable[[], object]) -> float:
    """CPU time of one call on a processor that is not shared: the least of some rounds."""
    rounds = [(once_us(act), once_us(reference)) for _ in range(ROUNDS)]
    took = min(took for took, _ in rounds)
    slower = min(beside for _, beside in rounds) / REFERENCE_US
    return took / max(1.0, slower)


def full_account() -> Any:
    """Eight culprits of both kinds, unknown ones beside them, and six causes."""
    view = CORE.ffi.new("ps_pressure_view_t *")
    view.cause, view.since_ns = 11, 5
    for index, party in enumerate([view.culprit, *view.culprits]):
        party.id, party.blocked_ns, party.error_ns = 100 + index, 1000 + index, index
        if index % 2:
            party.pid, party.name = 77, b"slow reader"
        else:
            party.family, party.port, party.ip = 4, 40456, bytes([10, 0, 0, index]) + bytes(12)
    view.culprits[8].id = 0
    for cause in range(1, 7):
        view.blocked_ns[cause], view.refused[cause] = 1000, cause
    view.reason, view.reason_client, view.backlog_bytes = 11, 9, 4096
    view.reason_name, view.reason_host, view.strategy = b"far", b"host-3", b"min"
    view.published_ordinal, view.sent_ordinal, view.rate_bytes_per_s = 12, 10, 500
    view.refused_ns, view.refused_episodes = 77, 3
    view.dropped_messages, view.dropped_bytes = 5, 500
    view.dropped_storage, view.dropped_rate = 1, 2
    view.throttled, view.retry_after_ns, view.deferrals = 4, 9, 2
    view.waits, view.waited_ns = 6, 60
    return view


def test_the_layout_is_that_of_the_core() -> None:
    pressure.check_layout(CORE.ffi)


def test_every_field_is_decoded() -> None:
    view = pressure.decode(CORE.ffi, full_account())
    assert view.culprit.text == "receiver 100 at 10.0.0.0:40456"
    assert view.culprit_text == f"{view.culprit.text}: client 9 'far' on host-3"
    assert [party.id for party in view.culprits] == [101, 102, 103, 104, 105, 106, 107, 108, 0]
    assert view.culprits[0].text == "client 101 'slow reader' (pid 77)"
    assert view.culprits[1].address == "10.0.0.2:40456"
    assert (view.culprits[-1].text, view.culprits[-1].blocked_ns) == ("", 1009)
    assert (view.cause, view.since_ns, view.reason, view.backlog_bytes) == (11, 5, 11, 4096)
    assert (view.strategy, view.published_ordinal, view.sent_ordinal) == ("min", 12, 10)
    assert (view.refused_ns, view.refused_episodes, view.rate_bytes_per_s) == (77, 3, 500)
    assert (view.dropped_messages, view.dropped_bytes) == (5, 500)
    assert view.dropped_by() == {"log_full": 2, "storage": 1, "rate": 2}
    assert view.scheduled() == pressure.Scheduling(4, 9, 2, 6, 60)
    assert view.refusals() == {
        "receiver_window": 1, "group_strategy": 2, "congestion_window": 3, "nak_rate": 4,
        "credit": 5, "scheduler": 6,
    }
    assert view.by_cause(5)["scheduler"] == 1000
    assert sum(view.by_culprit(5).values()) == sum(range(1001, 1010))


def test_a_call_takes_fifteen_microseconds_at_most(port: LocalPort, client: Client) -> None:
    publication = client.add_publication(CHANNEL, STREAM)
    assert cost_us(publication.pressure) <= MOST_US


def changed(native: Any) -> Pressure:
    """The account after one more interval was closed: nothing of it was decoded before."""
    native.culprits[0].blocked_ns += 1
    native.blocked_ns[1] += 1
    return pressure_of(pressure.decode(CORE.ffi, native), 10**9)


def test_a_full_account_takes_no_longer() -> None:
    native = full_account()
    without_the_read_us = MOST_US - 1.0
    assert cost_us(lambda: changed(native)) <= without_the_read_us


def test_times_by_cause_and_culprit_take_as_long_again_at_most() -> None:
    native = full_account()

    def read() -> object:
        account = changed(native)
        return account.blocked_ns, account.blocked_by_ns, account.error_ns

    assert cost_us(read) - cost_us(lambda: changed(native)) <= MOST_US


def test_an_account_stays_as_it_was_read() -> None:
    native = full_account()
    first, second = changed(native), changed(native)
    assert first != second
    assert second.blocked_ns["receiver_window"] == first.blocked_ns["receiver_window"] + 1
    name = "client 101 'slow reader' (pid 77)"
    assert second.blocked_by_ns[name] == first.blocked_by_ns[name] + 1
    assert second == pressure_of(pressure.decode(CORE.ffi, native), 10**9)
    assert sum(second.blocked_by_ns.values()) - sum(first.blocked_by_ns.values()) == 1


def test_an_account_that_is_being_written_is_the_last_copy(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The core gives up after eight tries (tests/native/memory/test_shared.c)."""
    publication = client.add_publication(CHANNEL, STREAM)
    read = core_client.pub_pressure
    seen = attrs.evolve(pressure.decode(CORE.ffi, full_account()), stale=False)
    found: list[pressure.PressureView | None] = [None, seen, None]
    monkeypatch.setattr(core_client, "pub_pressure", lambda _handle: found.pop(0))
    before, good, after = (publication.pressure() for _ in range(3))
    assert (before.stale, before.cause) == (True, "none")
    assert (good.stale, after.stale) == (False, True)
    assert after.cause == good.cause == "slow_subscriber"
    assert after.blocked_by_ns.keys() == good.blocked_by_ns.keys()
    monkeypatch.setattr(core_client, "pub_pressure", read)
    assert not publication.pressure().stale
