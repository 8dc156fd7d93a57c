# SPDX-License-Identifier: Apache-2.0
"""What a run simulates, as values.  A run is a function of (scenario, seed)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from penstock.core.sim import Link

MS_NS: Final = 1_000_000
SECOND_NS: Final = 1_000_000_000


def host_ip(host: int) -> str:
    """The address of a host of a scenario."""
    return f"10.0.0.{host + 1}"


@attrs.frozen(kw_only=True)
class PublisherScript:
    """An application that publishes ``count`` messages of ``size_low`` to ``size_high`` bytes."""

    host: int
    channel: str
    stream_id: int = 1001
    count: int
    size_low: int = 1
    size_high: int = 1000
    open_ns: int = 0
    start_ns: int = 0                   # of the first message
    interval_ns: int = 0                # between messages; 0: as fast as there is room
    exclusive: bool = False


@attrs.frozen(kw_only=True)
class SubscriberScript:
    """An application that receives, from ``start_ns`` on, what the publishers of the same stream
    send: all of it, in order; or, as one that ``may_join_late``, all of it from some message on."""

    host: int
    channel: str
    stream_id: int = 1001
    start_ns: int = 0
    may_join_late: bool = False


@attrs.frozen(kw_only=True)
class Scenario:
    name: str
    link: Link
    hosts: int = 2
    publishers: tuple[PublisherScript, ...]
    subscribers: tuple[SubscriberScript, ...]
    limit_ns: int = 120 * SECOND_NS     # of virtual time: a run that lasts longer has failed


def two_hosts(
    *, count: int = 5000, loss_ppm: int = 50_000, delay_ns: int = 20 * MS_NS
) -> Scenario:
    """One unicast stream over a long, lossy link."""
    channel = f"aeron:udp?endpoint={host_ip(1)}:40456"
    return Scenario(
        name="two-hosts",
        link=Link(delay_ns=delay_ns, loss_ppm=loss_ppm),
        publishers=(
            PublisherScript(host=0, channel=channel + "|term-length=1m", count=count),
        ),
        subscribers=(SubscriberScript(host=1, channel=channel),),
    )


def multicast(*, receivers: int = 2, count: int = 1000, loss_ppm: int = 20_000) -> Scenario:
    """One multicast stream to several hosts."""
    channel = "aeron:udp?endpoint=239.20.0.1:40456|interface=10.0.0.0/24"
    return Scenario(
        name="multicast",
        hosts=1 + receivers,
        link=Link(delay_ns=1 * MS_NS, loss_ppm=loss_ppm),
        publishers=(
            PublisherScript(
                host=0,
                channel=channel + "|term-length=1m",
                count=count,
                start_ns=SECOND_NS,
                interval_ns=1 * MS_NS,
            ),
        ),
        subscribers=tuple(
            # Once one receiver has answered, SETUP is not repeated: another may miss it.
            SubscriberScript(host=host, channel=channel, may_join_late=True)
            for host in range(1, 1 + receivers)
        ),
    )


SCENARIOS: Final[dict[str, Callable[[], Scenario]]] = {
    "two-hosts": two_hosts,
    "multicast": multicast,
}
