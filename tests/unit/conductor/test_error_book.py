# SPDX-License-Identifier: Apache-2.0
"""The error log and the daemon's log stay small, whatever comes from outside."""

from __future__ import annotations

import logging

import pytest
from conductor_rig import Rig

from penstock.core.driver_types import Address, EventType, ImageEnd, ObjectKind
from penstock.daemon.conductor import actions as a
from penstock.daemon.conductor.state.error_book import LOCALS, STRANGER_TEXT, STRANGERS, ErrorBook
from penstock.daemon.limited_log import BURST, LINES_PER_SECOND, REPEAT_NS, LimitedLog

UNICAST = "aeron:udp?endpoint=10.0.0.1:40456"
SECOND_NS = 10**9


def entries(rig: Rig) -> set[str]:
    return {action.text for action in rig.all(a.LogError)}


def test_refused_setups_of_one_address_are_one_entry() -> None:
    rig = Rig()
    rig.sub(rig.client(), UNICAST)
    endpoint = rig.last(a.OpenRecvEndpoint).params.id
    for number in range(1000):
        source = Address(ip="10.0.0.9", port=1000 + number)
        rig.setup(endpoint, session_id=number, term_length=1001 + number, source=source)
    assert len(rig.all(a.LogError)) == 1000
    assert len(entries(rig)) == 1


def test_refused_setups_of_many_addresses_have_a_bound_and_local_errors_their_room() -> None:
    rig = Rig()
    rig.sub(rig.client(), UNICAST)
    endpoint = rig.last(a.OpenRecvEndpoint).params.id
    for number in range(5000):
        source = Address(ip=f"10.1.{number // 250}.{number % 250}", port=1000)
        rig.setup(endpoint, session_id=number, mtu=33, source=source)
    assert len(entries(rig)) == STRANGERS + 1
    event = {"kind": ObjectKind.RECV_ENDPOINT, "id": endpoint, "text": "no such device"}
    rig.event(EventType.ENDPOINT_ERROR, **event)
    assert rig.last(a.LogError).text == f"{UNICAST}: no such device"


@pytest.mark.parametrize("kind", ["second source", "outrun", "all"])
def test_sessions_that_strangers_make_do_not_fill_the_log(kind: str) -> None:
    """Each image is of a session and a source that the stranger chose."""
    rig = Rig(stream_session_limit=10_000)
    rig.sub(rig.client(), UNICAST)
    endpoint = rig.last(a.OpenRecvEndpoint).params.id
    for number in range(300):
        near = Address(ip=f"10.1.{number // 250}.{number % 250}", port=1000)
        far = Address(ip=f"10.2.{number // 250}.{number % 250}", port=1000)
        rig.setup(endpoint, session_id=number, source=near)
        image = rig.last(a.AddImageObject).params.id
        if kind != "outrun":
            rig.event(EventType.SECOND_SOURCE, kind=ObjectKind.IMAGE, id=image, source=far)
        if kind != "second source":         # its readers fell behind
            rig.event(EventType.IMAGE_INACTIVE, kind=ObjectKind.IMAGE, id=image,
                      reason=ImageEnd.OUTRUN)
    assert len(rig.all(a.LogError)) == (600 if kind == "all" else 300)
    assert len(entries(rig)) == STRANGERS + (2 if kind == "all" else 1)
    assert all(len(text) <= STRANGER_TEXT for text in entries(rig))


def test_texts_of_strangers_are_cut_and_all_texts_are_bounded() -> None:
    book = ErrorBook()
    assert len(book.stranger("a", "10.0.0.1", "x" * 100_000)) == STRANGER_TEXT
    texts = {book.stranger("b", f"10.0.0.{n}", f"{n} b") for n in range(1000)}
    texts |= {book.local("c", str(n), f"{n} c") for n in range(10_000)}
    assert len(texts) == (STRANGERS - 1 + 1) + (LOCALS + 1)


def test_a_full_channel_is_reported() -> None:
    rig = Rig()
    rig.pub(rig.client(), "aeron:udp?control=10.0.0.1:40456|control-mode=dynamic")
    endpoint = rig.last(a.OpenSendEndpoint).params.id
    assert rig.counters[rig.last(a.OpenSendEndpoint).params.refused_counter_id].type_id == 1018
    source = Address(ip="10.0.0.9", port=1)
    event = {"kind": ObjectKind.SEND_ENDPOINT, "id": endpoint, "source": source, "change": -1}
    rig.event(EventType.DESTINATION, refused=1, **event)
    rig.event(EventType.DESTINATION, refused=900, **event)
    assert len(entries(rig)) == 1
    assert "maximum of 2048 receivers" in entries(rig).pop()
    notified = [x for x in rig.all(a.PublishEvent) if x.name == "destinations_full"]
    assert [x.fields["refused"] for x in notified] == [1, 900]


def test_the_log_repeats_a_warning_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    log = LimitedLog(logging.getLogger("limited"))
    for number in range(1000):
        log.warn("full", number)
    log.warn("full", REPEAT_NS)
    assert [r.message for r in caplog.records] == [
        "full", "full (and 999 more times since it was last logged)"
    ]


def test_the_log_takes_so_many_lines_a_second(caplog: pytest.LogCaptureFixture) -> None:
    log = LimitedLog(logging.getLogger("limited"))
    for number in range(100_000):                               # 10 s
        log.warn(f"{number}", SECOND_NS + number * SECOND_NS // 10_000)
    assert BURST <= len(caplog.records) <= BURST + 10 * LINES_PER_SECOND
    log.warn("later", 20 * SECOND_NS)
    assert "other warnings left out" in caplog.records[-1].message
