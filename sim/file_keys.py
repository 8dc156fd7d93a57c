# SPDX-License-Identifier: Apache-2.0
"""The keys of scenario files (:mod:`penstock.sim.files`): for each key of a table, the field of the
scenario and the kind of its value."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

import attrs

from penstock.core.driver_types import DriverParams

FACTORS: Final = {
    "seconds": Decimal(10**9),
    "ms": Decimal(10**6),
    "us": Decimal(10**3),
    "share": Decimal(10**6),
    "mbit": Decimal(125_000),
    "count": Decimal(1),
}

#: Kinds that are lists, and the kind of their items.
LISTS: Final = {"counts": "count", "texts": "text", "times": "seconds"}

#: Key in TOML: (field, kind).  Kinds with a factor above are numbers of at least 0.
Keys = Mapping[str, tuple[str, str]]

LINK: Final[Keys] = {
    "delay_ms": ("delay_ns", "ms"),
    "jitter_ms": ("jitter_ns", "ms"),
    "bandwidth_mbit": ("bandwidth_bytes_per_s", "mbit"),
    "queue": ("queue_bytes", "bytes"),
    "loss": ("loss_ppm", "share"),
    "burst_enter": ("burst_enter_ppm", "share"),
    "burst_leave": ("burst_leave_ppm", "share"),
    "burst_loss": ("burst_loss_ppm", "share"),
    "duplicate": ("duplicate_ppm", "share"),
    "stranger": ("stranger_ppm", "share"),
    "reorder": ("reorder_ppm", "share"),
    "reorder_ms": ("reorder_ns", "ms"),
    "corrupt": ("corrupt_ppm", "share"),
    "no_checksum": ("no_checksum", "bool"),
}
RULE: Final[Keys] = {
    "from": ("sender", "host"),
    "to": ("receiver", "host"),
    "both": ("both", "bool"),
    "start_s": ("from_ns", "seconds"),
    "until_s": ("until_ns", "seconds"),
}
DROP: Final[Keys] = {
    "from": ("sender", "host"), "to": ("receiver", "host"), "numbers": ("numbers", "counts"),
    "every": ("every", "count"), "times": ("times", "count"), "first": ("first", "count"),
}
NUMBERED: Final[Keys] = {key: DROP[key] for key in ("from", "to", "numbers")}
#: Parameters of a host's ``driver``; all are numbers of at least 0.
PARAMETERS: Final = frozenset(
    field.name for field in attrs.fields(DriverParams) if field.default is None
) - {"max_gaps", "advertise"}
HOST: Final[Keys] = {
    "cycle_us": ("cycle_ns", "us"),
    "window": ("window_bytes", "bytes"),
    "rcvbuf": ("rcvbuf_bytes", "bytes"),
    "max_gaps": ("max_gaps", "count"),
    "group_tag": ("group_tag", "count"),
    "driver": ("driver", "parameters"),
    "hangup_s": ("hangup_ns", "seconds"),
    "crash_s": ("crash_ns", "seconds"),
    "restart_s": ("restart_ns", "seconds"),
    "adopt": ("adopt", "bool"),
    "full_s": ("full", "spans"),
    "short_send": ("short_send_ppm", "share"),
    "strategy_ms": ("strategy_delay_ns", "ms"),
    "conductor_ms": ("conductor_ns", "ms"),
    "idle_ms": ("idle_ns", "ms"),
    "small_term": ("small_term_bytes", "bytes"),
    "budget": ("budget_bytes", "bytes"),
}
PUBLISHER: Final[Keys] = {
    "host": ("host", "host"),
    "channel": ("channel", "text"),
    "stream": ("stream_id", "count"),
    "count": ("count", "count"),
    "size_low": ("size_low", "count"),
    "size_high": ("size_high", "count"),
    "open_s": ("open_ns", "seconds"),
    "start_s": ("start_ns", "seconds"),
    "interval_us": ("interval_ns", "us"),
    "exclusive": ("exclusive", "bool"),
    "relayed": ("relayed", "bool"),
    "pauses_s": ("pauses", "spans"),
    "reserved": ("reserved", "bool"),
    "claims": ("claims", "bool"),
    "crash_s": ("crash_ns", "seconds"),
    "hangup_s": ("hangup_ns", "seconds"),
    "blocked_s": ("blocked_ns", "seconds"),
}
SUBSCRIBER: Final[Keys] = {
    "host": ("host", "host"),
    "channel": ("channel", "text"),
    "stream": ("stream_id", "count"),
    "start_s": ("start_ns", "seconds"),
    "may_join_late": ("may_join_late", "bool"),
    "may_miss": ("may_miss", "bool"),
    "poll_limit": ("poll_limit", "count"),
    "interval_us": ("interval_ns", "us"),
    "batch": ("batch", "count"),
    "pauses_s": ("pauses", "spans"),
    "withholds_s": ("withholds", "spans"),
    "paces": ("paces", "paces"),
    "crash_s": ("crash_ns", "seconds"),
    "restart_s": ("restart_ns", "seconds"),
    "latency_ms": ("latency_ns", "ms"),
    "refuses": ("refuses", "bool"),
    "client": ("client", "count"),
}
RELAY: Final[Keys] = {
    "host": ("host", "host"),
    "source": ("source", "text"),
    "source_stream": ("source_stream", "count"),
    "target": ("target", "text"),
    "target_stream": ("target_stream", "count"),
    "start_s": ("start_ns", "seconds"),
    "interval_us": ("interval_ns", "us"),
    "pauses_s": ("pauses", "spans"),
    "kills_s": ("kills", "times"),
    "kill_points": ("kill_points", "counts"),
    "restart_s": ("restart_ns", "seconds"),
    "linger_s": ("linger_ns", "seconds"),
    "may_join_late": ("may_join_late", "bool"),
    "circle": ("circle", "bool"),
}
PACE: Final = ("seconds", "us", "count")
MISFIT: Final[Keys] = {
    "host": ("host", "host"),
    "stream": ("stream_id", "count"),
    "kind": ("kind", "text"),
    "start_s": ("from_ns", "seconds"),
    "until_s": ("until_ns", "seconds"),
    "interval_ms": ("interval_ns", "ms"),
}
BUDGET: Final[Keys] = {
    "end_after_s": ("end_after_ns", "seconds"),
    "end_before_s": ("end_before_ns", "seconds"),
    "naks": ("naks", "count"),
    "naks_per_loss": ("naks_per_loss_ppm", "share"),
    "resent": ("resent_ppm", "share"),
    "status_messages": ("status_messages_ppm", "share"),
    "ext": ("ext", "count"),
    "ext_least": ("ext_least", "count"),
    "missed_least": ("missed_least", "count"),
    "missed_most": ("missed_most", "count"),
    "gaps_least": ("gaps_least", "count"),
    "blocked_s": ("blocked_ns", "seconds"),
    "goodput_least": ("goodput_least", "count"),
    "rate_from_s": ("rate_from_ns", "seconds"),
    "rate_until_s": ("rate_until_ns", "seconds"),
    "rate_least": ("rate_least", "count"),
    "rate_most": ("rate_most", "count"),
    "fairness_least": ("fairness_least_ppm", "share"),
}
SCENARIO: Final[Keys] = {
    "calm_port": ("calm_port", "count"),
    "calm_ms": ("calm_delay_ns", "ms"),
    "name": ("name", "text"),
    "about": ("about", "text"),
    "limit_s": ("limit_ns", "seconds"),
    "hostile": ("hostile", "bool"),
    "classes": ("classes", "texts"),
}
SHARES: Final = frozenset(LINK) & {key for key, (_, kind) in LINK.items() if kind == "share"}
