# SPDX-License-Identifier: Apache-2.0
"""The client on the real core, with the daemon's part moved by hand."""

from __future__ import annotations

import os
import threading
from array import array
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest
from local_port import CHANNEL, MTU, STREAM, TERM_LENGTH, LocalPort, collect
from support.not_run import module

from penstock.client import Action, Client, Header, Offer, Publication, Subscription
from penstock.config.protocol import control
from penstock.core import errors


@pytest.fixture(params=["fast", "plain"], autouse=True)
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Everything holds with the per-message part in C and without."""
    chosen: str = request.param
    monkeypatch.setenv("PENSTOCK_FAST", "1" if chosen == "fast" else "0")
    return chosen


# ---- offering ------------------------------------------------------------------------------------


def test_every_kind_of_buffer_arrives_as_its_bytes(
    stream: tuple[Publication, Subscription],
) -> None:
    publication, subscription = stream
    numbers = array("i", [1, -2])
    for data in (b"bytes", bytearray(b"array"), memoryview(b"a view")[2:], numbers, b""):
        assert publication.offer(data) > 0
    assert publication.offer([b"one ", bytearray(b"two "), memoryview(b"three")]) > 0
    assert collect(subscription) == [
        b"bytes", b"array", b"view", numbers.tobytes(), b"", b"one two three",
    ]


def test_offer_refuses_text_and_holes(stream: tuple[Publication, Subscription]) -> None:
    publication, _ = stream
    with pytest.raises(TypeError, match="bytes, not str"):
        publication.offer("text")
    with pytest.raises(TypeError, match="contiguous"):
        publication.offer(memoryview(b"every second one")[::2])


def test_offer_answers_pressure_and_never_raises_for_it(port: LocalPort, client: Client) -> None:
    publication = client.add_publication(CHANNEL, STREAM)
    assert publication.offer(b"x") is Offer.NOT_CONNECTED
    port.open_up(publication.registration_id, limit=64)
    assert publication.offer(b"x") == 64
    assert publication.offer(b"x") is Offer.BACK_PRESSURED
    assert (publication.position, publication.position_limit) == (64, 64)
    assert publication.available_window == 0
    port.die()
    assert publication.offer(b"x") is Offer.DAEMON_AWAY


def test_offer_after_close_is_an_answer_and_everything_else_raises(
    stream: tuple[Publication, Subscription],
) -> None:
    publication, _ = stream
    publication.close()
    assert publication.offer(b"x") is Offer.CLOSED
    assert publication.offer_batch([b"x"]) == (0, Offer.CLOSED)
    for use in (
        lambda: publication.position,
        lambda: publication.try_claim(1),
        lambda: publication.is_connected,
        lambda: publication.send(b"x"),
        lambda: publication.add_destination("aeron:udp?endpoint=localhost:1"),
    ):
        with pytest.raises(errors.ClosedError):
            use()


def test_a_message_over_the_limit_is_refused_with_the_limit(
    stream: tuple[Publication, Subscription],
) -> None:
    publication, _ = stream
    limit = publication.max_message_length
    assert limit == TERM_LENGTH // 8
    with pytest.raises(errors.MessageTooLong, match=str(limit)):
        publication.offer(bytes(limit + 1))
    with pytest.raises(errors.MessageTooLong, match=str(limit)):
        publication.offer_batch([b"short", bytes(limit + 1)])
    with pytest.raises(errors.MessageTooLong, match=str(publication.max_payload_length)):
        publication.try_claim(publication.max_payload_length + 1)
    assert publication.position == 0


def test_long_messages_are_joined_again(stream: tuple[Publication, Subscription]) -> None:
    publication, subscription = stream
    message = bytes(range(256)) * 32
    assert len(message) > MTU
    assert publication.offer(message, reserved_value=-5) > 0
    seen: list[tuple[bytes, int, int]] = []
    for _ in range(3):
        subscription.poll(lambda m, h: seen.append((bytes(m), h.reserved_value, h.flags)))
    assert seen == [(message, -5, 0xC0)]


# ---- batches -------------------------------------------------------------------------------------


def test_a_batch_is_accepted_up_to_the_limit(port: LocalPort, client: Client) -> None:
    publication = client.add_publication(CHANNEL, STREAM)
    port.open_up(publication.registration_id, limit=3 * 64)
    subscription = client.add_subscription(CHANNEL, STREAM)
    result = publication.offer_batch([b"%d" % i for i in range(10)])
    assert result == (3, 192)
    assert publication.offer_batch([b"more"]) == (0, Offer.BACK_PRESSURED)
    assert publication.offer_batch([]) == (0, 192)
    assert collect(subscription) == [b"0", b"1", b"2"]


def test_batches_from_numpy_and_arrow(stream: tuple[Publication, Subscription]) -> None:
    np = module("numpy")
    pa = module("pyarrow")
    publication, subscription = stream
    rows = np.arange(12, dtype=np.uint8).reshape(3, 4)
    records = np.array([(1, 2.5), (3, 4.5)], dtype=[("a", "<i4"), ("b", "<f8")])
    words = [b"alpha", b"", b"gamma"]
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1, 2, 3]), pa.array(words, type=pa.large_binary())], names=["n", "payload"]
    )
    for given in (
        rows, rows[::2], records, pa.array(words), pa.array(["x", *words])[1:], batch,
        pa.array([b"ab", b"cd"], type=pa.binary(2)), pa.chunked_array([words[:1], words[1:]]),
        pa.Table.from_batches([batch, batch.slice(1)]), pa.table({"only": pa.array(words)}),
        pa.table({"payload": pa.array([], type=pa.binary())}),
    ):
        assert publication.offer_batch(given).accepted == len(rows[::2] if given is rows[::2] else
                                                              given)
    assert collect(subscription, 1000) == [
        *(row.tobytes() for row in rows), *(row.tobytes() for row in rows[::2]),
        *(record.tobytes() for record in records), *words, *words, *words, b"ab", b"cd", *words,
        *words, *words[1:], *words,
    ]


def test_batches_that_have_no_bytes_are_refused(stream: tuple[Publication, Subscription]) -> None:
    np = module("numpy")
    pa = module("pyarrow")
    publication, _ = stream
    for given in (
        b"one message", "text", [1, 2], np.zeros((2, 2)), np.zeros(3), np.array([object()]),
        pa.array([b"a", None]), pa.array([1]), 7,
        pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["a", "b"]),
        pa.table({"a": [b"x"], "b": [b"y"]}), pa.table({}), pa.table({"a": [1]}),
        pa.scalar(b"x"), pa.schema([]), pa.py_buffer(b"x"), pa.nulls(2),
        pa.array([b"x"]).dictionary_encode(), np.array(b"x"), memoryview(b"one"), {b"a": b"b"},
    ):
        with pytest.raises(errors.InvalidArgument):
            publication.offer_batch(given)
    assert publication.position == 0


def test_a_received_batch_has_columns_and_ends_at_release(
    stream: tuple[Publication, Subscription],
) -> None:
    module("numpy")
    module("pyarrow")
    publication, subscription = stream
    for index in range(4):
        publication.offer(b"m%d" % index, reserved_value=index)
    with subscription.poll_batch() as batch:
        assert [bytes(view) for view in batch] == [b"m0", b"m1", b"m2", b"m3"]
        assert batch.lengths.tolist() == [2] * 4
        assert batch.positions.tolist() == [64, 128, 192, 256]
        assert batch.reserved_values.tolist() == [0, 1, 2, 3]
        assert set(batch.session_ids.tolist()) == {publication.session_id}
        table = batch.to_arrow()
        view = batch[0]
        (image,) = subscription.images
        assert image.released_position == 0
    assert table.column("payload").to_pylist() == [b"m0", b"m1", b"m2", b"m3"]
    assert batch.positions.tolist() == [64, 128, 192, 256]
    assert image.released_position == 256
    with pytest.raises(ValueError, match="released"):
        view.tobytes()
    with pytest.raises(errors.ClosedError):
        _ = batch.payloads


def test_the_next_poll_ends_a_batch(stream: tuple[Publication, Subscription]) -> None:
    publication, subscription = stream
    publication.offer(b"first")
    publication.offer(b"second")
    batch = subscription.poll_batch(1)
    assert [bytes(view) for view in batch] == [b"first"]
    assert collect(subscription) == [b"second"]
    with pytest.raises(errors.ClosedError):
        _ = batch.payloads


@pytest.mark.parametrize("kept", ["array", "slice"])
@pytest.mark.parametrize("call", ["release", "block", "poll", "wait", "image"])
def test_a_view_that_outlives_its_batch_is_an_error_and_nothing_is_released(
    stream: tuple[Publication, Subscription], call: str, kept: str,
) -> None:
    numpy = module("numpy")
    publication, subscription = stream
    for text in (b"first", b"second"):
        publication.offer(text)
    batch = subscription.poll_batch(2)
    array = numpy.frombuffer(batch[1], "u1") if kept == "array" else batch[1][:]
    (image,) = subscription.images
    calls = {
        "release": batch.release, "block": lambda: batch.__exit__(None, None, None),
        "poll": lambda: subscription.poll(lambda _m, _h: None),
        "wait": lambda: subscription.wait(0.0), "image": lambda: image.poll(lambda _m, _h: None),
    }
    with pytest.raises(BufferError, match=r"batch's 2 messages still exists .* recv_batch"):
        calls[call]()
    assert image.released_position == 0
    assert array.tobytes() == b"second"
    assert [bytes(view) for view in batch] == [b"first", b"second"]
    del array
    calls[call]()
    assert image.released_position == 128


def test_an_exception_in_the_block_of_a_batch_is_not_replaced(
    stream: tuple[Publication, Subscription],
) -> None:
    numpy = module("numpy")
    publication, subscription = stream
    publication.offer(b"first")
    kept = []

    def fail() -> None:
        with subscription.poll_batch() as batch:
            kept.append(numpy.frombuffer(batch[0], "u1"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert subscription.images[0].released_position == 64


# ---- claims --------------------------------------------------------------------------------------


def test_a_claim_commits_at_the_end_and_aborts_on_an_exception(
    stream: tuple[Publication, Subscription],
) -> None:
    publication, subscription = stream
    with publication.try_claim(5) as claim:
        buffer = claim.buffer
        buffer[:] = b"hello"
        claim.reserved_value = 9
    with pytest.raises(ValueError, match="released"):
        buffer[0] = 0
    with suppress(RuntimeError), publication.try_claim(5) as aborted:
        aborted.buffer[:] = b"never"
        raise RuntimeError
    publication.offer(b"after")
    assert collect(subscription) == [b"hello", b"after"]
    with pytest.raises(errors.ClosedError):
        claim.commit()


def test_a_refused_claim_is_false_and_with_raises(port: LocalPort, client: Client) -> None:
    publication = client.add_publication(CHANNEL, STREAM)
    claim = publication.try_claim(8)
    assert not claim
    assert claim.code is Offer.NOT_CONNECTED
    with pytest.raises(errors.ClaimRefused, match="NOT_CONNECTED"), claim:
        pytest.fail("the block must not run")


def test_a_claimed_array_that_outlives_the_block_is_harmless(
    stream: tuple[Publication, Subscription],
) -> None:
    np = module("numpy")
    publication, subscription = stream
    with publication.try_claim(4) as claim:
        kept = np.frombuffer(claim.buffer, dtype=np.uint8)
        kept[:] = 7
    assert collect(subscription) == [b"\x07" * 4]
    publication.close()
    assert kept.tolist() == [7, 7, 7, 7]  # still mapped


# ---- polling -------------------------------------------------------------------------------------


def test_the_header_says_where_a_message_came_from(
    stream: tuple[Publication, Subscription],
) -> None:
    publication, subscription = stream
    position = publication.offer(b"abc", reserved_value=42)
    facts: list[object] = []

    def handler(message: memoryview, header: Header) -> None:
        facts.extend(
            [
                header.position, header.start_position, header.session_id, header.stream_id,
                header.term_offset, header.reserved_value, header.length, message.readonly,
                header.image.source_identity,
            ]
        )

    assert subscription.poll(handler) == 1
    assert facts == [
        position, 0, publication.session_id, STREAM, 0, 42, 3, True, "aeron:ipc",
    ]


def test_views_end_when_the_handler_returns(stream: tuple[Publication, Subscription]) -> None:
    publication, subscription = stream
    publication.offer(b"abc")
    kept: list[memoryview] = []
    subscription.poll(lambda message, _header: kept.append(message))
    with pytest.raises(ValueError, match="released"):
        kept[0].tobytes()


def test_a_raising_handler_sees_that_message_again(
    stream: tuple[Publication, Subscription],
) -> None:
    publication, subscription = stream
    for index in range(5):
        publication.offer(b"%d" % index)
    seen: list[bytes] = []

    def handler(message: memoryview, _header: Header) -> None:
        if bytes(message) == b"2" and b"failed" not in seen:
            seen.append(b"failed")
            raise RuntimeError("not now")
        seen.append(bytes(message))

    with pytest.raises(RuntimeError, match="not now"):
        subscription.poll(handler)
    assert subscription.images[0].released_position == 2 * 64
    assert subscription.poll(handler) == 3
    assert seen == [b"0", b"1", b"failed", b"2", b"3", b"4"]


def test_a_raising_handler_sees_a_long_message_again(
    stream: tuple[Publication, Subscription],
) -> None:
    publication, subscription = stream
    long = os.urandom(5000)
    publication.offer(b"first")
    publication.offer(long)
    publication.offer(b"last")
    seen: list[bytes] = []
    raised = 0

    def handler(message: memoryview, _header: Header) -> None:
        nonlocal raised
        if len(message) == len(long) and raised < 2:
            raised += 1
            raise RuntimeError
        seen.append(bytes(message))

    for _ in range(8):
        try:
            subscription.poll(handler)
        except RuntimeError:
            continue
    assert raised == 2
    assert seen == [b"first", long, b"last"]


def test_controlled_poll_follows_the_action(stream: tuple[Publication, Subscription]) -> None:
    publication, subscription = stream
    for index in range(6):
        publication.offer(b"%d" % index)
    image = subscription.images[0]
    script = {
        b"0": Action.CONTINUE, b"1": Action.COMMIT, b"2": Action.BREAK,
        b"3": Action.ABORT, b"4": Action.CONTINUE, b"5": Action.CONTINUE,
    }
    seen: list[tuple[bytes, int]] = []

    def handler(message: memoryview, _header: Header) -> Action:
        seen.append((bytes(message), image.released_position))
        return script[bytes(message)]

    assert subscription.controlled_poll(handler) == 3
    assert seen == [(b"0", 0), (b"1", 0), (b"2", 128)]
    assert subscription.controlled_poll(handler) == 0
    script[b"3"] = Action.CONTINUE
    assert subscription.controlled_poll(handler, limit=2) == 2
    assert subscription.controlled_poll(handler) == 1
    assert [message for message, _ in seen] == [b"0", b"1", b"2", b"3", b"3", b"4", b"5"]


def test_a_controlled_handler_must_return_an_action(
    stream: tuple[Publication, Subscription],
) -> None:
    publication, subscription = stream
    publication.offer(b"x")
    with pytest.raises(errors.InvalidArgument, match="Action"):
        subscription.controlled_poll(lambda _m, _h: None)  # type: ignore[arg-type,return-value]
    assert collect(subscription) == [b"x"]


def test_an_image_polls_by_itself(port: LocalPort, client: Client) -> None:
    publications = [client.add_exclusive_publication(CHANNEL, STREAM) for _ in range(2)]
    for index, publication in enumerate(publications):
        port.open_up(publication.registration_id)
        publication.offer(b"of %d" % index)
    subscription = client.add_subscription(CHANNEL, STREAM)
    second = subscription.images[1]
    sessions: list[int] = []
    assert second.poll(lambda _m, h: sessions.append(h.image.session_id)) == 1
    assert sessions == [publications[1].session_id]
    assert collect(subscription) == [b"of 0"]


def test_a_handler_must_not_poll_again(stream: tuple[Publication, Subscription]) -> None:
    publication, subscription = stream
    publication.offer(b"x")
    with pytest.raises(errors.PenstockError, match="must not poll"):
        subscription.poll(lambda _m, _h: subscription.poll(lambda _m2, _h2: None))
    assert collect(subscription) == [b"x"]


def test_a_poll_beside_a_poll_names_the_thread_that_polls(
    stream: tuple[Publication, Subscription],
) -> None:
    publication, subscription = stream
    publication.offer(b"x")
    inside, done = threading.Event(), threading.Event()

    def handler(_message: memoryview, _header: Header) -> None:
        inside.set()
        done.wait()

    first = threading.Thread(target=subscription.poll, args=(handler,), name="the first reader")
    first.start()
    inside.wait()
    try:
        for attempt in (
            lambda: subscription.poll(lambda _m, _h: None),
            lambda: subscription.controlled_poll(lambda _m, _h: Action.CONTINUE),
            subscription.poll_batch,
            lambda: subscription.wait(0.1),
        ):
            with pytest.raises(errors.PenstockError, match="polled by thread 'the first reader'"):
                attempt()
    finally:
        done.set()
        first.join()
    assert collect(subscription) == []


def test_arguments_of_a_wrong_type_are_named(client: Client) -> None:
    wrong: list[tuple[Callable[..., object], tuple[object, ...], str]] = [
        (client.add_publication, (STREAM, CHANNEL), "a channel is text.*comes before the stream"),
        (client.add_exclusive_publication, (STREAM, CHANNEL), "a channel is text"),
        (client.add_subscription, (STREAM, CHANNEL), "a channel is text"),
        (client.add_subscription, (CHANNEL, "1001"), "a stream id is a whole number.*'1001'.*str"),
        (client.add_subscription, (CHANNEL, 1.5), "a stream id is a whole number"),
        (client.add_publication, (b"aeron:ipc", 1), "a channel is text"),
        (client.add_publication, (None, 1), "a channel is text"),
        (client.add_publication, (CHANNEL, 2**31), "a stream id has 32 bits"),
        (client.add_counter, (7,), "a counter's label is text"),
        (partial(client.add_counter, "label", key="text"), (), "its key is bytes"),
        (partial(client.add_counter, "label", type_id="x"), (), "type id is a whole number"),
    ]
    for call, arguments, words in wrong:
        with pytest.raises(errors.InvalidArgument, match=words):
            call(*arguments)


def test_a_handler_may_close_the_subscription(stream: tuple[Publication, Subscription]) -> None:
    publication, subscription = stream
    publication.offer(b"a")
    publication.offer(b"b")
    assert subscription.poll(lambda _m, _h: subscription.close()) == 1
    with pytest.raises(errors.ClosedError):
        subscription.poll(lambda _m, _h: None)


def test_limits_are_checked(stream: tuple[Publication, Subscription]) -> None:
    _, subscription = stream
    for limit in (0, -1, 2**21):
        with pytest.raises(errors.InvalidArgument, match="limit"):
            subscription.poll(lambda _m, _h: None, limit)


def test_terms_rotate_under_the_poll(stream: tuple[Publication, Subscription]) -> None:
    publication, subscription = stream
    sent: list[bytes] = []
    received: list[bytes] = []
    while publication.position < 3 * TERM_LENGTH - 8192:  # nobody cleans terms here
        message = os.urandom(1 + len(sent) * 37 % 4000)
        position = publication.offer(message)
        if position > 0:
            sent.append(message)
        else:
            assert position is Offer.ADMIN_ACTION or position is Offer.STORAGE, position
        subscription.poll(lambda m, _h: received.append(bytes(m)))
    while subscription.poll(lambda m, _h: received.append(bytes(m))):
        pass
    assert received == sent


# ---- images --------------------------------------------------------------------------------------


def test_image_callbacks_run_on_the_polling_thread(port: LocalPort, client: Client) -> None:
    publication = client.add_publication(CHANNEL, STREAM)
    port.open_up(publication.registration_id)
    heard: list[tuple[str, int, int]] = []
    subscription = client.add_subscription(
        CHANNEL,
        STREAM,
        on_available=lambda i: heard.append(("+", i.session_id, threading.get_ident())),
        on_unavailable=lambda i: heard.append(("-", i.position, threading.get_ident())),
    )
    assert heard == []
    publication.offer(b"x")
    assert collect(subscription) == [b"x"]
    port.notify(
        control.ImageUnavailable(
            subscription_id=subscription.registration_id,
            correlation_id=publication.registration_id, stream_id=STREAM, reason="end_of_stream",
        )
    )
    image = subscription._images[0]
    assert subscription.wait(0) is False
    here = threading.get_ident()
    assert heard == [("+", publication.session_id, here), ("-", 64, here)]
    assert image.is_closed
    assert not subscription.is_connected
    with pytest.raises(errors.ClosedError):
        _ = image.position
