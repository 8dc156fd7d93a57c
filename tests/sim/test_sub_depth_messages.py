# SPDX-License-Identifier: Apache-2.0
"""``ps-sub-depth=…msg`` in virtual time: a reader may be a number of messages behind. A stopped
reader does not hold a publication with ``ps-depth=…msg``."""

from __future__ import annotations

import attrs
import pytest

from penstock.sim.core import Link
from penstock.sim.scenario import (
    MS_NS,
    SECOND_NS,
    HostScript,
    PublisherScript,
    Scenario,
    SubscriberScript,
    host_ip,
)
from penstock.sim.world import World

UDP = f"aeron:udp?endpoint={host_ip(1)}:40456|rcv-wnd=32k"
GROUP = "aeron:udp?endpoint=239.20.0.1:40456|interface=10.0.0.0/24|fc=min|rcv-wnd=32k"
CONTROL = f"control={host_ip(0)}:40456|control-mode=dynamic"
#: The readers' hosts, their channel and the publisher's.
MEDIA = {
    "ipc": ((0, 0), "aeron:ipc?x", "aeron:ipc?x"),
    "unicast": ((1, 1), UDP, UDP),
    "multicast": ((1, 2), GROUP, GROUP),
    "mdc": ((1, 2), f"aeron:udp?{CONTROL}|endpoint=HOST:40456|rcv-wnd=32k",
            f"aeron:udp?{CONTROL}|fc=min"),
    "spy": ((0, 0), f"aeron-spy:{UDP}", f"{UDP}|ssc=true"),
}
BEGIN = SECOND_NS + 500 * MS_NS


def readers(
    medium: str, policy: str, *, options: str = "", count: int = 2000, size: int = 20,
    begin_ns: int = BEGIN, stopped_ms: int = 100, loss_ppm: int = 0,
    machines: tuple[HostScript, ...] = (),
) -> Scenario:
    """A message a millisecond to a reader that stops, and to one that reads on. Without a policy,
    the publication's policy is the readers'."""
    hosts, read, published = MEDIA[medium]
    published = f"{published}|term-length=64k{options}".replace("?x|", "?")
    where = [read.replace("HOST", host_ip(host)) for host in hosts]
    shared = "|ps-policy=drop_oldest" if "drop_oldest" in options else ""   # they expect gaps
    own = f"|ps-sub-policy={policy}" if policy else shared
    stopping, reading = (f"{channel}{stated}".replace("?x|", "?").replace("?x", "")
                         for channel, stated in zip(where, (own, shared), strict=True))
    return Scenario(
        name=f"a depth in messages on {medium}", hosts=3, machines=machines,
        link=Link(delay_ns=MS_NS, loss_ppm=loss_ppm),
        publishers=(PublisherScript(
            host=0, channel=published, count=count, size_low=size, size_high=size,
            start_ns=SECOND_NS, interval_ns=MS_NS,
        ),),
        subscribers=(
            SubscriberScript(host=hosts[0], channel=stopping, may_miss=True,
                             pauses=((begin_ns, begin_ns + stopped_ms * MS_NS),)),
            SubscriberScript(host=hosts[1], channel=reading, may_miss=bool(shared)),
        ),
    )


@pytest.mark.parametrize("loss_ppm", [0, 10_000])
@pytest.mark.parametrize("depth", ["20msg", "16k,20msg"])
@pytest.mark.parametrize("medium", MEDIA)
def test_a_reader_skips_to_the_newest_messages(medium: str, depth: str, loss_ppm: int) -> None:
    """100 messages of 64 bytes are behind, far less than half of the window."""
    scenario = readers(medium, f"drop_oldest|ps-sub-depth={depth}", loss_ppm=loss_ppm)
    with World(scenario, 1) as world:
        result = world.run()
        assert result.violations == ()
        (ledger,) = world.publishers[0].ledgers
        stopped, other = (reader.reader(ledger) for reader in world.subscribers)
        assert stopped.uncounted == 0
        assert stopped.messages + stopped.missed == 2000
        # The reader skips once. A lost datagram may make a few messages late or early.
        assert abs(stopped.missed - (100 - 20)) <= (1 if loss_ppm == 0 else 40)
        assert other.messages == 2000


@pytest.mark.parametrize("loss_ppm", [0, 10_000])
@pytest.mark.parametrize("depth", ["1msg", "20msg", "16k,20msg"])
@pytest.mark.parametrize("medium", MEDIA)
def test_the_depth_in_messages_of_a_publication_is_that_of_its_readers(
    medium: str, depth: str, loss_ppm: int
) -> None:
    """Under ``ps-policy=drop_oldest`` the readers state nothing."""
    options = f"|ps-policy=drop_oldest|ps-depth={depth}"
    with World(readers(medium, "", options=options, loss_ppm=loss_ppm), 1) as world:
        assert world.run().violations == ()
        (ledger,) = world.publishers[0].ledgers
        (statistics,) = world.publishers[0].statistics()
        stopped, other = (reader.reader(ledger) for reader in world.subscribers)
        assert statistics.blocked_ns == 0
        assert world.native.ledger_dropped(ledger) == 0
        assert stopped.uncounted == 0
        assert stopped.messages + stopped.missed == 2000
        behind = 100 - int(depth.removesuffix("msg").rpartition(",")[2])
        if loss_ppm == 0:
            assert abs(stopped.missed - behind) <= 1
            assert other.messages == 2000
        else:       # the messages behind a repaired loss come at once
            assert stopped.missed >= behind - 40
            assert other.messages + other.missed == 2000


@pytest.mark.parametrize("size", [20, 1000, 3000])
@pytest.mark.parametrize("depth", ["1msg", "5msg", "1000msg"])
def test_a_depth_in_messages_does_not_depend_on_their_length(depth: str, size: int) -> None:
    # A reader is late 5 to 10 ms after data beyond its depth: 20 ms suffice for ten messages.
    stopped_ms = 25
    scenario = readers(
        "ipc", f"drop_oldest|ps-sub-depth={depth}", size=size, stopped_ms=stopped_ms
    )
    with World(scenario, 1) as world:
        assert world.run().violations == ()
        (ledger,) = world.publishers[0].ledgers
        stopped = world.subscribers[0].reader(ledger)
        behind = stopped_ms - int(depth.removesuffix("msg"))
        # Half of the window of an IPC stream has ten messages of 3,000 bytes.
        behind = max(behind, stopped_ms - 10 if size == 3000 else 0)
        assert abs(stopped.missed - behind) <= 1
        assert stopped.messages + stopped.missed == 2000


@pytest.mark.parametrize("policy", [
    "independent", "independent|ps-sub-depth=50msg", "drop_oldest", "drop_oldest|ps-sub-depth=4k",
])
@pytest.mark.parametrize("depth", ["1msg", "20msg", "64k,20msg", "4k", "8k,20msg"])
@pytest.mark.parametrize("medium", ["ipc", "spy", "unicast", "multicast"])
def test_a_stopped_reader_does_not_hold_the_publisher(
    medium: str, depth: str, policy: str
) -> None:
    depth = depth.replace("64k", "32k" if medium != "ipc" else "64k")
    scenario = readers(medium, policy, options=f"|ps-policy=block|ps-depth={depth}",
                       count=6000, stopped_ms=4000)
    with World(scenario, 1) as world:
        assert world.run().violations == ()
        (statistics,) = world.publishers[0].statistics()
        (ledger,) = world.publishers[0].ledgers
        stopped, other = (reader.reader(ledger) for reader in world.subscribers)
        assert statistics.blocked_ns == 0
        assert stopped.messages + stopped.missed == 6000
        assert other.messages == 6000


@pytest.mark.parametrize("policy", ["independent", "drop_oldest"])
@pytest.mark.parametrize("depth", ["1msg", "20msg"])
@pytest.mark.parametrize("medium", ["ipc", "spy", "unicast", "multicast"])
@pytest.mark.parametrize("count", range(900, 1100, 20))
def test_a_stopped_reader_without_others_does_not_hold_the_publisher(
    medium: str, depth: str, policy: str, count: int
) -> None:
    """The only reader stops anywhere in a term of 1,024 messages."""
    scenario = readers(medium, policy, options=f"|ps-policy=block|ps-depth={depth}",
                       count=4000, begin_ns=SECOND_NS + count * MS_NS, stopped_ms=2000)
    scenario = attrs.evolve(scenario, subscribers=scenario.subscribers[:1])
    with World(scenario, 1) as world:
        assert world.run().violations == ()
        (statistics,) = world.publishers[0].statistics()
        (ledger,) = world.publishers[0].ledgers
        stopped = world.subscribers[0].reader(ledger)
        assert statistics.blocked_ns == 0
        assert stopped.messages + stopped.missed == 4000


@pytest.mark.parametrize(("policy", "options"), [
    ("drop_oldest|ps-sub-depth=20msg", ""), ("", "|ps-policy=drop_oldest|ps-depth=20msg"),
])
@pytest.mark.parametrize("medium", ["ipc", "unicast", "spy"])
def test_a_new_daemon_counts_the_messages_that_a_reader_is_behind(
    medium: str, policy: str, options: str
) -> None:
    crash = BEGIN + 40 * MS_NS
    host = MEDIA[medium][0][0]
    scenario = readers(
        medium, policy, options=options, stopped_ms=200,
        machines=(HostScript(host=host, adopt=True, crash_ns=crash,
                             restart_ns=crash + 10 * MS_NS),),
    )
    with World(scenario, 1) as world:
        assert world.run().violations == ()
        (ledger,) = world.publishers[0].ledgers
        stopped = world.subscribers[0].reader(ledger)
        assert stopped.messages + stopped.missed == 2000
        assert stopped.missed > 100
