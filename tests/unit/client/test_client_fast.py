# SPDX-License-Identifier: Apache-2.0
"""The per-message part in C: what it must survive, and that it keeps the interpreter's lock."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from local_port import STREAM, TERM_LENGTH, LocalPort
from support.not_run import module

from penstock.client import Header, Offer, Publication, Subscription
from penstock.core import errors, fast


def test_clients_use_it_unless_told_not_to(
    port: LocalPort, stream: tuple[Publication, Subscription], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(stream[0], fast.Offerer)
    assert isinstance(stream[1], fast.Poller)
    monkeypatch.setenv("PENSTOCK_FAST", "0")
    with port.client() as plain:
        assert not isinstance(plain.add_publication("aeron:ipc", STREAM), fast.Offerer)


def test_a_kept_view_is_ended_and_the_memory_of_an_array_stays_mapped(
    port: LocalPort,
) -> None:
    np = module("numpy")
    kept: list[Any] = []
    with port.client() as client:
        publication = client.add_publication("aeron:ipc", STREAM)
        port.open_up(publication.registration_id)
        subscription = client.add_subscription("aeron:ipc", STREAM)
        publication.offer(b"first")
        publication.offer(b"other")
        subscription.poll(lambda view, _header: kept.append(view), 1)
        with pytest.raises(BufferError):
            subscription.poll(lambda view, _header: kept.append(np.frombuffer(view, np.uint8)), 1)
    del client, publication, subscription
    gc.collect()
    with pytest.raises(ValueError, match="released"):
        kept[0][0]
    assert kept[1].tobytes() == b"other"
    assert not kept[1].flags.writeable


def test_what_a_view_was_made_from_is_the_log_and_read_only(
    stream: tuple[Publication, Subscription],
) -> None:
    publication, subscription = stream
    publication.offer(b"x")
    logs: list[Any] = []

    def take(view: memoryview, _header: Header) -> None:
        assert view.readonly
        logs.append(view.obj)

    subscription.poll(take)
    subscription.close()
    with memoryview(logs[0]) as whole:
        assert whole.readonly
        assert len(whole) > 3 * TERM_LENGTH
        assert whole[32:33] == b"x"


def test_a_kept_header_keeps_its_values(stream: tuple[Publication, Subscription]) -> None:
    publication, subscription = stream
    publication.offer(b"x", reserved_value=-(2**63))
    kept: list[Header] = []
    subscription.poll(lambda _view, header: kept.append(header))
    image = kept[0].image
    subscription.close()
    assert image.is_closed
    assert (kept[0].position, kept[0].reserved_value, kept[0].length) == (64, -(2**63), 1)
    assert (kept[0].stream_id, kept[0].term_offset, kept[0].flags) == (STREAM, 0, 0xC0)
    assert "position=64" in repr(kept[0])


def test_calls_are_checked_like_those_of_python(
    stream: tuple[Publication, Subscription],
) -> None:
    publication, subscription = stream
    loose: Any = publication.offer
    for arguments, names, text in (
        ((), {}, "missing"),
        ((b"a", 1), {}, "positional"),
        ((b"a",), {"reserve": 1}, "unexpected"),
        ((b"a",), {"data": b"b"}, "multiple"),
        ((b"a",), {"reserved_value": "1"}, "integer"),
    ):
        with pytest.raises(TypeError, match=text):
            loose(*arguments, **names)
    with pytest.raises(OverflowError):
        loose(b"a", reserved_value=2**63)
    assert publication.position == 0
    assert loose(data=b"a", reserved_value=2) > 0
    assert subscription.poll(handler=lambda _m, _h: None, limit=3) == 1
    with pytest.raises(TypeError):
        subscription.poll(lambda: None, "3")  # type: ignore[arg-type]


class _Slot(ctypes.Structure):
    _fields_ = (("slot", ctypes.c_int), ("function", ctypes.c_void_p))


class _Spec(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("basic_size", ctypes.c_int), ("item_size", ctypes.c_int),
        ("flags", ctypes.c_uint), ("slots", ctypes.POINTER(_Slot)),
    )


def exporter(requested: Callable[[], object]) -> tuple[Any, list[object]]:
    """A buffer of one byte that calls Python when it is requested, as a C type may; and what has to
    live as long."""
    content = ctypes.create_string_buffer(b"y")
    api = ctypes.pythonapi

    @ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p, ctypes.c_int)
    def export(owner: object, view: int, flags: int) -> int:
        requested()
        fill = api.PyBuffer_FillInfo
        return int(fill(ctypes.c_void_p(view), ctypes.py_object(owner), content, 1, 1, flags))

    get_buffer = 1                      # Py_bf_getbuffer
    slots = (_Slot * 2)(_Slot(get_buffer, ctypes.cast(export, ctypes.c_void_p)), _Slot(0, None))
    spec = _Spec(b"test.Exporter", object.__basicsize__, 0, 0, slots)
    api.PyType_FromSpec.restype = ctypes.py_object
    return api.PyType_FromSpec(ctypes.byref(spec))(), [content, export, slots, spec]


def test_a_buffer_whose_export_closes_the_publication_is_refused(
    stream: tuple[Publication, Subscription],
) -> None:
    publication, subscription = stream
    good, keep = exporter(lambda: None)
    assert publication.offer(good) > 0
    evil, more = exporter(publication.close)
    assert publication.offer(evil) == Offer.CLOSED
    assert publication.is_closed
    received: list[bytes] = []
    subscription.poll(lambda view, _header: received.append(bytes(view)))
    assert received == [b"y"]
    del keep, more


def test_an_offer_to_a_closed_publication_is_refused(
    stream: tuple[Publication, Subscription],
) -> None:
    publication, _ = stream
    publication.offer(b"x")
    publication.close()
    assert publication.offer(bytearray(b"y")) == Offer.CLOSED


def test_lists_of_bytes_and_of_other_buffers_are_batches(
    stream: tuple[Publication, Subscription],
) -> None:
    publication, subscription = stream
    assert publication.offer_batch([b"one", b"", b"three"]).accepted == 3
    assert publication.offer_batch((b"four", bytearray(b"five"), memoryview(b"six"))).accepted == 3
    received: list[bytes] = []
    subscription.poll(lambda view, _header: received.append(bytes(view)))
    assert received == [b"one", b"", b"three", b"four", b"five", b"six"]
    with pytest.raises(errors.InvalidArgument):
        publication.offer_batch(["text"])


def test_batches_become_numpy_arrays_in_one_copy(
    stream: tuple[Publication, Subscription],
) -> None:
    np = module("numpy")
    publication, subscription = stream
    long = bytes(range(256)) * 16
    publication.offer_batch([b"abcd", b"efgh"])
    publication.offer(long)
    with subscription.poll_batch() as batch:
        data, offsets = batch.to_numpy()
        assert batch.payload_bytes == len(data) == 8 + len(long)
    assert offsets.tolist() == [0, 4, 8, 8 + len(long)]
    assert data.tobytes() == b"abcdefgh" + long
    assert data[:8].reshape(-1, 4).shape == (2, 4)
    assert data.dtype == np.uint8
    with pytest.raises(errors.ClosedError):
        batch.to_numpy()


def test_columns_of_a_batch_survive_the_polls_after_it(
    stream: tuple[Publication, Subscription],
) -> None:
    module("numpy")
    publication, subscription = stream
    batches = []
    for number in range(5):
        publication.offer(b"x", reserved_value=number)
        batches.append(subscription.poll_batch(8))
    assert [batch.reserved_values.tolist() for batch in batches] == [[0], [1], [2], [3], [4]]


def test_a_poll_of_the_subscription_ends_the_batch_of_its_image(
    stream: tuple[Publication, Subscription],
) -> None:
    publication, subscription = stream
    long = bytes(5000)
    publication.offer(long)
    (image,) = subscription.images
    batch = image.poll_batch()
    assert batch.payloads[0] == long
    publication.offer(bytes(8000))
    subscription.poll(lambda _view, _header: None)
    with pytest.raises(errors.ClosedError):
        batch.to_arrow()


def test_offers_and_polls_keep_the_interpreters_lock(
    stream: tuple[Publication, Subscription],
) -> None:
    publication, subscription = stream
    assert subscription.is_connected  # set-up does give the lock up
    ready, ran = threading.Event(), []
    other = threading.Thread(target=lambda: (ready.wait(), ran.append(True)))
    other.start()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        ready.set()
        until = time.perf_counter() + 0.05
        while time.perf_counter() < until:
            pass  # by now the other thread waits for the lock
        for _ in range(100):
            publication.offer(b"x")
            publication.offer_batch([b"y"])
        subscription.poll(lambda _view, _header: None, 50)
        subscription.poll_batch(50).release()
        kept = not ran
    finally:
        sys.setswitchinterval(interval)
        other.join()
    assert kept
