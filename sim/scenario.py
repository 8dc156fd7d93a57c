# SPDX-License-Identifier: Apache-2.0
"""Values that a run simulates. A run depends only on its scenario and its seed. Times are in
nanoseconds of virtual time, probabilities in parts per million. The module
``penstock.sim.files`` reads and writes scenarios as TOML.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from penstock.sim.core import Link

MS_NS: Final = 1_000_000
SECOND_NS: Final = 1_000_000_000
#: The shortest duty cycle: the delay of a host that requests an immediate call.
CYCLE_NS: Final = 1_000


def host_ip(host: int) -> str:
    """The address of a host of a scenario."""
    return f"10.0.0.{host + 1}"


@attrs.frozen(kw_only=True)
class HostScript:
    """Special properties of a host; a value of None means the daemon's default."""

    host: int
    cycle_ns: int = CYCLE_NS            # a slow machine takes longer from step to step
    window_bytes: int | None = None     # receiver window
    rcvbuf_bytes: int | None = None
    max_gaps: int | None = None         # 1: one gap at a time, as other drivers recover
    group_tag: int | None = None
    driver: tuple[tuple[str, int], ...] = ()    # other parameters of the driver, by name
    hangup_ns: int = 0                  # until the death of an application is noticed
    crash_ns: int | None = None         # the daemon and its applications die
    restart_ns: int | None = None       # and come back with an empty directory
    adopt: bool = False  # only the daemon dies, and a new daemon continues its streams
    full: tuple[tuple[int, int], ...] = ()      # then its sockets take nothing
    short_send_ppm: int = 0             # of calls that send: only a part is taken
    strategy_delay_ns: int = 0          # until a strategy in Python has answered
    conductor_ns: int = 0               # from one turn of its conductor to the next, at least
    idle_ns: int = 0                    # a stream that rests so long gives memory back; 0: never
    small_term_bytes: int | None = None     # up to this two terms stay
    budget_bytes: int | None = None     # of storage for streams


@attrs.frozen(kw_only=True)
class LinkRule:
    """A rule states the properties of the link from the host ``sender`` to the host ``receiver``
    (-1: all hosts). The rule applies from ``from_ns`` to ``until_ns``, or permanently. If several
    rules apply to a link at the same time, the last of these rules in the scenario counts.
    """

    sender: int = -1
    receiver: int = -1
    both: bool = False                  # and the way back
    link: Link
    from_ns: int = 0
    until_ns: int | None = None         # then what was before


@attrs.frozen(kw_only=True)
class Drop:
    """Lists the ``numbers`` of the datagrams that a link drops. Each link numbers its datagrams
    from 0, from the start of the run on.
    """

    sender: int
    receiver: int
    numbers: tuple[int, ...]


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
    relayed: bool = False               # the stream is in the background band, as a relay's are
    pauses: tuple[tuple[int, int], ...] = ()
    reserved: bool = False              # each message has a reserved value
    claims: bool = False                # some messages are claimed, some claims are aborted
    crash_ns: int | None = None         # dies without a word
    hangup_ns: int = 0                  # until its death is noticed
    blocked_ns: int | None = None       # it is held for so long at most, in all


@attrs.frozen(kw_only=True)
class SubscriberScript:
    """An application that subscribes at ``start_ns``. From ``start_ns`` on, the application must
    receive all messages of the stream's publishers, in order. With ``may_join_late``, the
    application may miss messages before the first message that it receives. With ``may_miss``, the
    application may miss messages, but gaps must report the missing messages."""

    host: int
    channel: str
    stream_id: int = 1001
    start_ns: int = 0
    may_join_late: bool = False
    may_miss: bool = False
    poll_limit: int = 64
    interval_ns: int = 0                # between polls that gave something: a slow reader
    batch: int = 0                      # > 0: messages taken and released every ``interval_ns``
    pauses: tuple[tuple[int, int], ...] = ()
    withholds: tuple[tuple[int, int], ...] = ()     # of its credits; it reads on
    paces: tuple[tuple[int, int, int], ...] = ()    # from when on: other interval_ns and batch
    crash_ns: int | None = None         # dies without a word
    restart_ns: int | None = None       # and comes back as a new application
    latency_ns: int | None = None       # from acceptance to delivery, at most, of every message
    refuses: bool = False               # its policy contradicts the stream's: it gets no image
    client: int = 0  # subscriptions of a host with the same number share a client; 0: its own


@attrs.frozen(kw_only=True)
class RelayScript:
    """An application that runs :func:`penstock.relay`. Each of its deaths is a ``kill -9``; then
    the relay's next process starts ``restart_ns`` later."""

    host: int
    source: str
    source_stream: int
    target: str
    target_stream: int
    start_ns: int = 0
    interval_ns: int = 0                # between turns in which it relayed something: a slow relay
    pauses: tuple[tuple[int, int], ...] = ()
    kills: tuple[int, ...] = ()         # times at which it dies
    #: Points of its work at which it dies: 2 n is before its n-th offer, 2 n + 1 is after this
    #: offer was accepted and before the relay has recorded it; offers are counted from 0.
    kill_points: tuple[int, ...] = ()
    restart_ns: int = 100 * MS_NS
    linger_ns: int = 60 * SECOND_NS
    may_join_late: bool = False         # a session of its source may have begun before it reads it
    circle: bool = False                # its target leads back to a relay of its path


#: Kinds of misbehaving receivers of a group.
MISFITS: Final = (
    "never joins", "random ids", "crowd", "silent", "leaves", "shut", "frozen",
)
#: And one that keeps up, without penstock's extensions; and one that sends in the sender's name.
GROUP_RECEIVERS: Final = (*MISFITS, "plain", "forges")


@attrs.frozen(kw_only=True)
class MisfitScript:
    """A receiver that misbehaves: once in each interval, it sends a datagram that violates the
    rules of the stream's group."""

    host: int
    stream_id: int = 1001
    kind: str                           # one of GROUP_RECEIVERS
    from_ns: int = 0
    until_ns: int
    interval_ns: int = 100 * MS_NS


@attrs.frozen(kw_only=True)
class Budget:
    """Bounds on measurements of a run, such as the number of NAKs or the time. None: the
    measurement has no bound.
    """

    end_after_ns: int | None = None
    end_before_ns: int | None = None
    naks: int | None = None             # at most
    naks_per_loss_ppm: int | None = None        # of datagrams lost, at most
    resent_ppm: int | None = None  # most bytes retransmitted, as a share of the bytes sent once
    status_messages_ppm: int | None = None      # of data datagrams, at most
    ext_least: int | None = None        # frames of our own
    ext: int | None = None              # at most
    missed_least: int | None = None     # messages in explicit gaps
    missed_most: int | None = None
    gaps_least: int | None = None       # explicit gaps
    blocked_ns: int | None = None       # of any publisher, at most
    goodput_least: int | None = None    # delivered bytes a second, of the slowest reader
    #: Rates of every reader between two moments, in bytes a second, and their Jain's index.
    rate_from_ns: int | None = None
    rate_until_ns: int | None = None
    rate_least: int | None = None
    rate_most: int | None = None
    fairness_least_ppm: int | None = None


@attrs.frozen(kw_only=True)
class Scenario:
    name: str
    about: str = ""
    link: Link
    hosts: int = 2
    host_names: tuple[str, ...] = ()
    machines: tuple[HostScript, ...] = ()
    links: tuple[LinkRule, ...] = ()
    drops: tuple[Drop, ...] = ()
    publishers: tuple[PublisherScript, ...]
    subscribers: tuple[SubscriberScript, ...]
    relays: tuple[RelayScript, ...] = ()
    misfits: tuple[MisfitScript, ...] = ()
    budget: Budget = Budget()
    #: Datagrams to or from this port pass every link in ``calm_delay_ns``; 0: none.
    calm_port: int = 0
    calm_delay_ns: int = MS_NS
    limit_ns: int = 120 * SECOND_NS     # of virtual time: a run that lasts longer has failed
    #: Damaged datagrams may get past the checksum: only that the run ends is asked.
    hostile: bool = False
    classes: tuple[str, ...] = ()       # what kind of scenario it is, for the histogram

    def host_name(self, host: int) -> str:
        return self.host_names[host] if host < len(self.host_names) else f"h{host}"


def two_hosts(
    *, count: int = 5000, loss_ppm: int = 50_000, delay_ns: int = 20 * MS_NS
) -> Scenario:
    """Return a scenario with one unicast stream over a link with a long delay and losses."""
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
    """Return a scenario with one multicast stream to several hosts."""
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


def reference(*, count: int = 100_000) -> Scenario:
    """Return the scenario that measures the simulator's speed. The scenario has two hosts, a link
    with 1 Gb/s and 1 % loss, and messages of 1344 bytes."""
    channel = f"aeron:udp?endpoint={host_ip(1)}:40456"
    return Scenario(
        name="reference",
        link=Link(delay_ns=100_000, bandwidth_bytes_per_s=125_000_000, loss_ppm=10_000),
        publishers=(
            PublisherScript(
                host=0,
                channel=channel + "|term-length=16m",
                count=count,
                size_low=1344,
                size_high=1344,
                exclusive=True,
            ),
        ),
        subscribers=(SubscriberScript(host=1, channel=channel + "|rcv-wnd=1m"),),
        machines=(HostScript(host=1, rcvbuf_bytes=2 << 20),),
    )


SCENARIOS: Final[dict[str, Callable[[], Scenario]]] = {
    "two-hosts": two_hosts,
    "multicast": multicast,
    "reference": reference,
}
