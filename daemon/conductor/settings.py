# SPDX-License-Identifier: Apache-2.0
"""Settings of the conductor: defaults of channels, time-outs, limits."""

from __future__ import annotations

from typing import Final

import attrs

from penstock.config.settings.models import StreamRule

SECOND_NS: Final = 1_000_000_000
KIB: Final = 1024
MIB: Final = 1024 * 1024


@attrs.frozen(kw_only=True)
class ConductorSettings:
    """The default values are the same as in Aeron. Sizes are in bytes."""

    directory: str
    receiver_id_base: int
    storage_budget_bytes: int
    software: str = "penstock"
    epoch_offset_ns: int = 0
    file_mode: int = 0o660
    page_size: int = 4096
    term_length: int = 16 * MIB
    ipc_term_length: int = 64 * MIB
    mtu: int = 1408
    ipc_mtu: int = 1408
    publication_window: int = 0         # 0: half a term
    default_policy: str = ""            # of publications; "": none
    default_depth: int = 0              # bytes; 0: the window
    default_depth_messages: int = 0     # 0: no limit in messages
    low_watermark_ratio: float = 0.0    # 0: half, where a policy or a depth is stated
    auto_priority: bool = True          # of publications without a stated priority
    receiver_window: int = 128 * KIB
    default_credits: str = ""           # of subscriptions, as in ps-credits; "": none
    credit_policy: str = ""             # "": each publisher gets all credits of a subscription
    credit_message_bytes: int = 0       # that a credit has room for; 0: one frame
    credit_idle_timeout_ns: int = SECOND_NS
    congestion_control: str = "static"
    cubic_reno_friendly: bool = True
    max_resend: int = 16
    unicast_flow_control: str = "unicast"
    multicast_flow_control: str = "max"
    flow_control_group_tag: int = -1
    rules: tuple[StreamRule, ...] = ()
    sparse: bool = True
    reliable: bool = True
    tether: bool = True
    rejoin: bool = True
    spies_simulate_connection: bool = False
    gso: bool = True
    gro: bool = True
    sndbuf_bytes: int = 0
    rcvbuf_bytes: int = 128 * KIB
    multicast_ttl: int = 0
    sender_port_range: tuple[int, int] = (0, 0)
    receiver_port_range: tuple[int, int] = (0, 0)
    receiver_group_tag: int | None = None
    linger_ns: int = 5 * SECOND_NS
    image_linger_ns: int = 10 * SECOND_NS
    resolution_interval_ns: int = 1 * SECOND_NS
    storage_retry_ns: int = SECOND_NS // 10
    idle_term_timeout_ns: int = 0       # idle time after which unused terms are released; 0: never
    small_term_bytes: int = MIB         # up to this length at least two terms stay
    untethered_window_limit_timeout_ns: int = 5 * SECOND_NS
    untethered_linger_timeout_ns: int | None = None    # None: as the window limit time-out
    untethered_resting_timeout_ns: int = 10 * SECOND_NS
    stream_session_limit: int = 2**31 - 1
    reserved_session_low: int = -1
    reserved_session_high: int = 1000
    max_queued_commands: int = 1024     # per client; more are refused
    reattach_timeout_ns: int = 10 * SECOND_NS   # for the clients of a dead daemon
    daemon_id: int = 0
    daemon_epoch: int = 0
    host: str = ""
    journal: bool = False               # write the journal for a new daemon
