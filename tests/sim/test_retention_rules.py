# SPDX-License-Identifier: Apache-2.0
"""Retention in virtual time, and cores that break one of its rules: a generated scenario among the
first 2000 seeds finds each. Only seeds with the further stream are run."""

from __future__ import annotations

import attrs
import pytest
from support.old_core import OldCore, Patch
from support.seeds import seeds_with

from penstock.sim.scenario import (
    MS_NS,
    SECOND_NS,
    HostScript,
    PublisherScript,
    Scenario,
    SubscriberScript,
    two_hosts,
)
from penstock.sim.world import World

#: Seeds of one kind that are run at most.
TRIED = 12
COUNT = 2000
_MEDIA = {
    "ipc": (0, "aeron:ipc?term-length=256k"),
    "unicast": (1, "aeron:udp?endpoint=10.0.0.2:40456|term-length=256k"),
    "multicast": (1, "aeron:udp?endpoint=239.20.0.1:40456|term-length=256k"),
    "mdc": (1, "aeron:udp?endpoint=10.0.0.2:40456|control=10.0.0.1:40456|control-mode=dynamic"
               "|fc=min|term-length=256k"),
    "spy": (0, "aeron-spy:aeron:udp?endpoint=10.0.0.2:40456|term-length=256k"),
}


def stream(medium: str, limit: str, pause: tuple[int, int]) -> Scenario:
    """A stream of one message a millisecond, to a reader that keeps up and one that pauses."""
    host, channel = _MEDIA[medium]
    channel = f"{channel}|{limit}"
    inward = channel.removeprefix("aeron-spy:")
    out = inward.replace("endpoint=10.0.0.2:40456|", "") if medium == "mdc" else inward
    fast = SubscriberScript(
        host=1 if medium == "spy" else host, channel=inward, stream_id=7, may_join_late=True,
    )
    reader = SubscriberScript(
        host=host, channel=channel, stream_id=7, may_miss=True, pauses=(pause,),
    )
    base = two_hosts(loss_ppm=0, delay_ns=MS_NS)
    return attrs.evolve(
        base,
        publishers=(PublisherScript(
            host=0, channel=out, stream_id=7, count=COUNT, size_low=100, size_high=100,
            start_ns=SECOND_NS, interval_ns=MS_NS,
        ),),
        subscribers=(fast, reader),
    )


@pytest.mark.parametrize("medium", _MEDIA)
@pytest.mark.parametrize(("limit", "kept"), [
    ("ps-retention=16k", 16 * 1024 // 160), ("ps-retention-time=150ms", 150),
    ("ps-retention=32k|ps-retention-time=60ms", 60),
])
def test_a_reader_that_pauses_gets_what_is_retained(medium: str, limit: str, kept: int) -> None:
    """400 messages are published during the pause, all of which fit into the windows."""
    begin = SECOND_NS + 500 * MS_NS
    with World(stream(medium, limit, (begin, begin + 400 * MS_NS)), 1) as world:
        assert world.run().violations == ()
        (ledger,) = world.publishers[0].ledgers
        fast, slow = (reader.reader(ledger) for reader in world.subscribers)
        assert fast.missed == 0
        assert slow.messages + slow.missed + max(slow.first, 0) == COUNT
        assert slow.uncounted == 0
        assert 400 - kept - 12 <= slow.missed <= 400 - kept + 6


def test_a_new_daemon_keeps_the_limit() -> None:
    """The daemons of both hosts die and are adopted while the reader pauses."""
    begin = SECOND_NS + 300 * MS_NS
    crash = SECOND_NS + 400 * MS_NS
    for medium in ("ipc", "unicast"):
        scenario = stream(medium, "ps-retention=8k", (begin, begin + 900 * MS_NS))
        fast, slow_reader = scenario.subscribers    # without a daemon no reader is woken
        scenario = attrs.evolve(scenario, subscribers=(
            attrs.evolve(fast, may_miss=True), slow_reader), machines=tuple(
            HostScript(host=host, adopt=True, crash_ns=crash, restart_ns=crash + 10 * MS_NS)
            for host in (0, 1)
        ))
        with World(scenario, 1) as world:
            assert world.run().violations == ()
            (ledger,) = world.publishers[0].ledgers
            slow = world.subscribers[1].reader(ledger)
            assert slow.messages + slow.missed == COUNT
            assert slow.missed >= 700


@pytest.fixture(scope="module")
def wrong_core(tmp_path_factory: pytest.TempPathFactory) -> OldCore:
    return OldCore(tmp_path_factory.mktemp("wrong-retention"))


_FILE = "ps_client_image_retention.c"
#: The rule that is broken, the kind of stream that meets it, and how.
WRONG = (
    ("retains too many bytes", "bytes", Patch(
        file=_FILE, now="newest_of(image) - retention->bytes : 0",
        old="newest_of(image) - 2 * retention->bytes : 0",
    )),
    ("retains data for too long", "age", Patch(
        file=_FILE, now="now_ns - retention->age_ns, image->delivered);",
        old="now_ns - retention->age_ns * 5 / 4, image->delivered);",
    )),
    ("drops data that is within the bytes", "bytes", Patch(
        file=_FILE, now="newest_of(image) - retention->bytes : 0",
        old="newest_of(image) - retention->bytes * 3 / 4 : 0",
    )),
    ("drops data before the time has passed", "age", Patch(
        file=_FILE, now="now_ns - retention->age_ns, image->delivered);",
        old="now_ns - retention->age_ns * 3 / 4, image->delivered);",
    )),
    ("counts the messages that it drops wrong", "bytes", Patch(
        file=_FILE, now="walk->messages + ps_frame_messages(frame);",
        old="walk->messages + 2 * ps_frame_messages(frame);",
    )),
    ("does not report what it drops", "bytes", Patch(
        file=_FILE, now="image->gap_to = to.position;", old="image->gap_to = image->gap_from;",
    )),
    ("does not state the limit in the SETUP", "network", Patch(
        file="ps_wire_trailer.c",
        now="if (trailer->retention_bytes > 0 || trailer->retention_ns > 0) {",
        old="if (0) {",
    )),
)


@pytest.mark.parametrize(
    ("kind", "patch"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG]
)
def test_a_generated_scenario_finds_a_core_that(
    kind: str, patch: Patch, wrong_core: OldCore
) -> None:
    assert wrong_core.finds(seeds_with(f"retention: {kind}", TRIED), (patch,))
