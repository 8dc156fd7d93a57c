# SPDX-License-Identifier: Apache-2.0
"""Publishers of an overloaded daemon.  The governor is off here: the test writes its word in
``penstock.dat``."""

from __future__ import annotations

import json
import mmap
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.hosts import PenstockHost

import penstock
from loopback.conftest import NewHost
from loopback.streams import connected, eventually, receive
from loopback.test_cli import finish, start
from loopback.test_daemon import get
from penstock import Offer

CHANNEL = "aeron:ipc?term-length=64k"
WORD = 4096 + 3 * 64                    # of the driver slot: pressure, its time, time to wait
MESSAGE = bytes(992)


class Word:
    """The governor's word of a daemon."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory

    def set(self, retry_after_s: float) -> None:
        """Throttle publishers at their limit; valid for half a second."""
        retry_ns = int(retry_after_s * 1e9)
        struct.pack_into("=Iqq", self._memory, WORD, 1_000_000, 0, 0)
        struct.pack_into("=q", self._memory, WORD + 16, retry_ns)
        struct.pack_into("=q", self._memory, WORD + 8, time.monotonic_ns())

    def clear(self) -> None:
        """Throttle nobody."""
        struct.pack_into("=q", self._memory, WORD + 8, 0)


@pytest.fixture
def ungoverned(new_host: NewHost, tmp_path: Path) -> PenstockHost:
    """A daemon that never writes its word."""
    settings = tmp_path / "penstock.toml"
    settings.write_text("[scheduler]\ngovernor = false\n", encoding="utf-8")
    return new_host("--config", str(settings))


@pytest.fixture
def pressed(ungoverned: PenstockHost) -> Iterator[tuple[penstock.Client, Word]]:
    """A client of a daemon, and its word."""
    host = ungoverned
    with (
        open(f"{host.directory}/penstock.dat", "r+b") as file,
        mmap.mmap(file.fileno(), 8192) as memory,
        penstock.connect(host.directory) as client,
    ):
        yield client, Word(memory)


def fill(publication: penstock.Publication) -> int:
    accepted = 0
    while (position := publication.offer(MESSAGE)) != Offer.BACK_PRESSURED:
        assert position > 0 or position == Offer.ADMIN_ACTION, position
        accepted += position > 0
    return accepted


@pytest.mark.parametrize("exclusive", [False, True], ids=["shared", "exclusive"])
def test_a_client_that_ignores_the_time_to_wait_costs_others_nothing(
    pressed: tuple[penstock.Client, Word], exclusive: bool
) -> None:
    client, word = pressed
    add = client.add_exclusive_publication if exclusive else client.add_publication
    with (
        add(CHANNEL, 1) as full, client.add_subscription(CHANNEL, 1) as reader,
        add(CHANNEL, 2) as free, client.add_subscription(CHANNEL, 2) as other,
        add(CHANNEL + "|ps-never-throttle=true", 3) as exempt,
        client.add_subscription(CHANNEL, 3) as third,
    ):
        for publication, subscription in ((full, reader), (free, other), (exempt, third)):
            connected(publication, subscription)
        accepted = fill(full)
        fill(exempt)
        eventually(lambda: full.pressure().cause == "slow_subscriber", "the cause is not stated")
        got: list[bytes] = []
        for number in range(300):
            word.set(0.2)
            assert full.offer(MESSAGE) == Offer.THROTTLED
            assert full.offer(MESSAGE, never_throttle=True) == Offer.BACK_PRESSURED
            assert exempt.offer(MESSAGE) == Offer.BACK_PRESSURED
            assert free.send(struct.pack("<q", number), 20) > 0
            other.poll(lambda message, _header: got.append(bytes(message)), 4)
        pressure = full.pressure()
        assert (pressure.throttled, pressure.refused["governor"]) == (300, 300)
        assert pressure.refused["slow_subscriber"] >= 300
        assert exempt.pressure().throttled == 0
        word.set(0.2)
        assert full.pressure().retry_after_s == full.retry_after_s == 0.2
        assert exempt.retry_after_s == 0
        receive(other, 300, into=got)
        assert got == [struct.pack("<q", number) for number in range(300)]
        assert receive(reader, accepted) == [MESSAGE] * accepted


def test_a_throttled_send_waits_before_it_offers_again(
    pressed: tuple[penstock.Client, Word],
) -> None:
    client, word = pressed
    with (
        client.add_publication(CHANNEL, 1) as publication,
        client.add_subscription(CHANNEL, 1) as reader,
    ):
        connected(publication, reader)
        accepted = fill(publication)
        word.set(0.4)
        with pytest.raises(penstock.TimeoutExpired, match="THROTTLED"):
            publication.send(MESSAGE, 0.1)
        assert publication.pressure().throttled <= 2      # the fast path, and the plain one
        before = publication.pressure().throttled
        word.set(0.4)
        with pytest.raises(penstock.TimeoutExpired, match="THROTTLED"):
            publication.send_batch([MESSAGE] * 3, 0.1)
        assert publication.pressure().throttled == before + 1
        word.set(0.1)
        assert receive(reader, accepted) == [MESSAGE] * accepted
        assert publication.send(MESSAGE, 20) > 0
        word.clear()
        assert receive(reader, 1) == [MESSAGE]


def test_a_daemon_samples_its_pressure_by_default(
    new_host: NewHost, port: Callable[[], int]
) -> None:
    """It takes samples while streams wait for each other."""
    host = new_host()
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}"
    with (
        penstock.connect(host.directory) as client,
        client.add_subscription(channel, 1) as reader,
        client.add_exclusive_publication(channel, 1) as one,
        client.add_exclusive_publication(channel, 1) as other,
    ):
        connected(one, reader)
        connected(other, reader)

        def sampled() -> bool:
            for publication in (one, other) * 50:
                publication.offer(MESSAGE)
            while reader.poll(lambda _message, _header: None):
                pass
            return bool(json.loads(get(host, "/scheduler")[1])["sampled"])

        eventually(sampled, "sampled")


def test_the_sample_and_its_effects_are_shown(ungoverned: PenstockHost) -> None:
    host = ungoverned
    with (
        open(f"{host.directory}/penstock.dat", "r+b") as file,
        mmap.mmap(file.fileno(), 8192) as memory,
        penstock.connect(host.directory) as client,
        client.add_publication(CHANNEL, 1) as publication,
        client.add_subscription(CHANNEL, 1) as reader,
    ):
        assert not json.loads(get(host, "/scheduler")[1])["sampled"]
        assert "mean wait" not in finish(start(host, "stat", "--once")).decode()
        connected(publication, reader)
        fill(publication)
        word = Word(memory)
        word.set(0.25)
        assert publication.offer(MESSAGE) == Offer.THROTTLED
        page: dict[str, object] = {}

        def shown() -> bool:
            word.set(0.25)
            page.update(json.loads(get(host, "/scheduler")[1]))
            return page["pressure"] == 1

        eventually(shown, "the word became old during each request")
        assert (page["retry_after_ns"], page["throttled"]) == (250_000_000, 1)
        (stream,) = page["streams"]             # type: ignore[misc]
        assert (stream["throttled"], stream["deferrals"]) == (1, 0)
        metrics = get(host, "/metrics")[1]
        assert 'penstock_scheduler_signal_ratio{signal="latency"} 0.0' in metrics
        (line,) = [x for x in metrics.splitlines() if x.startswith("penstock_publication_throttled")
                   and not x.startswith("#")]
        assert line.endswith(" 1.0")
        assert "throttled 1" in finish(start(host, "stat", "--once")).decode()
