# SPDX-License-Identifier: Apache-2.0
"""Receiving in loops: who owns the bytes, and what break, an exception and the end do."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from local_port import END_OF_STREAM_OFFSET, LocalPort, collect
from support.not_run import module

from penstock.client import Action, Client, Header, Message, Publication, Subscription
from penstock.core import errors

Stream = tuple[Publication, Subscription]
FRAME = 64      # of one short message in the log


@pytest.fixture(params=["fast", "plain"], autouse=True)
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Everything holds with the per-message part in C and without."""
    chosen: str = request.param
    monkeypatch.setenv("PENSTOCK_FAST", "1" if chosen == "fast" else "0")
    return chosen


def _publish(publication: Publication, count: int) -> list[bytes]:
    sent = [b"%d" % number for number in range(count)]
    for number, message in enumerate(sent):
        assert publication.offer(message, reserved_value=number) > 0
    return sent


def _released(subscription: Subscription) -> int:
    return subscription.images[0].released_position


def test_messages_own_their_bytes_and_know_their_place(stream: Stream) -> None:
    publication, subscription = stream
    sent = _publish(publication, 3)
    kept = list(itertools.islice(subscription, 3))
    subscription.close()
    assert kept == sent
    assert [type(message) for message in kept] == [Message] * 3
    assert [message.position for message in kept] == [FRAME, 2 * FRAME, 3 * FRAME]
    assert [message.start_position for message in kept] == [0, FRAME, 2 * FRAME]
    assert [message.reserved_value for message in kept] == [0, 1, 2]
    assert {(m.session_id, m.stream_id) for m in kept} == {
        (publication.session_id, publication.stream_id)
    }


def test_a_message_is_released_at_the_next_step(stream: Stream) -> None:
    publication, subscription = stream
    _publish(publication, 3)
    released = []
    for message in subscription:
        released.append(_released(subscription))
        if message == b"2":
            break
    assert released == [0, FRAME, 2 * FRAME]
    assert _released(subscription) == 3 * FRAME      # break


def test_return_and_a_closed_generator_release_as_break_does(stream: Stream) -> None:
    publication, subscription = stream
    _publish(publication, 3)

    def first() -> bytes:
        for message in subscription:
            return message
        raise AssertionError

    def through() -> Iterator[bytes]:
        yield from subscription

    assert first() == b"0"
    assert _released(subscription) == FRAME
    generator = through()
    assert next(generator) == b"1"
    generator.close()   # type: ignore[attr-defined]
    assert _released(subscription) == 2 * FRAME
    assert collect(subscription) == [b"2"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_message_whose_body_raised_is_delivered_again(
    stream: Stream, error: type[BaseException]
) -> None:
    publication, subscription = stream
    _publish(publication, 3)

    def fail_at(text: bytes) -> None:
        for message in subscription:
            if message == text:
                raise error

    with pytest.raises(error):
        fail_at(b"1")
    assert _released(subscription) == FRAME
    assert collect(subscription) == [b"1", b"2"]


def test_an_exception_that_the_body_handles_changes_nothing(stream: Stream) -> None:
    publication, subscription = stream
    _publish(publication, 3)
    seen = []
    for message in subscription:
        try:
            raise ValueError(message)
        except ValueError:
            seen.append(message)
        if len(seen) == 3:
            break
    assert seen == [b"0", b"1", b"2"]
    assert _released(subscription) == 3 * FRAME


def test_two_loops_at_once_take_turns(stream: Stream) -> None:
    publication, subscription = stream
    _publish(publication, 4)
    one, other = iter(subscription), iter(subscription)
    assert [next(one), next(other), next(one)] == [b"0", b"1", b"2"]
    del other
    assert _released(subscription) == 2 * FRAME      # one still holds its message
    del one
    assert _released(subscription) == 3 * FRAME


def test_other_calls_release_what_a_loop_holds(stream: Stream) -> None:
    publication, subscription = stream
    _publish(publication, 2)
    for message in subscription:
        assert message == b"0"
        assert collect(subscription) == [b"1"]
        assert _released(subscription) == 2 * FRAME
        break
    assert _released(subscription) == 2 * FRAME


def test_a_loop_ends_with_its_subscription(stream: Stream) -> None:
    publication, subscription = stream
    _publish(publication, 2)
    seen = []
    for message in subscription:
        seen.append(message)
        subscription.close()
    assert seen == [b"0"]
    with pytest.raises(errors.ClosedError):
        iter(subscription)


def test_a_wait_for_a_message_has_an_end(stream: Stream) -> None:
    publication, subscription = stream
    _publish(publication, 1)
    loop = subscription.messages(timeout_s=0.001)
    assert next(loop) == b"0"
    with pytest.raises(errors.TimeoutExpired, match=r"no message on .*: 1 publisher"):
        next(loop)
    with pytest.raises(errors.TimeoutExpired):
        subscription.recv(0.001)
    with pytest.raises(errors.TimeoutExpired):
        subscription.recv_batch(timeout_s=0.001)


def test_until_end_stops_behind_the_last_message(port: LocalPort, stream: Stream) -> None:
    publication, subscription = stream
    _publish(publication, 3)
    port._write_meta(
        publication.registration_id, END_OF_STREAM_OFFSET,
        publication.position.to_bytes(8, "little"),
    )
    assert list(subscription.messages(5.0, until_end=True)) == [b"0", b"1", b"2"]
    assert list(subscription.batches(timeout_s=5.0, until_end=True)) == []


def test_until_end_waits_for_the_first_publisher(client: Client) -> None:
    subscription = client.add_subscription("aeron:ipc", 77)
    with pytest.raises(errors.TimeoutExpired, match="no publishers are connected"):
        list(subscription.messages(0.001, until_end=True))


def test_waiting_ends_with_the_daemon(port: LocalPort, stream: Stream) -> None:
    publication, subscription = stream
    _publish(publication, 1)
    port.die()
    with pytest.raises(errors.DaemonGone):
        list(subscription)


def test_recv_returns_one_message_and_releases_it(stream: Stream) -> None:
    publication, subscription = stream
    _publish(publication, 2)
    message = subscription.recv()
    assert (message, message.position) == (b"0", FRAME)
    assert _released(subscription) == FRAME


# ---- batches -------------------------------------------------------------------------------------


def test_batches_own_their_bytes(stream: Stream) -> None:
    np, pa = module("numpy"), module("pyarrow")
    publication, subscription = stream
    sent = _publish(publication, 5)
    batch = subscription.recv_batch()
    view = batch[0]
    array = np.frombuffer(batch[4], np.uint8)
    assert _released(subscription) == 5 * FRAME
    subscription.close()
    assert [bytes(payload) for payload in batch] == sent
    assert (bytes(view), array.tobytes()) == (b"0", b"4")
    data, offsets = batch.to_numpy()
    assert (data.tobytes(), offsets.tolist()) == (b"01234", [0, 1, 2, 3, 4, 5])
    table = batch.to_arrow()
    assert table.column("payload").to_pylist() == sent
    assert table.column("reserved_value").to_pylist() == [0, 1, 2, 3, 4]
    assert table.column("payload").type == pa.large_binary()


def test_a_batch_whose_body_raised_is_delivered_again(stream: Stream) -> None:
    publication, subscription = stream
    sent = _publish(publication, 6)

    def fail() -> None:
        for number, _batch in enumerate(subscription.batches(2)):
            if number == 1:
                raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert _released(subscription) == 2 * FRAME
    again = []
    for batch in subscription.batches(2):
        again += [bytes(payload) for payload in batch]
        if len(again) == 4:
            break
    assert again == sent[2:]
    assert _released(subscription) == 6 * FRAME


# ---- views of poll -------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [40, 3000], ids=["in place", "assembled"])
@pytest.mark.parametrize("keep", ["slice", "array"])
@pytest.mark.parametrize("call", ["poll", "controlled_poll", "checked"])
def test_a_view_that_outlives_its_handler_is_an_error(
    stream: Stream, size: int, keep: str, call: str
) -> None:
    np = module("numpy")
    publication, subscription = stream
    assert publication.offer(bytes(size)) > 0
    kept: list[Any] = []

    def handler(message: memoryview, header: Header) -> Action:
        kept.append(message[1:] if keep == "slice" else np.frombuffer(message, np.uint8))
        return Action.CONTINUE

    polls: dict[str, Callable[[], int]] = {
        "poll": lambda: subscription.poll(handler),
        "controlled_poll": lambda: subscription.controlled_poll(handler),
        "checked": lambda: subscription.poll(handler, checked=True),
    }
    with pytest.raises(BufferError, match=r"bytes\(message\)"):
        polls[call]()
    assert [len(message) for message in collect(subscription)] == [size]     # delivered again


def test_a_view_itself_is_released_and_a_copy_is_nobodys_business(stream: Stream) -> None:
    np = module("numpy")
    publication, subscription = stream
    _publish(publication, 2)
    kept: list[Any] = []
    assert subscription.poll(lambda view, _header: kept.append(view), 1) == 1
    with pytest.raises(ValueError, match="released"):
        kept[0][0]
    assert subscription.poll(
        lambda view, _header: kept.append(np.frombuffer(view, np.uint8).copy())
    ) == 1
    assert kept[1].tobytes() == b"1"


_LATE = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
from local_port import CHANNEL, STREAM, LocalPort
port = LocalPort()
client = port.client()
publication = client.add_publication(CHANNEL, STREAM)
port.open_up(publication.registration_id)
subscription = client.add_subscription(CHANNEL, STREAM)
publication.offer(b"text")
addresses = []
def handler(message, header):
    import numpy
    assert bytes(message) == b"text"
    addresses.append(numpy.frombuffer(message, numpy.uint8).ctypes.data)
assert subscription.poll(handler, checked=True) == 1
print("handled", flush=True)
ctypes.string_at(addresses[0], 4)
"""


def test_a_checked_poll_makes_late_access_fault() -> None:
    module("numpy")
    ended = subprocess.run(
        [sys.executable, "-c", _LATE, str(Path(__file__).parents[1])],
        capture_output=True,
        text=True,
    )
    assert (ended.stdout, ended.returncode) == ("handled\n", -11), ended.stderr


def test_a_close_by_another_thread_ends_a_wait_as_closed(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may come between the look for images and the look for data."""
    _publication, subscription = stream
    refresh = subscription._refresh

    def closed_meanwhile() -> None:
        refresh()
        subscription.close()

    monkeypatch.setattr(subscription, "_refresh", closed_meanwhile)
    with pytest.raises(errors.ClosedError):
        subscription.wait(1.0)
    with pytest.raises(errors.ClosedError):
        subscription.wait(1.0)
