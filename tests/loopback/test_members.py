# SPDX-License-Identifier: Apache-2.0
"""Consumer groups with members: batches, commits, members that die, leave and come."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.hosts import PenstockHost
from support.processes import Peer

import penstock
from loopback.streams import TIMEOUT_S, eventually
from penstock import AssignmentLost, Client, ConsumerGroup, Publication
from penstock.client import GroupControl

NewHost = Callable[..., PenstockHost]
STREAM = 6001
COUNT = 2000


def texts(first: int, last: int) -> list[bytes]:
    return [b"message %d" % n for n in range(first, last)]


def send(publication: Publication, first: int, last: int) -> None:
    publication.send_batch(texts(first, last), TIMEOUT_S)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)[-60:]


def test_batches_are_received_once_if_they_are_committed(client: Client, name: str) -> None:
    with (
        client.consumer_group(name, "aeron:ipc", STREAM) as group,
        client.add_publication("aeron:ipc", STREAM) as publication,
    ):
        send(publication, 0, COUNT)
        got: list[bytes] = []
        for batch in group.messages(limit=300, timeout_s=TIMEOUT_S):
            assert 0 < len(batch) <= 300
            assert batch[-1].position == batch.position
            assert batch[0].session_id == batch.session_id == publication.session_id
            assert batch.to_arrow().num_rows == len(batch)
            got += batch
            batch.commit()
            batch.commit()
            assert batch.is_committed
            if len(got) == COUNT:
                break
        assert got == texts(0, COUNT)
        assert group.state().logs[0].committed == publication.position
        with pytest.raises(penstock.TimeoutExpired, match="no messages that another member"):
            group.recv_batch(timeout_s=0.05)
        group.end()


def test_messages_without_a_commit_are_received_again(client: Client, name: str) -> None:
    with (
        client.consumer_group(name, "aeron:ipc", STREAM) as group,
        client.add_publication("aeron:ipc", STREAM) as publication,
    ):
        send(publication, 0, 100)
        first = group.recv_batch(10, TIMEOUT_S)
        second = group.recv_batch(10, TIMEOUT_S)
        second.commit()                         # out of order: nothing can be acknowledged yet
        assert group.state().logs[0].committed == 0
        batches = group.messages(1000, TIMEOUT_S)
        again = next(batches)
        assert list(again) == texts(0, 10)      # up to what is committed
        with pytest.raises(AssignmentLost, match="does not hold positions"):
            first.commit()
        again.commit()
        rest = next(batches)
        assert list(rest) == texts(20, 100)
        rest.commit()
        assert group.state().logs[0].committed == publication.position
        group.end()
        with pytest.raises(AssignmentLost, match="ended or has expired"):
            next(batches)


def member(host: PenstockHost, name: str, commit: int, limit: int = 100) -> Peer:
    return host.run(
        "-m", "support.member", f"--dir={host.directory}", "--channel=aeron:ipc",
        f"--stream={STREAM}", f"--name={name}", f"--limit={limit}", f"--commit={commit}",
    )


def test_after_kill_9_only_what_was_uncommitted_is_received_again(
    client: Client, host: PenstockHost, name: str
) -> None:
    """Two members die, each with a batch in its hands; the third receives those and the rest."""
    with client.add_publication("aeron:ipc", STREAM) as publication:
        seen: list[str] = []
        held: list[str] = []
        with member(host, name, 3) as one, member(host, name, 2) as two:
            one.wait("joined")
            two.wait("joined")
            send(publication, 0, COUNT)
            for each, committed in ((one, 3), (two, 2)):
                for _ in range(committed):
                    seen += each.wait("batch")["messages"]
                held += each.wait("held")["messages"]
            one.process.kill()
            two.process.kill()
            one.process.wait()
            two.process.wait()
        assert len(seen) == 500
        assert len(held) == 200
        with client.consumer_group(name, "aeron:ipc", STREAM) as group:
            got: list[str] = []
            for batch in group.messages(100, TIMEOUT_S):
                got += [message.decode() for message in batch]
                batch.commit()
                if len(seen) + len(got) >= COUNT:
                    break
            assert set(held) <= set(got)
            assert sorted(seen + got) == sorted(text.decode() for text in texts(0, COUNT))
            group.end()


def listed(host: PenstockHost, *words: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "groups", *words, "--json", "--dir",
         str(host.directory)],
        capture_output=True, text=True, check=True, timeout=TIMEOUT_S,
    )
    return json.loads(done.stdout)


def test_the_shell_shows_members_and_their_batches(host: PenstockHost, name: str) -> None:
    def members() -> list[tuple[str, str, list[tuple[int, int]]]]:
        return [
            (row["client"], row["state"], [(held["start"], held["end"]) for held in row["batches"]])
            for row in listed(host, "members", name)["members"]
        ]

    with (
        penstock.connect(host.directory, name="reader") as client,
        client.add_publication("aeron:ipc", STREAM) as publication,
        member(host, name, 0) as other,
    ):
        other.wait("joined")
        with client.consumer_group(name, "aeron:ipc", STREAM) as group:
            send(publication, 0, 100)
            assert len(other.wait("held")["messages"]) == 100
            assert members() == [
                ("member", "live", [(0, publication.position)]), ("reader", "live", []),
            ]
            [row] = [row for row in listed(host, "list")["groups"] if row["name"] == name]
            assert row["members"] == 2
            other.process.kill()
            other.process.wait()
            assert members()[0][1] == "dead"
            batch = group.recv_batch(10, TIMEOUT_S)
            assert members() == [("reader", "live", [(0, batch.position)])]
            batch.commit()
            assert members() == [("reader", "live", [])]
        assert members() == []
        client.consumer_group(name, "aeron:ipc", STREAM).end()


def test_a_batch_stays_with_its_member_while_it_is_open(client: Client, name: str) -> None:
    """However long: another member goes on behind it, and its commit is late but right."""
    with (
        client.consumer_group(name, "aeron:ipc", STREAM) as slow,
        client.consumer_group(name, "aeron:ipc", STREAM) as quick,
        client.add_publication("aeron:ipc", STREAM) as publication,
    ):
        send(publication, 0, 100)
        open_ = slow.recv_batch(10, TIMEOUT_S)
        others: list[bytes] = []
        while len(others) < 90:
            batch = quick.recv_batch(40, TIMEOUT_S)
            others += batch
            batch.commit()
        assert others == texts(10, 100)
        assert quick.state().logs[0].committed == 0
        open_.commit()
        assert quick.state().logs[0].committed == publication.position
        send(publication, 100, 110)
        abandoned = slow.recv_batch(10, TIMEOUT_S)
        slow.close()                            # leaves: the batch is for the others
        assert list(quick.recv_batch(10, TIMEOUT_S)) == texts(100, 110)
        with pytest.raises(penstock.ClosedError):
            abandoned.commit()
        quick.end()


def test_members_in_threads_share_several_sessions(client: Client, name: str) -> None:
    with (
        client.add_exclusive_publication("aeron:ipc", STREAM) as one,
        client.add_exclusive_publication("aeron:ipc", STREAM) as two,
        client.consumer_group(name, "aeron:ipc", STREAM) as watcher,
    ):
        lock = threading.Lock()
        got: list[bytes] = []

        def work(group: ConsumerGroup) -> None:
            for batch in group.messages(50):
                batch.commit()          # first: the members are closed when everything is in `got`
                with lock:
                    got.extend(batch)

        members = [client.consumer_group(name, "aeron:ipc", STREAM) for _ in range(3)]
        threads = [threading.Thread(target=work, args=(each,)) for each in members]
        for thread in threads:
            thread.start()
        send(one, 0, COUNT)
        send(two, COUNT, 2 * COUNT)
        eventually(lambda: len(got) >= 2 * COUNT, "everything is received")
        for each in members:
            each.close()
        for thread in threads:
            thread.join(TIMEOUT_S)
            assert not thread.is_alive()
        assert sorted(got) == sorted(texts(0, 2 * COUNT))
        # The log of a test before may still be there, which the group joined at its end.
        positions = {log.session_id: log.committed for log in watcher.state().logs}
        assert positions[one.session_id] == one.position
        assert positions[two.session_id] == two.position
        watcher.end()


def test_a_group_of_another_reader_is_refused(
    client: Client, host: PenstockHost, name: str
) -> None:
    with GroupControl(directory=str(host.directory)) as control:
        control.open(
            name=name, channel="aeron:ipc", stream_id=STREAM, expiry_ns=10**11, owner="a query"
        )
        with pytest.raises(penstock.GroupOwned, match="a query"):
            client.consumer_group(name, "aeron:ipc", STREAM)
        control.close_group(name=name, channel="aeron:ipc", stream_id=STREAM)


def test_a_group_continues_with_a_new_daemon(new_host: NewHost, name: str) -> None:
    mortal = new_host()
    with (
        penstock.connect(mortal.directory) as mine,
        mine.consumer_group(name, "aeron:ipc", STREAM) as group,
        mine.add_publication("aeron:ipc", STREAM) as publication,
    ):
        send(publication, 0, 100)
        first = group.recv_batch(10, TIMEOUT_S)
        mortal.kill()
        mortal.start()
        first.commit()
        rest = group.recv_batch(1000, TIMEOUT_S)
        assert list(rest) == texts(10, 100)
        rest.commit()
        assert group.state().logs[0].committed == publication.position


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_groups_are_awaited(host: PenstockHost, backend: str) -> None:
    async def test() -> None:
        async with (
            penstock.open_client(host.directory) as client,
            await client.consumer_group(f"awaited {backend}", "aeron:ipc", STREAM) as group,
            await client.add_publication("aeron:ipc", STREAM) as publication,
        ):
            await publication.send_batch(texts(0, 100))
            got: list[bytes] = []
            async for batch in group.messages(30, TIMEOUT_S):
                got += batch
                await batch.commit()
                if len(got) == 100:
                    break
            assert got == texts(0, 100)
            with pytest.raises(penstock.TimeoutExpired):
                await group.recv_batch(timeout_s=0.01)
            await group.end()

    anyio.run(test, backend=backend)


def test_members_read_the_ended_log_of_a_session_before_the_next(
    new_host: NewHost, port: Callable[[], int], tmp_path: Path
) -> None:
    """The sender's daemon is away for longer than the receiver's daemon waits: the session has two
    logs, and a commit in the second must not release the first."""
    config = tmp_path / "config.toml"
    config.write_text('[timeouts]\nimage_liveness_timeout_ns = "1s"\n')
    sender, receiver = new_host(), new_host("--config", str(config))
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=256k"
    with (
        penstock.connect(sender.directory) as source,
        penstock.connect(receiver.directory) as client,
        client.consumer_group("g", channel, STREAM) as group,
    ):
        publication = source.add_publication(channel, STREAM)
        assert publication.wait_connected(TIMEOUT_S)
        send(publication, 0, COUNT // 2)
        end = publication.position
        eventually(
            lambda: [log.end_position for log in group.state().logs] == [end], "it arrives"
        )
        sender.kill()
        eventually(lambda: group.state().logs[0].ended, "the session ends")
        sender.start()
        send(publication, COUNT // 2, COUNT)
        eventually(lambda: len(group.state().logs) == 2, "the session returns")
        got: list[bytes] = []
        for batch in group.messages(limit=300, timeout_s=TIMEOUT_S):
            got += batch
            batch.commit()
            if len(got) == COUNT:
                break
        assert got == texts(0, COUNT)
        group.end()


def test_members_read_a_message_that_ends_in_the_next_log(
    new_host: NewHost, port: Callable[[], int], tmp_path: Path
) -> None:
    """The window holds one message and a half when the sender's daemon dies."""
    config = tmp_path / "config.toml"
    config.write_text('[timeouts]\nimage_liveness_timeout_ns = "1s"\n')
    sender, receiver = new_host(), new_host("--config", str(config))
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=256k"
    messages = [bytes([number]) * 30_000 for number in range(6)]
    with (
        penstock.connect(sender.directory) as source,
        penstock.connect(receiver.directory) as client,
        client.consumer_group("g", channel, STREAM) as group,
    ):
        publication = source.add_publication(channel, STREAM)
        assert publication.wait_connected(TIMEOUT_S)

        def ended_within_a_message() -> bool:
            [log] = group.state().logs
            return log.ended and log.end_position % (publication.position // len(messages)) != 0

        publication.send_batch(messages, TIMEOUT_S)
        window = 128 * 1024
        eventually(
            lambda: any(log.end_position > window - 2048 for log in group.state().logs), "it fills"
        )
        sender.kill()
        eventually(ended_within_a_message, "the session ends within a message")
        sender.start()
        eventually(lambda: len(group.state().logs) == 2, "the session returns")
        got: list[bytes] = []
        for batch in group.messages(limit=2, timeout_s=TIMEOUT_S):
            got += batch
            batch.commit()
            if len(got) == len(messages):
                break
        assert got == messages
        group.end()
