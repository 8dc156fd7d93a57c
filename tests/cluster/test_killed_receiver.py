# SPDX-License-Identifier: Apache-2.0
"""A receiver of three is killed: under ``min`` the others wait for its time-out, under ``nak`` they
do not notice.  Both streams run at once through the same daemons; then with nobody killed."""

from __future__ import annotations

import contextlib
import itertools
import signal
import statistics
from collections.abc import Callable

import attrs
import pytest
from support.hosts import PenstockHost
from support.processes import Peer

import penstock
from cluster.network import Network

pytestmark = [pytest.mark.needs_root, pytest.mark.alone]

Start = Callable[..., PenstockHost]
NAK, MIN = 1001, 1002
#: Of one port: the group tells them apart.
GROUPS = {NAK: "239.20.0.1:40456", MIN: "239.20.0.3:40456"}
#: On the publications: of nak the queue is large against what a busy machine's reader may miss.
OPTIONS = {NAK: "|fc=nak|term-length=1m", MIN: "|fc=min,t:2s|term-length=64k"}
TIMEOUT_S = 2.0
RATE = 400                              # messages a second
COUNT, KILL_AT = 2600, 1000
BIN_S = 0.5


@attrs.frozen(kw_only=True)
class Stream:
    """What the two that go on living have heard."""

    killed_at: float
    arrivals: list[list[float]]
    pressure: int                       # PRESSURE frames that the sender heard

    def silence_s(self) -> float:
        """The longest after the kill, of whoever heard nothing longest."""
        return max(
            later - earlier
            for times in self.arrivals
            for earlier, later in itertools.pairwise(times)
            if later > self.killed_at
        )

    def worst_share(self) -> float:
        """The worst bin after the kill, of the median of those before."""
        shares = []
        for times in self.arrivals:
            first = times[0] + BIN_S        # not the start
            before = _bins(times, first, self.killed_at)
            after = _bins(times, self.killed_at, times[-1])
            shares.append(min(after) / statistics.median(before))
        return min(shares)


def _bins(times: list[float], from_s: float, until_s: float) -> list[int]:
    counts = [0] * int((until_s - from_s) / BIN_S)
    for at in times:
        number = int((at - from_s) / BIN_S)
        if at >= from_s and number < len(counts):
            counts[number] += 1
    return counts


def _program(host: PenstockHost, stream: int, options: str, *args: str) -> Peer:
    channel = f"aeron:udp?endpoint={GROUPS[stream]}|interface=10.77.0.0/24{options}"
    return host.run(
        "-m", "support.steady", f"--dir={host.directory}", f"--channel={channel}",
        f"--stream={stream}", f"--count={COUNT}", *args,
    )


def _run(start: Start, *, kill: bool) -> dict[int, Stream]:
    hosts = [start(number) for number in range(4)]
    with contextlib.ExitStack() as stack:
        subs = {
            (stream, host): stack.enter_context(
                _program(hosts[host], stream, "", f"--mark={KILL_AT}")
            )
            for stream in (NAK, MIN) for host in (1, 2, 3)
        }
        for sub in subs.values():
            sub.wait("added")
        pubs = [
            stack.enter_context(
                _program(hosts[0], stream, OPTIONS[stream], f"--rate={RATE}")
            )
            for stream in (NAK, MIN)
        ]
        for peer in (*subs.values(), *pubs):
            peer.wait("connected" if peer in pubs else "image")
        for pub in pubs:
            pub.say()
        marks = {stream: subs[stream, 1].wait("mark")["at"] for stream in (NAK, MIN)}
        if kill:
            hosts[3].kill()
            for stream in (NAK, MIN):
                subs[stream, 3].signal(signal.SIGKILL)
        arrivals = {
            stream: [subs[stream, host].wait("done")["times"] for host in (1, 2)]
            for stream in (NAK, MIN)
        }
        with penstock.connect(hosts[0].directory) as client:
            signals = {
                row["stream_id"]: row["pressure_signals"]
                for row in client.status()["publications"]
            }
        for host in hosts:
            host.stop()
    return {
        stream: Stream(
            killed_at=max(marks.values()), arrivals=arrivals[stream], pressure=signals[stream]
        )
        for stream in (NAK, MIN)
    }


def test_under_min_the_others_wait_and_under_nak_they_do_not(lan: Network, start: Start) -> None:
    """A stall lasts: what a busy machine does to one run it does not do to three."""
    notified = []
    for _ in range(3):
        control, killed = _run(start, kill=False), _run(start, kill=True)
        assert TIMEOUT_S * 0.8 < killed[MIN].silence_s() < TIMEOUT_S + 1.5
        assert control[MIN].silence_s() < TIMEOUT_S * 0.5
        assert killed[NAK].pressure == control[NAK].pressure == 0   # every queue is far below
        assert killed[NAK].silence_s() < TIMEOUT_S * 0.5
        notified.append((killed[NAK].worst_share(), control[NAK].worst_share()))
        if killed[NAK].worst_share() >= 0.95:
            break
    print("worst bin under nak, of before (killed, control):", notified)
    print(f"silence under min: {killed[MIN].silence_s():.2f} s, control "
          f"{control[MIN].silence_s():.2f} s")
    assert any(share >= 0.95 for share, _ in notified), notified
