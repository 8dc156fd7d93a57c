# SPDX-License-Identifier: Apache-2.0
"""Makes docs/capture.md: two short sessions with the real Aeron driver, frame by frame.

    PYTHONPATH=tests python -m interop.capture docs/capture.md

A relay stands between publisher and receiver, writes down each datagram, and loses one on purpose,
so that the repair is seen.  Needs Java, Maven and an installed penstock.
"""

from __future__ import annotations

import contextlib
import select
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs
from support.hosts import PenstockHost, memory_directory, penstock_host
from support.patience import Patience

from interop import aeron, frames

_LOST_DATA: Final = 2  # the number of the datagram with data that the relay loses
_SIZES: Final = "5-1000"
_COUNT: Final = 8
_QUIET_S: Final = 1.0
_PATIENCE_S: Final = 20.0
_SAME: Final = 3  # of like frames, so many are shown
_PAUSE_AT: Final = 6  # messages, then silence until heartbeats were seen

_WHY: Final = {
    "SETUP": "the publisher announces the stream until a receiver answers",
    "SM": "the receiver states its position and window",
    "SM, requests SETUP": "the receiver hears data of a stream whose SETUP it missed",
    "SM, end of stream": "the receiver has read everything",
    "DATA": "a message",
    "DATA, first fragment": "a message longer than the MTU begins",
    "DATA, last fragment": "and ends",
    "PAD": "fills the rest of a term",
    "heartbeat": "the publisher has sent everything up to here: shows a loss at the tail",
    "heartbeat, end of stream": "the publication was closed and has drained",
    "NAK": "the receiver requests a missing range",
    "RTTM, request": "the receiver measures the round trip",
    "RTTM, reply": "the publisher answers with the same time stamp",
}


@attrs.frozen(kw_only=True)
class Seen:
    """A datagram at the relay."""

    at_s: float
    to_receiver: bool
    lost: bool
    data: bytes


class Relay:
    """Passes datagrams on between a publisher and a receiver, writing them down."""

    def __init__(self, receiver_port: int) -> None:
        self.seen: list[Seen] = []
        self._front = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._front.bind(("127.0.0.1", 0))
        self._back = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._back.bind(("127.0.0.1", 0))
        self._receiver = ("127.0.0.1", receiver_port)
        self._publisher: tuple[str, int] | None = None
        self._stop_read, self._stop_write = socket.socketpair()
        self._data_frames = 0
        self._start = time.monotonic()
        self._thread = threading.Thread(target=self._run)

    @property
    def port(self) -> int:
        """Where the publisher sends to."""
        return int(self._front.getsockname()[1])

    def __enter__(self) -> Relay:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop_write.send(b"x")
        self._thread.join()
        for each in (self._front, self._back, self._stop_read, self._stop_write):
            each.close()

    def wait_for(self, count: int, what: str) -> None:
        """Until so many more such frames have passed."""
        first = len(self.seen)
        patience = Patience(_PATIENCE_S)
        while not patience.is_over:
            passed = [frames.decode(each.data)[0].what for each in self.seen[first:]]
            if passed.count(what) >= count:
                return
            time.sleep(0.01)
        raise AssertionError(f"the relay saw no {count} frames {what!r}")

    def _run(self) -> None:
        while True:
            ready, _, _ = select.select([self._front, self._back, self._stop_read], [], [])
            if self._stop_read in ready:
                return
            for source in ready:
                self._pass_on(source)

    def _pass_on(self, source: socket.socket) -> None:
        data, sender = source.recvfrom(65536)
        to_receiver = source is self._front
        lost = False
        if to_receiver:
            self._publisher = sender
            first = frames.decode(data)[0]
            if first.type == frames.DATA and first.length > 0:
                self._data_frames += 1
                lost = self._data_frames == _LOST_DATA
        at_s = time.monotonic() - self._start
        self.seen.append(Seen(at_s=at_s, to_receiver=to_receiver, lost=lost, data=data))
        if to_receiver and not lost:
            self._back.sendto(data, self._receiver)
        elif not to_receiver and self._publisher is not None:
            self._front.sendto(data, self._publisher)


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def session(
    sender: aeron.AeronHost | PenstockHost, receiver: aeron.AeronHost | PenstockHost
) -> list[Seen]:
    """One stream through the relay, from the first SETUP to the receiver's last word."""
    port = _free_port()
    with Relay(port) as relay:
        received = [f"--channel=aeron:udp?endpoint=127.0.0.1:{port}", f"--count={_COUNT + 1}"]
        published = [
            f"--channel=aeron:udp?endpoint=127.0.0.1:{relay.port}|term-length=64k",
            f"--count={_COUNT}", f"--sizes={_SIZES}", "--seed=9", f"--pause-at={_PAUSE_AT}",
        ]  # fmt: skip
        with receiver.sub(*received, f"--mark={_COUNT}") as sub:
            sub.wait("added")
            with sender.pub(*published) as pub:
                pub.wait("paused")
                relay.wait_for(2, "heartbeat")
                pub.say()
                pub.wait("done")
                sub.wait("mark")
                pub.finish()
            sub.wait("image-lost")
            _quiet(relay)
        return list(relay.seen)


def _quiet(relay: Relay) -> None:
    before = -1
    while len(relay.seen) != before:
        before = len(relay.seen)
        time.sleep(_QUIET_S)


def _rows(seen: list[Seen], receiver: str, sender: str) -> Iterator[str]:
    start_s = seen[0].at_s
    sent: set[tuple[int, int]] = set()
    times: Counter[str] = Counter()
    cut = False
    for number, each in enumerate(seen, start=1):
        for frame in frames.decode(each.data):
            why = _WHY.get(frame.what, "")
            if frame.type == frames.DATA and frame.length:
                place = (frame.term_id, frame.term_offset)
                if place in sent:
                    why = "**retransmitted** after the NAK"
                sent.add(place)
            if each.lost:
                why += "; **lost by the relay**"
            kind = f"{each.to_receiver} {frame.what} {frame.facts}"
            times[kind] += 1
            if times[kind] > _SAME:
                if not cut:
                    yield "| … | | | | the same again | | |"
                cut = True
                continue
            cut = False
            way = f"{sender} → {receiver}" if each.to_receiver else f"{receiver} → {sender}"
            at_ms = f"{(each.at_s - start_s) * 1000:.1f}"
            cells = (number, at_ms, way, frame.what, frame.facts, len(each.data), why)
            yield f"| {' | '.join(map(str, cells))} |"


def _section(title: str, seen: list[Seen], sender: str, receiver: str) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    yield "| # | ms | way | frame | fields | bytes | why |"
    yield "|--:|--:|---|---|---|--:|---|"
    yield from _rows(seen, receiver, sender)
    yield ""
    for wanted in (frames.SETUP, frames.SM, frames.NAK):
        for number, each in enumerate(seen, start=1):
            if frames.decode(each.data)[0].type == wanted:
                yield f"Datagram {number}, {frames.NAMES[wanted]}:"
                yield ""
                yield from _dump(each.data)
                yield ""
                break


def _dump(data: bytes) -> Iterator[str]:
    for offset in range(0, len(data), 16):
        yield f"    {offset:04x}  {data[offset:offset + 16].hex(' ')}"


def document() -> str:
    """The whole page."""
    parent = Path(tempfile.mkdtemp(prefix="penstock-capture-", dir=memory_directory()))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, parent)
        theirs = stack.enter_context(aeron.aeron_host(parent / "aeron"))
        ours = stack.enter_context(penstock_host(parent / "penstock"))
        to_aeron = session(ours, theirs)
        to_penstock = session(theirs, ours)
    lines = [
        "# Two sessions with the real Aeron driver",
        "",
        "Captured between our daemon and Aeron's Java media driver on loopback, by a relay that "
        "also lost one datagram so that the repair is seen. Made by "
        "`PYTHONPATH=tests python -m interop.capture docs/capture.md`; the relay and the decoder "
        "are in `tests/interop`. Of like frames the first three are shown.",
        "",
        *_section("penstock publishes, Aeron receives", to_aeron, "penstock", "Aeron"),
        *_section("Aeron publishes, penstock receives", to_penstock, "Aeron", "penstock"),
    ]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    aeron.build()
    Path(sys.argv[1]).write_text(document())
