# SPDX-License-Identifier: Apache-2.0
"""Whatever a publisher does, in whatever order, its accepted messages come out once and in order.

The core runs for real on files of its own; the test plays the daemon by setting the limit.  Terms
are used once only, so nothing has to clean them.
"""

from __future__ import annotations

import mmap
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core import client as core
from penstock.core.admin import Cnc, Shared, create_log
from penstock.core.driver_types import CncParams, LogParams, SharedParams, SlotKind

TERM_LENGTH = 64 * 1024
MAX_MESSAGE = TERM_LENGTH // 8
META_BYTES = 4096
IS_CONNECTED = 136
BACK_PRESSURED = -2
ADMIN_ACTION = -3
HEADER = 32


class Stream(NamedTuple):
    pub: Any
    image: Any
    start: int
    mtu: int


def _admin(directory: str) -> tuple[Cnc, Shared]:
    cnc = Cnc.create(
        CncParams(
            directory=directory, client_liveness_timeout_ns=10**10, start_ms=1, pid=1,
            counter_values_bytes=8192, error_log_bytes=4096, file_mode=0o600, software_version=1,
        )
    )
    shared = Shared.create(
        SharedParams(
            directory=directory, clients=1, publications=64, images=1, subscribers=1, groups=1,
            file_mode=0o600, daemon_id=1, daemon_epoch=1, receiver_id_base=1, pid=1, start_ms=1,
        )
    )
    return cnc, shared


def _counter(cnc: Cnc, label: str, value: int) -> int:
    return cnc.allocate_counter(
        type_id=1, key=b"", label=label, registration_id=1, owner_id=1, reference_id=0,
        value=value, now_ms=1,
    )


@contextmanager
def stream(*, exclusive: bool, mtu: int, terms_before: int, offset: int) -> Iterator[Stream]:
    """A publication and an image of one log that begins anywhere; room for two more terms."""
    with tempfile.TemporaryDirectory() as directory:
        cnc, shared = _admin(directory)
        path = str(Path(directory) / "1.logbuffer")
        initial = 2**31 - 1 - terms_before // 2
        term_id = (initial + terms_before + 2**31) % 2**32 - 2**31
        create_log(
            LogParams(
                path=path, correlation_id=1, session_id=-7, stream_id=9, initial_term_id=initial,
                term_id=term_id, term_offset=offset, term_length=TERM_LENGTH, mtu=mtu,
                type=int(exclusive), reserve_terms=0, file_mode=0o600,
            )
        )
        start = terms_before * TERM_LENGTH + offset
        limit = _counter(cnc, "pub-lmt", start + 2 * TERM_LENGTH - MAX_MESSAGE * 2)
        position = _counter(cnc, "sub-pos", start)
        with Path(path).open("r+b") as file, mmap.mmap(file.fileno(), 0) as log:
            log[len(log) - META_BYTES + IS_CONNECTED] = 1
        client = core.client_open(
            core.ClientParams(
                directory=directory, client_id=1,
                client_slot=shared.allocate_slot(SlotKind.CLIENT, 1), sender_wake_fd=-1,
                receiver_wake_fd=-1,
            )
        )
        pub = core.pub_open(
            client,
            core.PublicationParams(
                log_path=path, registration_id=1,
                publication_slot=shared.allocate_slot(SlotKind.PUBLICATION, 1),
                limit_counter_id=limit, max_message_bytes=0, exclusive=exclusive,
            ),
        )
        image = core.img_open(
            client,
            core.ImageParams(
                log_path=path, correlation_id=1, subscription_id=1, position_counter_id=position,
                subscriber_slot=0, image_slot=-1, publication_slot=0,
            ),
        )
        yield Stream(pub, image, start, mtu)
        shared.close()
        cnc.close()


def payload(number: int, length: int) -> bytes:
    pattern = struct.pack("<I", number) + bytes((number * 7 + i) % 251 for i in range(59))
    return (pattern * (length // len(pattern) + 1))[:length]


sizes = st.one_of(
    st.integers(0, 100), st.integers(1300, 1500), st.integers(0, MAX_MESSAGE),
    st.sampled_from([0, MAX_MESSAGE]),
)
operations = st.one_of(
    st.tuples(st.just("offer"), sizes),
    st.tuples(st.just("gather"), sizes),
    st.tuples(st.just("commit"), st.integers(0, 32)),
    st.tuples(st.just("abort"), st.integers(0, 32)),
    st.tuples(st.just("batch"), st.lists(sizes, min_size=1, max_size=20)),
    st.tuples(st.just("poll"), st.integers(1, 9)),
    st.tuples(st.just("fail"), st.integers(1, 9)),
)


class Model:
    """What was accepted, and what came out."""

    def __init__(self, it: Stream) -> None:
        self.it = it
        self.sent: list[bytes] = []
        self.positions: list[int] = []
        self.got = 0
        self.room = core.Messages(16)

    def _accepted(self, message: bytes, position: int) -> None:
        assert position > 0 or position in (BACK_PRESSURED, ADMIN_ACTION)
        if position > 0:
            assert position % HEADER == 0
            self.sent.append(message)
            self.positions.append(position)

    def apply(self, name: str, argument: Any) -> None:
        getattr(self, name)(argument)

    def offer(self, length: int) -> None:
        message = payload(len(self.sent), length)
        self._accepted(message, core.pub_offer_buffer(self.it.pub, message, 0))

    def gather(self, length: int) -> None:
        message = payload(len(self.sent), length)
        pieces = [message[: length // 3], b"", message[length // 3 :]]
        self._accepted(message, core.pub_offer_buffers(self.it.pub, pieces, 0))

    def commit(self, length: int) -> None:
        message = payload(len(self.sent), length)
        claim = core.NativeClaim(self.it.pub, length)
        if claim.position > 0:
            claim.view()[:] = message
            assert claim.commit(0) == 0
        self._accepted(message, claim.position)

    def abort(self, length: int) -> None:
        claim = core.NativeClaim(self.it.pub, length)
        if claim.position > 0:
            assert claim.abort() == 0

    def batch(self, lengths: list[int]) -> None:
        messages = [payload(len(self.sent) + i, length) for i, length in enumerate(lengths)]
        offsets = [0]
        for message in messages:
            offsets.append(offsets[-1] + len(message))
        outcome = core.pub_offer_batch(
            self.it.pub, b"".join(messages) or b"\0", struct.pack(f"{len(offsets)}q", *offsets), 0,
            len(messages),
        )
        assert outcome.accepted in range(len(messages) + 1)
        self.sent += messages[: outcome.accepted]
        self.positions += [0] * outcome.accepted
        if outcome.accepted:
            self.positions[-1] = outcome.position

    def _poll(self, limit: int) -> list[tuple[bytes, int, int]]:
        count = core.img_poll(self.it.image, self.room.native, limit, core.POLL_ASSEMBLE)
        assert count >= 0
        found = []
        for fields in islice(core.MESSAGE.iter_unpack(self.room.raw), count):
            address, length, _, start_position, position = fields[:5]
            found.append((core.copy_bytes(address, length), start_position, position))
        return found

    def poll(self, limit: int) -> int:
        found = self._poll(limit)
        for data, _, position in found:
            assert data == self.sent[self.got]
            assert self.positions[self.got] in (0, position)
            self.got += 1
        return len(found)

    def fail(self, limit: int) -> None:
        """The handler of the middle one fails: it and what follows come again."""
        found = self._poll(limit)
        keep = len(found) // 2
        for data, _, _ in found[:keep]:
            assert data == self.sent[self.got]
            self.got += 1
        if found:
            core.img_rewind(self.it.image, found[keep][1])


@pytest.mark.parametrize("exclusive", [False, True])
@settings(max_examples=60)
@given(
    script=st.lists(operations, max_size=60), mtu=st.sampled_from([64, 1408, 8192]),
    terms_before=st.integers(0, 7), offset=st.integers(0, TERM_LENGTH // 32).map(lambda n: n * 32),
)
def test_accepted_messages_come_out_once_and_in_order(
    exclusive: bool, script: list[tuple[str, Any]], mtu: int, terms_before: int, offset: int
) -> None:
    with stream(
        exclusive=exclusive, mtu=mtu, terms_before=terms_before, offset=offset
    ) as it:
        model = Model(it)
        for name, argument in script:
            if name in ("commit", "abort"):
                argument = min(argument, mtu - HEADER)
            model.apply(name, argument)
        for _ in range(len(model.sent) + 8):
            model.poll(16)
        assert model.got == len(model.sent)
        del model, it
