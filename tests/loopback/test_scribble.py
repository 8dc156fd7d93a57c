# SPDX-License-Identifier: Apache-2.0
"""A daemon survives any value in the shared memory that its clients can write.  So does a daemon
that adopts such a directory.

Every process of the group can write these words, so the daemon checks them and asserts nothing
about them.  The test overwrites them at random while streams flow."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import random
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest
from support.hosts import PenstockHost
from support.processes import Peer

ROOT = Path(__file__).parents[2]
ROUNDS = 100
WORDS_A_ROUND = 400
EDGES = (0, 1, 31, 32, 63, 64, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63)
#: Fields that clients write: (table of slots, slot type, field).
FOREIGN = (
    ("client", "ps_client_slot_t", "futex_word"),
    ("client", "ps_client_slot_t", "waiting"),
    ("client", "ps_client_slot_t", "claims_lost"),
    ("publication", "ps_publication_slot_t", "dirty"),
    ("publication", "ps_publication_slot_t", "want_room"),
    ("publication", "ps_publication_slot_t", "published_ordinal"),
    ("publication", "ps_publication_slot_t", "spend"),
    ("subscriber", "ps_subscriber_slot_t", "delivered"),
    ("subscriber", "ps_subscriber_slot_t", "released"),
    ("subscriber", "ps_subscriber_slot_t", "skipped_messages"),
)
COUNTER_BYTES = 128
SUB_POS = 4


@attrs.frozen
class Word:
    """Eight bytes that a client can write."""

    memory: mmap.mmap
    offset: int


def layout(folder: Path) -> dict[str, int]:
    """Offsets from the header itself, by the compiler."""
    lines = [f'printf("\\"{t}.{f}\\": %zu,", offsetof({t}, {f}));' for _, t, f in FOREIGN]
    lines += [
        f'printf("\\"{table}_{what}\\": %zu,", offsetof(ps_shared_header_t, {table}_{what}));'
        for table in ("client", "publication", "subscriber") for what in ("offset", "bytes")
    ]
    source = folder / "layout.c"
    source.write_text(
        '#include <stdio.h>\n#include <stddef.h>\n#include "ps_shared.h"\n'
        "int main(void){printf(\"{\");" + "\n".join(lines)
        + 'printf("\\"dirty\\": %zu}", offsetof(ps_shared_header_t, dirty_offset));}\n'
    )
    folders = [ROOT / "core/include", *(ROOT / "core/src").iterdir()]
    subprocess.run(
        [os.environ.get("CC", "cc"), "-std=gnu11", *(f"-I{p}" for p in folders), str(source),
         "-o", str(folder / "layout")],
        check=True,
    )
    output = subprocess.run([folder / "layout"], check=True, capture_output=True, text=True)
    return dict(json.loads(output.stdout))


def mapped(path: Path) -> mmap.mmap:
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), 0)


def mapped_logs(folder: Path) -> Iterator[mmap.mmap]:
    for path in sorted(folder.iterdir()):
        with contextlib.suppress(FileNotFoundError, ValueError):    # gone, or not sized yet
            yield mapped(path)


def words_of_slots(memory: mmap.mmap, at: dict[str, int]) -> Iterator[Word]:
    """The fields of the first slots of each table, and the dirty bitmap."""
    for table, kind, field in FOREIGN:
        (start,) = struct.unpack_from("<Q", memory, at[f"{table}_offset"])
        (size,) = struct.unpack_from("<I", memory, at[f"{table}_bytes"])
        for slot in range(8):
            yield Word(memory, start + slot * size + at[f"{kind}.{field}"])
    (bitmap,) = struct.unpack_from("<Q", memory, at["dirty"])
    yield Word(memory, bitmap)


def words_of_counters(memory: mmap.mmap) -> Iterator[Word]:
    """The subscriber positions in cnc.dat."""
    lengths = struct.unpack_from("<5i", memory, 4)
    metadata = 128 + lengths[0] + lengths[1]
    values = metadata + lengths[2]
    for index in range(512):
        state, kind = struct.unpack_from("<ii", memory, metadata + 512 * index)
        if state == 0:
            return
        if state == 1 and kind == SUB_POS:
            yield Word(memory, values + COUNTER_BYTES * index)


def words_of_log(memory: mmap.mmap, rng: random.Random) -> Iterator[Word]:
    """Tails, the active term count, and words of the terms."""
    metadata = len(memory) - 4096
    yield from (Word(memory, metadata + offset) for offset in (0, 8, 16, 24))
    for _ in range(16):
        yield Word(memory, rng.randrange(0, metadata // 8) * 8)


def scribble(word: Word, rng: random.Random) -> None:
    old = struct.unpack_from("<Q", word.memory, word.offset)[0]
    new = rng.choice(
        (rng.choice(EDGES), rng.getrandbits(64), (old + rng.choice((-64, -32, -1, 1, 32, 64))))
    )
    struct.pack_into("<Q", word.memory, word.offset, new % 2**64)


def client(host: PenstockHost, *arguments: str) -> Peer:
    peer = host.run("-m", "support.restless", *arguments)
    try:
        assert peer.next()["text"].strip() == "ready"
    except BaseException:
        peer.stop()
        raise
    return peer


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_daemon_survives_any_word_that_clients_can_write(
    new_host: Callable[..., PenstockHost], port: Callable[[], int], tmp_path: Path, seed: int
) -> None:
    at = layout(tmp_path)
    host = new_host()
    rng = random.Random(seed)
    arguments = (f"--dir={host.directory}", f"--port={port()}")
    peer = client(host, *arguments)
    shared, counters = mapped(host.directory / "penstock.dat"), mapped(host.directory / "cnc.dat")
    try:
        for _ in range(ROUNDS):
            logs = list(mapped_logs(host.directory / "publications"))
            words = [*words_of_slots(shared, at), *words_of_counters(counters)]
            words += [word for log in logs for word in words_of_log(log, rng)]
            for _ in range(WORDS_A_ROUND):
                scribble(rng.choice(words), rng)
            for log in logs:
                log.close()
            assert host.is_running(), host.errors()
            if peer.process.poll() is not None:
                peer.stop()
                peer = client(host, *arguments)
        host.kill()
        host.start()        # adopts the damaged directory, or starts over
        peer.stop()
        peer = client(host, *arguments)
    finally:
        peer.stop()
    with host.command("stat", "--once", "--json", "--dir", str(host.directory)) as stat:
        assert stat.finish(60.0) == 0, host.errors()
    assert "ssertion" not in host.errors()
