# SPDX-License-Identifier: Apache-2.0
"""Relays: what arrives behind them, whenever their process dies."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from support.hosts import PenstockHost

import penstock
from loopback.streams import eventually
from penstock import Client, Header, Publication, Subscription
from penstock.core.errors import ConfigurationError

Port = Callable[[], int]
SOURCE = "aeron:ipc?term-length=64k"
STREAM, TARGET_STREAM = 1001, 1002
KILLS = 8
Got = list[tuple[bytes, int]]


class RelayProcess:
    """``penstock relay`` as a process that can be killed and started again."""

    def __init__(
        self, host: PenstockHost, target: str, *options: str, source: str = SOURCE
    ) -> None:
        self._command = [
            sys.executable, "-m", "penstock", "relay", source, target, "--stream", str(STREAM),
            "--target-stream", str(TARGET_STREAM), "--name", "r", "--dir", str(host.directory),
            *options,
        ]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            self._command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def end(self, number: signal.Signals) -> str:
        self.process.send_signal(number)
        return self.process.communicate()[1]


@contextmanager
def relayed(
    host: PenstockHost, target: str, *options: str, source: str = SOURCE
) -> Iterator[RelayProcess]:
    made = RelayProcess(host, target, *options, source=source)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.end(signal.SIGKILL)


@contextmanager
def ends(host: PenstockHost, target: str) -> Iterator[tuple[Client, Publication, Subscription]]:
    with (
        penstock.connect(host.directory, name="ends") as client,
        client.add_publication(SOURCE, STREAM) as publication,
        client.add_subscription(target, TARGET_STREAM) as subscription,
    ):
        yield client, publication, subscription


def target_of(port: Port, options: str = "|term-length=64k") -> tuple[str, str]:
    """Channels of the relay's target and of its subscriber."""
    plain = f"aeron:udp?endpoint=127.0.0.1:{port()}"
    return plain + options, plain


def message(number: int) -> bytes:
    """Up to three fragments."""
    return b"%d-" % number * (1 + number * 7919 % 700)


def collector(got: Got) -> Callable[[memoryview, Header], None]:
    return lambda data, header: got.append((bytes(data), header.reserved_value))


@pytest.fixture
def own(new_host: Callable[..., PenstockHost]) -> PenstockHost:
    return new_host()


def test_killed_at_random_points_it_loses_and_repeats_nothing(
    own: PenstockHost, port: Port
) -> None:
    """Each message arrives once, in order, with its boundaries and its reserved value."""
    target, listen = target_of(port)
    draw = random.Random(7)
    got: Got = []
    handler = collector(got)
    sent = 0
    with relayed(own, target) as process, ends(own, listen) as (_client, publication, sub):
        for _ in range(KILLS):
            until = len(got) + draw.randrange(50, 1500)
            while len(got) < until:
                while publication.offer(message(sent), reserved_value=sent * 3) > 0:
                    sent += 1
                sub.poll(handler, 50)
            process.end(signal.SIGKILL)
            process.start()
        eventually(lambda: sub.poll(handler, 200) == 0 and len(got) == sent, "all arrived")
        assert sub.gaps == ()
    assert got == [(message(number), number * 3) for number in range(sent)]


def test_the_target_has_one_session_for_all_processes_and_ends_with_the_source(
    own: PenstockHost, port: Port
) -> None:
    target, listen = target_of(port)
    got: Got = []
    ended: list[int] = []
    with (
        relayed(own, target) as process,
        penstock.connect(own.directory) as client,
        client.add_subscription(
            listen, TARGET_STREAM, on_unavailable=lambda image: ended.append(image.session_id)
        ) as sub,
        client.add_publication(SOURCE, STREAM) as publication,
    ):
        sessions = set()
        for number in range(3):
            publication.send(b"%d" % number, 60)
            eventually(lambda: sub.poll(collector(got), 10) > 0, "arrived")
            sessions |= {image.session_id for image in sub.images}
            process.end(signal.SIGKILL if number else signal.SIGTERM)
            publication.send(b"meanwhile", 60)
            process.start()
            eventually(lambda: sub.poll(collector(got), 10) > 0, "sent meanwhile")
        assert len(sessions) == 1
        process.end(signal.SIGKILL)
        publication.send(b"last", 60)
        publication.close()
        process.start()
        eventually(lambda: sub.poll(collector(got), 10) > 0, "the last one")
        eventually(lambda: not sub.images and ended == [*sessions], "the target ended")
    assert [data for data, _ in got[-2:]] == [b"meanwhile", b"last"]
    assert len(got) == 7


@pytest.mark.parametrize("medium", ["ipc", "udp"])
def test_the_target_ends_if_the_source_ends_while_no_process_runs(
    own: PenstockHost, port: Port, medium: str
) -> None:
    """The relay had relayed all messages, so the daemon shows the session to no next process."""
    target, listen = target_of(port)
    source = SOURCE if medium == "ipc" else target_of(port)[0]
    got: Got = []
    with (
        relayed(own, target, source=source) as process,
        penstock.connect(own.directory) as client,
        client.add_subscription(listen, TARGET_STREAM) as sub,
        client.add_publication(source, STREAM) as publication,
    ):
        publication.send(b"last", 60)
        eventually(lambda: sub.poll(collector(got), 10) > 0, "arrived")
        process.end(signal.SIGTERM)
        publication.close()

        def states() -> set[str]:
            """The states in which the source still shows its session to readers."""
            status = client.status()
            rows = status["publications" if medium == "ipc" else "images"]
            found = {row["state"] for row in rows if row["stream_id"] == STREAM}
            return found & {"active", "draining"}

        eventually(lambda: not states(), "the source has ended")
        process.start()
        eventually(lambda: not sub.images, "the target ended")
    assert len(got) == 1


def test_stat_shows_that_a_relay_process_has_ended(own: PenstockHost, port: Port) -> None:
    """Until the next process returns, or the linger time has passed."""
    target, listen = target_of(port)

    def shown() -> list[str]:
        with own.command("stat", "--once", "--dir", str(own.directory)) as stat:
            return [row for row in stat.output().splitlines() if " relay r " in row]

    with relayed(own, target) as process, ends(own, listen) as (_client, publication, sub):
        publication.send(b"one", 60)
        eventually(lambda: sub.poll(collector([]), 10) > 0, "arrived")
        assert [" active " in row for row in shown()] == [True]
        process.end(signal.SIGKILL)
        eventually(lambda: [" awaited " in row for row in shown()] == [True], "the death is shown")

        def blocked() -> bool:
            while publication.offer(bytes(1000)) > 0:
                pass
            return publication.pressure().client == "relay r"

        eventually(blocked, "the dead relay blocks the source")
        with own.command("flows", "--json", "--dir", str(own.directory)) as flows:
            rows = json.loads(flows.output())["streams"]
        (row,) = [row for row in rows if row["publication_id"] == publication.registration_id]
        assert (row["culprit_awaited"], row["cause"]) == (True, "slow_subscriber"), row
        process.start()
        eventually(lambda: [" active " in row for row in shown()] == [True], "it is back")


def test_after_the_linger_time_there_is_a_gap_and_no_duplicate(
    own: PenstockHost, port: Port
) -> None:
    """The log that would tell which messages went out is gone."""
    target, listen = target_of(port)
    got: Got = []
    handler = collector(got)
    with (
        relayed(own, target, "--linger", "0.5") as process,
        ends(own, listen) as (client, publication, sub),
    ):
        # A second reader holds the source where it is, so what comes later can be read again.
        with client.add_subscription(SOURCE, STREAM) as slow:
            for number in range(100):
                publication.send(b"%d" % number, 60)
            eventually(lambda: sub.poll(handler, 10) == 0 and len(got) == 100, "a hundred")
            process.end(signal.SIGKILL)

            def gone() -> bool:
                return not [c for c in client.status()["clients"] if c["name"] == "relay r"]

            eventually(gone, "the client is gone")
            process.start()
            publication.send(b"after", 60)
            eventually(lambda: sub.poll(handler, 10) > 0, "after")
            assert slow.poll(lambda data, header: None, 1) == 1
        told = process.end(signal.SIGTERM)
    assert "the last process did not return within 0.5 s" in told
    assert [data for data, _ in got] == [b"%d" % n for n in range(100)] + [b"after"]


def test_a_target_without_room_holds_the_source(own: PenstockHost, port: Port) -> None:
    """Accepted in all: at most both windows and what the far reader has."""
    target, listen = target_of(port)
    got: Got = []
    with relayed(own, target), ends(own, listen) as (_client, publication, sub):
        sent = 0
        eventually(lambda: publication.is_connected and sub.is_connected, "connected")

        def full() -> bool:
            nonlocal sent
            before = sent
            while publication.offer(bytes(1000)) > 0:
                sent += 1
            held = publication.pressure()
            return sent == before and held.cause == "slow_subscriber" and held.held_ns > 5 * 10**8

        eventually(full, "held")
        assert publication.pressure().client == "relay r"
        assert sent * 1056 <= 4 * 32 * 1024 + 3 * 1056
        eventually(lambda: sub.poll(collector(got), 100) == 0 and len(got) == sent, "relief")


def test_a_relay_that_is_ended_leaves_nothing(own: PenstockHost, port: Port) -> None:
    target, listen = target_of(port)
    with ends(own, listen) as (client, publication, sub):
        got: Got = []
        with penstock.relay(
            SOURCE, STREAM, target, TARGET_STREAM, name="r", directory=str(own.directory)
        ) as made:
            with pytest.raises(ConfigurationError, match="another process runs the relay 'r'"):
                penstock.relay(
                    SOURCE, STREAM, target, TARGET_STREAM, name="r", directory=str(own.directory)
                )
            eventually(lambda: publication.offer(b"x") > 0, "offered")
            made.run(until=lambda: sub.poll(collector(got), 1) == 1)
            assert (made.statistics().messages, made.statistics().sessions) == (1, 1)
        assert len(client.status()["clients"]) == 1
        assert not list((own.directory / "relays").iterdir())


def test_a_relay_of_the_configuration(own: PenstockHost, port: Port, tmp_path: Path) -> None:
    target, listen = target_of(port)
    file = tmp_path / "penstock.toml"
    file.write_text(
        f'[[relay]]\nname = "up"\nsource = "{SOURCE}"\nsource_stream = {STREAM}\n'
        f'target = "{target}"\ntarget_stream = {TARGET_STREAM}\nlinger_ns = "5s"\n'
    )
    command = [sys.executable, "-m", "penstock", "relay", "--config", str(file), "--dir",
               str(own.directory), "--json"]
    other = subprocess.run([*command, "--name", "down"], capture_output=True, text=True)
    assert other.returncode == 2
    assert "no [[relay]] has the name 'down'; the names in this file are: up" in other.stderr
    process = subprocess.Popen(
        [*command, "--name", "up"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with ends(own, listen) as (_client, publication, sub):
        got: Got = []
        publication.send(b"x", 60)
        eventually(lambda: sub.poll(collector(got), 1) == 1, "relayed")
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate()
    assert '"messages": 1' in out
    assert process.returncode == 0


def test_two_relays_in_a_circle_are_noticed(
    own: PenstockHost, new_host: Callable[..., PenstockHost], port: Port
) -> None:
    """Relay a from this host to another, relay b back: a refuses what b sends, and b ends. The
    publisher's messages go on to the other host."""
    other = new_host()
    there, back = (f"aeron:udp?endpoint=127.0.0.1:{port()}" for _ in range(2))
    got: Got = []
    with (
        penstock.connect(own.directory) as client,
        penstock.connect(other.directory) as far,
        far.add_subscription(there, TARGET_STREAM) as sub,
        client.add_publication(f"{back}|term-length=64k", STREAM) as publication,
    ):
        with penstock.relay(
            back, STREAM, f"{there}|term-length=64k", TARGET_STREAM, name="a",
            directory=str(own.directory),
        ) as first:
            second = penstock.relay(
                there, TARGET_STREAM, f"{back}|term-length=64k", STREAM, name="b",
                directory=str(other.directory),
            )
            ids = [f"{relay.relay_id:016x}" for relay in (first, second)]
            publication.send(b"once", 60)
            eventually(lambda: first.step() or first.statistics().messages == 1, "relayed")
            assert client.status()["publications"][1]["relay_path"] == ids[:1]
            eventually(
                lambda: [image["relay_path"] for image in far.status()["images"]] == [ids[:1]],
                "the path is known behind the relay",
            )
            with pytest.raises(penstock.RelayLoop) as ended, second:
                eventually(lambda: not [first.step(), second.step()], "the circle is noticed")
        text = str(ended.value)
        assert "relay b " in text
        assert "'a'" in text
        assert all(number in text for number in ids)
        assert first.statistics().refused == 1
        eventually(lambda: not far.status()["publications"], "nothing is left of relay b")
        eventually(lambda: sub.poll(collector(got), 10) == 0 and len(got) == 1, "once")
        assert sub.images[0].relay_path == (first.relay_id,)


def test_a_stream_passes_eight_relays_and_no_ninth(own: PenstockHost) -> None:
    """IPC streams have a path too, and it survives the daemon's answer to each relay."""
    with penstock.connect(own.directory) as client, ExitStack() as stack:
        publication = stack.enter_context(client.add_publication(SOURCE, 1))
        relays = [
            stack.enter_context(penstock.relay(SOURCE, n, SOURCE, n + 1, name=f"r{n}",
                                               directory=str(own.directory)))
            for n in range(1, 9)
        ]
        last = stack.enter_context(client.add_subscription(SOURCE, 9))
        publication.send(b"x", 60)
        got: Got = []

        def arrived() -> bool:
            for relay in relays:
                relay.step()
            return last.poll(collector(got), 1) == 1

        eventually(arrived, "relayed eight times")
        assert last.images[0].relay_path == tuple(relay.relay_id for relay in relays)
        ninth = stack.enter_context(penstock.relay(SOURCE, 9, SOURCE, 10, name="r9",
                                                   directory=str(own.directory)))
        eventually(lambda: ninth.step() or ninth.statistics().refused == 1, "refused")
        with pytest.raises(penstock.RelayLoop, match="number 8 of the relays before 'r9'"):
            eventually(lambda: relays[-1].step(), "told")
