# SPDX-License-Identifier: Apache-2.0
"""The old behaviour behind each scenario of a known failure: by configuration where it can still be
had, as the old lines of the core where it cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs

from penstock.sim.scenario import SECOND_NS, HostScript, Scenario
from support.old_core import Patch


@attrs.frozen(kw_only=True)
class Old:
    """What a scenario of the library must not hold on."""

    scenario: str
    about: str
    complaint: str                      # of the oracles, in part
    change: Callable[[Scenario], Scenario] | None = None
    patches: tuple[Patch, ...] = ()


def _on_hosts(scenario: Scenario, hosts: range, **fields: Any) -> Scenario:
    machines = tuple(
        HostScript(**{**attrs.asdict(machine, recurse=False), **fields})
        if machine.host in hosts
        else machine
        for machine in scenario.machines
    )
    return attrs.evolve(scenario, machines=machines)


def single_gap(scenario: Scenario) -> Scenario:
    """One gap at a time, at both ends."""
    return _on_hosts(scenario, range(scenario.hosts), driver=(("loss_recovery", 1),))


def _request_at_once(scenario: Scenario) -> Scenario:
    eager = (("nak_multicast_max_backoff_ns", 1), ("nak_multicast_group_size", 1))
    lavish = (("retransmit_linger_ns", 0), ("retransmit_percent", 10_000))
    return _on_hosts(
        _on_hosts(scenario, range(1, scenario.hosts), driver=eager), range(1), driver=lavish
    )


def _heartbeats(scenario: Scenario) -> Scenario:
    return _on_hosts(scenario, range(scenario.hosts), hangup_ns=10 * SECOND_NS)


def strategy(name: str) -> Callable[[Scenario], Scenario]:
    """The same under another strategy."""

    def change(scenario: Scenario) -> Scenario:
        publishers = []
        for publisher in scenario.publishers:
            parts = [p for p in publisher.channel.split("|") if not p.startswith("fc=")]
            publishers.append(
                attrs.evolve(publisher, channel="|".join([*parts, f"fc={name}"]))
            )
        return attrs.evolve(scenario, publishers=tuple(publishers))

    return change


def _no_rejoin(scenario: Scenario) -> Scenario:
    subscribers = tuple(
        attrs.evolve(subscriber, channel=subscriber.channel + "|rejoin=false")
        for subscriber in scenario.subscribers
    )
    return attrs.evolve(scenario, subscribers=subscribers)


def _impatient(scenario: Scenario) -> Scenario:
    timers = tuple(
        (name, SECOND_NS) for name in ("image_liveness_timeout_ns", "connection_timeout_ns")
    )
    return _on_hosts(scenario, range(scenario.hosts), driver=timers)


OLD: Final = (
    Old(
        scenario="paused-unicast",
        about="a sender does not mind that its receiver is full",
        complaint="beyond every window",
        patches=(
            Patch(
                file="ps_flow_control.c",
                now="return ps_fc_furthest(fc, sm->receiver_id, position + sm->window, limit, "
                "now_ns);",
                old="return ps_fc_furthest(fc, sm->receiver_id, position + 8 * sm->window, limit, "
                "now_ns);",
            ),
        ),
    ),
    Old(
        scenario="partition",
        about="a second of silence ends an image: it is joined again at the latest point",
        complaint="missed",
        change=_impatient,
    ),
    Old(
        scenario="long-lossy-path",
        about="one gap at a time is requested and repaired",
        complaint="goodput",
        change=single_gap,
    ),
    Old(
        scenario="nak-storm",
        about="each receiver asks at once and every ms, each request is answered",
        complaint="naks",
        change=_request_at_once,
        patches=(
            Patch(
                file="ps_nak_timer.c",
                now="int64_t wait = policy->group ? ps_nak_first_ns(policy, random)"
                " : policy->retry_ns;\n",
                old="return 1000000;\n    int64_t wait = 0;\n",
            ),
        ),
    ),
    Old(
        scenario="dead-local-subscriber",
        about="a death is learned from heartbeats that stay away for 10 s",
        complaint="blocked_ns",
        change=_heartbeats,
    ),
    Old(
        scenario="receiver-leaves",
        about="one that leaves takes the limit back to where the sender stands",
        complaint="blocked_ns",
        patches=(
            Patch(
                file="ps_publication_receivers.c",
                now="        on_receiver_leaving(pub, sm, now_ns);\n",
                old="        set_limit(pub, pub->sender_position);\n        return;\n",
            ),
        ),
    ),
    Old(
        scenario="membership-churn",
        about="one that comes back at its old address is a destination more",
        complaint="resent_ppm",
        patches=(
            Patch(
                file="ps_destinations.c",
                now="    int32_t index = find_address(list, from);\n    for (",
                old="    int32_t index = -1;\n    for (",
            ),
            Patch(
                file="ps_destinations.c",
                now="        if (ps_addr_equal(&item->address, from) ||\n            (item->bound",
                old="        if ((item->bound",
            ),
        ),
    ),
    Old(
        scenario="slow-receiver-max",
        about="a stream that was lost to a slow receiver is not joined again",
        complaint="gaps",
        change=_no_rejoin,
    ),
    Old(scenario="paused-max", about="all wait", complaint="blocked_ns", change=strategy("min")),
    Old(scenario="paused-nak", about="all wait", complaint="blocked_ns", change=strategy("min")),
    Old(scenario="paused-min", about="nobody waits", complaint="missed", change=strategy("max")),
    Old(
        scenario="paused-tagged",
        about="the one that stops is not of those that are waited for",
        complaint="missed",
        change=strategy("tagged,g:8"),
    ),
    Old(
        scenario="slow-nak",
        about="a slow reader is not heard",
        complaint="ext",
        change=strategy("max"),
    ),
)
