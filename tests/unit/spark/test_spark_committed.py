# SPDX-License-Identifier: Apache-2.0
"""The reader of whole parts on real logs: what it hands out, what it remembers, when it ends."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from uuid import UUID

import pytest
from local_port import CHANNEL, STREAM, LocalPort

from penstock.client import Client, MessageBatch, Publication, Subscription
from penstock.config.protocol import control
from penstock.spark_bridge import _committed, committed
from penstock.spark_bridge._assembler import RepeatDiffers
from penstock.spark_bridge.markers import (
    RESERVED_VALUE,
    Content,
    Kind,
    Marker,
    Part,
    encode,
)

QUERY, RUN = UUID(int=1), UUID(int=2)


def part_of(epoch: int, attempt: int = 0) -> Part:
    return Part(query=QUERY, run=RUN, epoch=epoch, partition=0, attempt=attempt)


def begin(publication: Publication, part: Part) -> None:
    publication.send(encode(Marker(kind=Kind.BEGIN, part=part)), reserved_value=RESERVED_VALUE)


def send(publication: Publication, part: Part, rows: Sequence[bytes]) -> None:
    """A whole attempt."""
    begin(publication, part)
    for row in rows:
        publication.send(row)
    commit(publication, part, rows)


def commit(publication: Publication, part: Part, rows: Sequence[bytes]) -> None:
    joined = b"".join(rows)
    content = Content(messages=len(rows), bytes=len(joined), crc=zlib.crc32(joined))
    publication.send(
        encode(Marker(kind=Kind.COMMIT, part=part, content=content)), reserved_value=RESERVED_VALUE
    )


def another_session(port: LocalPort, client: Client, subscription: Subscription) -> Publication:
    """Whose image the subscription has."""
    publication = client.add_exclusive_publication(CHANNEL, STREAM)
    port.open_up(publication.registration_id)
    port.image_available(subscription.registration_id, publication.registration_id)
    return publication


def test_its_state_is_what_was_handed_out_and_not_what_waits(
    stream: tuple[Publication, Subscription],
) -> None:
    """Three parts come with one poll; the reader's process ends when it has stored the first."""
    publication, subscription = stream
    for epoch in range(3):
        send(publication, part_of(epoch), [b"row %d" % epoch])
    reader = committed(subscription, timeout_s=0.0)
    assert next(reader).epoch == 0
    state = json.loads(json.dumps(reader.state()))
    for epoch in range(3):      # the query runs the epochs again
        send(publication, part_of(epoch, attempt=9), [b"row %d" % epoch])
    new_daemon = committed(subscription, timeout_s=0.0, state=state)
    assert [part.epoch for part in new_daemon] == [1, 2]
    assert new_daemon.statistics.repeats == 1


def test_it_ends_in_time_although_other_messages_keep_coming(
    stream: tuple[Publication, Subscription], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody without markers sends a message before each poll."""
    publication, subscription = stream
    noise = iter(range(1000))
    poll_batch = subscription.poll_batch

    def poll_after_noise(limit: int) -> MessageBatch:
        if next(noise, None) is not None:
            assert publication.offer(b"of no part") > 0
        return poll_batch(limit)

    monkeypatch.setattr(type(subscription), "poll_batch", lambda _self, n: poll_after_noise(n))
    reader = committed(subscription, timeout_s=0.0)
    assert list(reader) == []
    assert reader.statistics.headless == 1
    # What is at hand of a part it takes, however many polls that needs.
    part = part_of(1)
    send(publication, part, [b"%d" % row for row in range(2 * 4096 // 16)])
    monkeypatch.setattr(_committed, "_BATCH", 16)
    [found] = list(reader)
    assert len(found.messages) == 512


def test_parts_of_a_session_that_is_gone_are_given_up_while_others_go_on(
    port: LocalPort, client: Client, stream: tuple[Publication, Subscription],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_committed, "_RETURN_S", 0.0)
    dying, subscription = stream
    other = another_session(port, client, subscription)
    reader = committed(subscription, timeout_s=0.0)
    begin(dying, part_of(1))
    dying.send(b"never committed")
    begin(other, part_of(2))
    assert reader.poll()
    assert reader.statistics.pending_bytes == len(b"never committed")
    port.notify(
        control.ImageUnavailable(
            subscription_id=subscription.registration_id, correlation_id=dying.registration_id,
            stream_id=STREAM, reason="timeout",
        )
    )
    other.send(b"on and on")
    assert reader.poll()        # never a moment in which nothing comes
    assert [(p.reason, p.part.epoch) for p in reader.partial] == [("ended", 1), ("open", 2)]


@pytest.mark.parametrize("missing", [0, 1])
def test_a_part_continues_when_its_lost_session_returns(
    port: LocalPort, stream: tuple[Publication, Subscription], missing: int
) -> None:
    """With another image, as after a long absence of the sender's daemon."""
    publication, subscription = stream
    reader = committed(subscription, timeout_s=0.0)
    begin(publication, part_of(1))
    publication.send(b"before")
    assert reader.poll()
    port.notify(
        control.ImageUnavailable(
            subscription_id=subscription.registration_id,
            correlation_id=publication.registration_id, stream_id=STREAM, reason="timeout",
        )
    )
    assert not reader.poll()
    assert [(p.reason, p.part.epoch) for p in reader.partial] == [("open", 1)]
    for _ in range(missing):
        publication.send(b"between")
    port.image_available(
        subscription.registration_id, publication.registration_id,
        position=publication.position,
    )
    publication.send(b"behind")
    commit(publication, part_of(1), [b"before", *[b"between"] * missing, b"behind"])
    parts = list(reader)
    if missing:
        assert parts == []
        assert [p.reason for p in reader.partial] == ["damaged"]
    else:
        assert [part.messages for part in parts] == [(b"before", b"behind")]


def test_rows_of_two_sessions_in_one_poll_are_told_apart(
    port: LocalPort, client: Client, stream: tuple[Publication, Subscription],
) -> None:
    one, subscription = stream
    two = another_session(port, client, subscription)
    reader = committed(subscription, timeout_s=0.0)
    for epoch, publication in enumerate((one, two)):
        begin(publication, part_of(epoch))
    assert reader.poll()
    for epoch, publication in enumerate((one, two)):
        publication.send(b"row of %d" % epoch)
    assert reader.poll()
    for epoch, publication in enumerate((one, two)):
        commit(publication, part_of(epoch), [b"row of %d" % epoch])
    assert sorted((p.epoch, p.messages) for p in reader) == [
        (0, (b"row of 0",)), (1, (b"row of 1",)),
    ]  # fmt: skip


def test_an_error_waits_for_its_turn_and_costs_no_other_part(
    stream: tuple[Publication, Subscription],
) -> None:
    publication, subscription = stream
    send(publication, part_of(1), [b"a"])
    send(publication, part_of(1, attempt=2), [b"b", b"c"])
    send(publication, part_of(2), [b"d"])
    reader = committed(subscription, timeout_s=0.0)
    assert [next(reader).epoch, next(reader).epoch] == [1, 2]
    with pytest.raises(RepeatDiffers, match="had 1"):
        next(reader)
    assert list(reader) == []
