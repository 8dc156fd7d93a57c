# SPDX-License-Identifier: Apache-2.0
"""Consumer groups that grant credits: N messages at most are sent and not committed; the group
withholds; a dead member's credits return with the batch that another member receives."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import attrs
import pytest
from support.hosts import PenstockHost

import penstock
from loopback.conftest import NewHost
from loopback.streams import PASSING, eventually
from penstock import Client, ConsumerGroup, Credits, Offer, Publication
from penstock.client import GroupRefused

STREAM = 4500
NUMBER = 5
REFUSED = (Offer.NO_CREDIT, Offer.NOT_CONNECTED)


def cli(action: str, *args: str, host: PenstockHost) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock", action, str(STREAM), *args]
    return subprocess.run(
        [*command, f"--dir={host.directory}"], capture_output=True, text=True, check=False,
        timeout=120,
    )


@attrs.frozen(kw_only=True)
class Work:
    """A group with credits, one of its members, and a publisher."""

    host: PenstockHost
    client: Client
    group: ConsumerGroup
    publication: Publication

    def offered(self) -> int:
        """Publish until there is no credit; return the number of messages."""
        sent = 0
        while (code := self.publication.offer(b"%d" % sent)) != Offer.NO_CREDIT:
            assert code > 0 or code in PASSING, code
            sent += code > 0
            assert sent <= NUMBER, "more messages were sent than the group granted"
        return sent

    def fill(self) -> None:
        """Publish NUMBER messages. After a resume, the credits need a moment to return."""
        sent = 0

        def filled() -> bool:
            nonlocal sent
            sent += self.offered()
            return sent >= NUMBER

        eventually(filled, "the credits did not return")
        assert (sent, self.offered()) == (NUMBER, 0)
        eventually(self.arrived, "the messages did not arrive")

    def arrived(self) -> bool:
        return [log.end_position for log in self.group.state().logs] == [self.publication.position]

    def available(self) -> int:
        return int(self.publication.credits.available)

    def refills(self, number: int = NUMBER) -> None:
        eventually(lambda: self.available() == number, f"{number} credits did not return")


@pytest.fixture(params=["ipc", "unicast"])
def work(
    request: pytest.FixtureRequest, host: PenstockHost, peer: PenstockHost,
    port: Callable[[], int],
) -> Iterator[Work]:
    near, channel = (host, "aeron:ipc?term-length=64k") if request.param == "ipc" else \
        (peer, f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k")
    with (
        penstock.connect(host.directory, name="worker") as client,
        penstock.connect(near.directory, name="sender") as sender,
        client.consumer_group(f"g{id(request)}", channel, STREAM, credits=NUMBER) as group,
        sender.add_publication(channel, STREAM) as publication,
    ):
        made = Work(host=host, client=client, group=group, publication=publication)
        made.refills()
        yield made
        with contextlib.suppress(penstock.PenstockError):
            group.end()


def test_a_commit_returns_the_credits_of_a_batch(work: Work) -> None:
    work.fill()
    batch = work.group.recv_batch(limit=2, timeout_s=60)
    assert (len(batch), work.available()) == (2, 0)
    rest = work.group.recv_batch(timeout_s=60)
    assert work.publication.offer(b"held") == Offer.NO_CREDIT
    batch.commit()
    work.refills(2)
    rest.commit()
    work.refills()
    for _ in range(3):
        work.fill()
        work.group.recv_batch(timeout_s=60).commit()
        work.refills()


def test_withhold_waits_until_members_committed_everything(work: Work) -> None:
    work.fill()
    got: list[bytes] = []
    work.group.withhold(60, lambda batch: got.extend(map(bytes, batch)))
    assert len(got) == NUMBER
    assert work.publication.offer(b"withheld") == Offer.NO_CREDIT
    [log] = work.group.state().logs
    assert log.committed == log.end_position == work.publication.position
    work.group.withhold(60)                     # there is nothing to do
    work.group.resume()
    work.refills()
    work.fill()


def test_a_late_withhold_names_the_members_with_open_batches(work: Work) -> None:
    work.fill()
    batch = work.group.recv_batch(limit=2, timeout_s=60)
    with pytest.raises(penstock.WithholdTimeout, match="worker") as caught:
        work.group.withhold(0.5)
    [image] = caught.value.outstanding
    assert (image.state, image.final, image.returned) == ("settled", NUMBER, 0)
    [held] = image.batches
    assert (held.client, held.pid) == ("worker", os.getpid())
    assert (held.start_position, held.position) == (batch.start_position, batch.position)
    batch.commit()
    work.refills(2)                             # the publishers continue
    assert work.publication.offer(b"again") > 0


def test_a_drained_group_stays_withheld_for_its_next_member(work: Work) -> None:
    work.fill()
    work.group.drain(60, lambda batch: None)
    assert work.group.is_closed
    assert work.publication.offer(b"withheld") == Offer.NO_CREDIT
    with work.client.consumer_group(
        work.group.name, work.group.channel, STREAM, credits=NUMBER
    ) as again:
        assert work.publication.offer(b"withheld") == Offer.NO_CREDIT
        again.resume()
        work.refills()
        again.end()
    eventually(lambda: work.publication.offer(b"x") == Offer.NOT_CONNECTED, "it has a reader")


def test_an_operator_withholds_a_group(work: Work) -> None:
    work.fill()
    late = cli("withhold", "--timeout", "0.2", "--json", host=work.host)
    assert late.returncode == 2
    [reader] = json.loads(late.stdout)["readers"]
    assert (reader["client"], reader["final"], reader["returned"]) == (work.group.name, NUMBER, 0)
    work.group.recv_batch(timeout_s=60).commit()
    assert cli("withhold", host=work.host).returncode == 0
    assert work.publication.offer(b"withheld") == Offer.NO_CREDIT
    assert cli("resume", host=work.host).returncode == 0
    work.refills()
    assert cli("drain", host=work.host).returncode == 0
    assert work.publication.offer(b"withheld") == Offer.NO_CREDIT


def test_the_credits_of_a_killed_member_return_with_the_batch(work: Work) -> None:
    argv = [
        "-m", "support.member", f"--dir={work.host.directory}",
        f"--channel={work.group.channel}", f"--stream={STREAM}", f"--name={work.group.name}",
        "--limit=3", "--commit=0",
    ]
    with work.host.run(*argv) as member:
        member.wait("joined")
        work.fill()
        held = member.wait("held")["messages"]
        member.signal(signal.SIGKILL)
        member.process.wait()
    assert work.available() == 0                # the messages are not processed yet
    batches = work.group.messages(limit=len(held), timeout_s=60)
    first = next(batches)
    assert [message.decode() for message in first] == held
    first.commit()
    work.refills(len(held))
    work.group.withhold(60, lambda batch: None)
    work.group.resume()
    work.refills()


def test_a_new_daemon_continues_the_credits_of_a_group(
    new_host: NewHost, port: Callable[[], int]
) -> None:
    near, far = new_host(), new_host()
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k"
    with (
        penstock.connect(far.directory, name="worker") as client,
        penstock.connect(near.directory, name="sender") as sender,
        client.consumer_group("adopted", channel, STREAM, credits=NUMBER) as group,
        sender.add_publication(channel, STREAM) as publication,
    ):
        made = Work(host=far, client=client, group=group, publication=publication)
        made.refills()
        for _ in range(3):
            made.fill()
            group.recv_batch(timeout_s=60).commit()
            made.refills()
        made.fill()
        group.recv_batch(limit=2, timeout_s=60).commit()
        made.refills(2)
        far.kill()
        far.start()
        made.refills(2)
        group.withhold(60, lambda batch: None)
        far.kill()
        far.start()
        eventually(made.arrived, "the new daemon does not know the group")
        for _ in range(50):
            assert publication.offer(b"withheld") in REFUSED
        group.resume()
        made.refills()
        made.fill()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_awaited_withhold_of_a_group(host: PenstockHost, backend: str) -> None:
    stream = STREAM + (1 if backend == "trio" else 5)

    async def test() -> None:
        async with (
            penstock.open_client(host.directory) as client,
            await client.consumer_group(
                "awaited", "aeron:ipc", stream, credits=4
            ) as group,
            await client.add_publication("aeron:ipc", stream) as publication,
        ):
            await publication.send(b"one", 60)
            with pytest.raises(penstock.WithholdTimeout):
                await group.withhold(0.1)
            got: list[int] = []
            await group.withhold(60, lambda batch: got.append(len(batch)))
            assert got == [1]
            assert await publication.send(b"x", on_no_credit="drop") == Offer.NO_CREDIT
            await group.resume()
            await publication.send(b"two", 60)
            await group.drain(60, lambda batch: None)

    anyio.run(test, backend=backend)


def test_credits_of_a_group_are_checked(host: PenstockHost, client: Client) -> None:
    refused: list[dict[str, Any]] = [{"handles": True}, {"leak": "reclaim"}, {"pool": "client"}]
    for options in refused:
        credits = Credits(5, **options)
        with pytest.raises(penstock.InvalidArgument, match=r"group g .*the commit of a batch"):
            client.consumer_group("g", "aeron:ipc", STREAM, credits=credits)
    with client.consumer_group("plain", "aeron:ipc", STREAM + 2) as group, \
            pytest.raises(GroupRefused, match="of group plain"):
        group.withhold(1)
    with penstock.connect(host.directory, credits=5) as pooled:
        with pytest.raises(penstock.InvalidArgument, match="a consumer group is not one of them"):
            pooled.consumer_group("g", "aeron:ipc", STREAM)
        with pooled.consumer_group("own", "aeron:ipc", STREAM + 3, credits=2) as group:
            assert group.channel == "aeron:ipc?ps-credits=2"
            group.end()
