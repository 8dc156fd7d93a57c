# SPDX-License-Identifier: Apache-2.0
"""Streams whose first reader withholds its credits, on paths that lose 3 %.

``python tests/support/withheld.py --seeds 1000`` checks in each seed that nothing is in flight and
nothing is buffered while the credits are withheld.  A seed chooses the medium, the credits, the
sizes of the messages and the kind of publication.
"""

from __future__ import annotations

import random
import sys
from typing import Final

import click

from penstock.core.credits import CreditState
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
from penstock.sim.world.world import Report

WITHHELD: Final = (2 * SECOND_NS, 4 * SECOND_NS)
LOSSY: Final = Link(delay_ns=5 * MS_NS, loss_ppm=30_000)
COUNT: Final = 2000
TAG: Final = 7
MEDIA: Final = ("ipc", "unicast", "multicast", "tagged", "mdc", "spy")


def _channels(medium: str) -> tuple[str, str]:
    """Return the channels of the publisher and of the first reader."""
    if medium == "ipc":
        return "aeron:ipc", "aeron:ipc"
    if medium in ("multicast", "tagged"):
        group = "aeron:udp?endpoint=239.20.0.1:40456|interface=10.0.0.0/24"
        return (f"{group}|fc=tagged,g:{TAG}" if medium == "tagged" else group), group
    if medium == "mdc":
        control = f"control={host_ip(0)}:40456|control-mode=dynamic"
        return f"aeron:udp?{control}", f"aeron:udp?endpoint={host_ip(1)}:40457|{control}"
    there = f"aeron:udp?endpoint={host_ip(1)}:40456"
    return there, f"aeron-spy:{there}" if medium == "spy" else there


def withheld(
    medium: str, *, number: int, readers: int = 1, size: int = 500, exclusive: bool = False
) -> Scenario:
    """Return a stream whose first reader withholds for two seconds. A spy's stream has a receiver
    without credits, too."""
    outward, inward = _channels(medium)
    first = 0 if medium in ("ipc", "spy") else 1
    granting = f"{inward}{'|' if '?' in inward else '?'}ps-credits={number}"
    plain = SubscriberScript(host=1, channel=outward)
    return Scenario(
        name=f"withheld {medium}",
        hosts=2 if medium == "spy" else 1 + (readers if first else 0),
        link=LOSSY,
        machines=(HostScript(host=1, group_tag=TAG),) if medium == "tagged" else (),
        publishers=(
            PublisherScript(host=0, channel=outward, count=COUNT, size_low=1, size_high=size,
                            start_ns=3 * SECOND_NS // 2, interval_ns=MS_NS, exclusive=exclusive),
        ),
        subscribers=tuple(
            SubscriberScript(
                host=first + (index if first else 0), channel=granting,
                withholds=(WITHHELD,) if index == 0 else (),
                may_join_late=index > 0,
            )
            for index in range(readers)
        ) + ((plain,) if medium == "spy" else ()),
    )


def check(scenario: Scenario, seed: int, *, readers: int = 1) -> Report:
    """Run the scenario. Check at the end of the withhold that each accepted message was released.

    :raises AssertionError: one was not.
    """
    with World(scenario, seed) as world:
        world.run_until(WITHHELD[1] - MS_NS)
        views = [view for app in world.subscribers[:readers] for view in app.credits()]
        assert len(views) == readers
        assert views[0].state == CreditState.SETTLED
        assert views[0].returned == views[0].final > 0
        assert views[0].passed == views[0].final
        published = sum(s.messages for s in world.publishers[0].statistics())
        assert all(view.passed <= published for view in views)
        assert views[0].passed == published or readers > 1
        assert published < COUNT
        report = world.run()
    assert report.violations == ()
    return report


def drawn(seed: int) -> Scenario:
    """Return the scenario of a seed: one reader."""
    rng = random.Random(f"withheld {seed}")
    return withheld(
        MEDIA[seed % len(MEDIA)], number=rng.choice([1, 2, 5, 20, 100, 1000]),
        size=rng.choice([1, 500, 1376, 6000]), exclusive=rng.random() < 0.5,
    )


@click.command()
@click.option("--seeds", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--start", type=int, default=0, show_default=True)
def main(seeds: int, start: int) -> None:
    """Check that a withhold leaves nothing in flight; exit with 1 if a seed fails."""
    failed = []
    for seed in range(start, start + seeds):
        try:
            check(drawn(seed), seed)
        except AssertionError as error:
            failed.append(seed)
            click.echo(f"seed {seed}: {drawn(seed).name}: {error}", err=True)
    click.echo(f"{seeds} seeds, {len(failed)} failed {failed or ''}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
