# SPDX-License-Identifier: Apache-2.0
"""Python classes for the parameters and enums of ``ps_driver.h`` and ``ps_slots.h``.

This module does not need the compiled extension. The conductor uses these types. The modules
``driver`` and ``admin`` in ``penstock.core`` convert these classes to C. Fields have the same names
as in the C structs, so that one generic function can copy them. A parameter that refers to another
object contains the numeric id of that object, not a native handle.
"""

from __future__ import annotations

import enum
from typing import Final

import attrs

from penstock.core.stream_types import Address as Address
from penstock.core.stream_types import Cause as Cause
from penstock.core.stream_types import Watermark as Watermark

NO_COUNTER: Final = -1
NEVER_NS: Final = 2**63 - 1
ALL_TERMS: Final = 2**63 - 1


class Threading(enum.IntEnum):
    INVOKER = 0
    SHARED = 1
    DEDICATED = 2


class Idle(enum.IntEnum):
    PARK = 0
    BACKOFF = 1
    YIELD = 2
    SPIN = 3


class Agent(enum.IntEnum):
    SENDER = 0
    RECEIVER = 1


class EventType(enum.IntEnum):
    NONE = 0
    SETUP = 1
    IMAGE_INACTIVE = 2
    IMAGE_DRAINED = 3
    PUB_CONNECTED = 4
    PUB_DRAINED = 5
    PUB_EOS_ACK = 6
    PUB_BLOCKED = 7
    PUB_UNBLOCKED = 8
    TERM_NEEDED = 9
    RELEASED = 10
    ENDPOINT_ERROR = 11
    DESTINATION = 12
    REMOTE_ERROR = 13
    SILENT = 14
    LOSS = 15
    SUBSCRIBER = 16
    SESSION_LEFT = 17
    TERMS_RELEASED = 18
    SECOND_SOURCE = 19
    IMAGE_ESTABLISHED = 20
    JOIN = 21
    PRESSURE_TRIGGERED = 22
    PRESSURE_RELIEVED = 23
    READER_LAGGED = 24


class SystemCounter(enum.IntEnum):
    """System counters that the control plane and the simulator use."""

    OVER_RUNS = 13
    ERRORS = 15
    SHORT_SENDS = 16
    FREE_FAILS = 17
    CLIENT_TIMEOUTS = 24
    BYTES_MAPPED = 35
    PUBLICATIONS_REVOKED = 40
    IMAGES_REVOKED = 41
    IMAGES_REJECTED = 42


class ObjectKind(enum.IntEnum):
    NONE = 0
    SEND_ENDPOINT = 1
    RECV_ENDPOINT = 2
    PUBLICATION = 3
    IMAGE = 4
    RECV_DESTINATION = 5                # only in Released: id of the endpoint


class ImageEnd(enum.IntEnum):
    END_OF_STREAM = 1
    TIMEOUT = 2
    REVOKED = 3
    NO_SUBSCRIBER = 4
    REJECTED = 5
    EVICTED = 6
    OUTRUN = 7


class JoinVerdict(enum.IntEnum):
    """Reason why the sender does not wait for a receiver that requested a SETUP (``ps_join.h``)."""

    EXPIRED = 1
    TOO_SOON = 2
    NOT_JOINED = 3
    SPENT = 4


class TetherState(enum.IntEnum):
    ACTIVE = 0
    LINGER = 1
    RESTING = 2
    CLOSED = 3


class Mdc(enum.IntEnum):
    NONE = 0
    DYNAMIC = 1
    MANUAL = 2


class FlowControl(enum.IntEnum):
    UNICAST = 0
    MAX = 1
    MIN = 2
    TAGGED = 3
    NAK = 4
    CUSTOM = 5


class StrategyLate(enum.IntEnum):
    """The sender limit that the sender uses if a Python flow-control strategy computes no limit in
    time."""

    HOLD = 0
    MAX = 1
    MIN = 2


class CongestionControl(enum.IntEnum):
    STATIC = 0
    CUBIC = 1
    CUSTOM = 2


class LossRecovery(enum.IntEnum):
    ALL_GAPS = 0
    SINGLE_GAP = 1


class SlotKind(enum.IntEnum):
    CLIENT = 1
    PUBLICATION = 2
    IMAGE = 3
    SUBSCRIBER = 4
    GROUP = 5


class DriverState(enum.IntEnum):
    STARTING = 0
    RUNNING = 1
    STOPPED = 2


def wildcard(family: int, port: int = 0) -> Address:
    return Address(ip="::" if family == 6 else "0.0.0.0", port=port)


@attrs.frozen(kw_only=True)
class SocketParams:
    bind: Address
    connect: Address | None = None
    group: Address | None = None
    interface_addr: Address | None = None
    interface_index: int = 0
    multicast_ttl: int = 0
    sndbuf_bytes: int = 0
    rcvbuf_bytes: int = 0
    port_low: int = 0
    port_high: int = 0
    reuse: bool = False
    timestamps: bool = False
    gso: bool = False
    gro: bool = False


@attrs.frozen(kw_only=True)
class ImpairParams:
    send_loss_ppm: int = 0
    recv_loss_ppm: int = 0
    duplicate_ppm: int = 0
    reorder_ppm: int = 0
    corrupt_ppm: int = 0
    delay_ns: int = 0
    jitter_ns: int = 0
    seed: int = 1


@attrs.frozen(kw_only=True)
class DriverParams:
    """Parameters that replace the values of ``ps_driver_params_default``; None keeps the
    default."""

    threading: Threading
    idle: Idle = Idle.PARK
    sender_cpu: int = -1
    receiver_cpu: int = -1
    seed: int
    receiver_id_base: int
    daemon_id: int
    daemon_epoch: int
    host: str | None = None             # name of this host, stated to senders
    setup_interval_ns: int | None = None
    heartbeat_interval_ns: int | None = None
    idle_heartbeat_interval_ns: int | None = None
    idle_after_ns: int | None = None
    status_message_timeout_ns: int | None = None
    connection_timeout_ns: int | None = None
    image_liveness_timeout_ns: int | None = None
    unblock_timeout_ns: int | None = None
    retransmit_delay_ns: int | None = None
    retransmit_linger_ns: int | None = None
    nak_unicast_delay_ns: int | None = None
    nak_unicast_retry_ratio: int | None = None
    nak_multicast_max_backoff_ns: int | None = None
    pending_setup_timeout_ns: int | None = None
    nak_multicast_group_size: int | None = None
    max_gaps: int | None = None
    loss_recovery: LossRecovery | None = None
    retransmit_percent: int | None = None
    retransmit_bytes_per_s: int | None = None
    event_capacity: int | None = None
    command_capacity: int | None = None
    advertise: bool | None = None
    governor: bool | None = None


@attrs.frozen(kw_only=True)
class SendEndpointParams:
    id: int
    data: SocketParams
    control: SocketParams | None = None
    mdc: Mdc = Mdc.NONE
    status_counter_id: int
    destinations_counter_id: int = NO_COUNTER
    refused_counter_id: int = NO_COUNTER
    multicast: bool = False


PRIORITY_AUTO: Final = 2**31 - 1
"""No priority is stated: by recency (``ps_priority.h``)."""
PRIORITY_NONE: Final = 2**31 - 2
"""No priority is stated, and recency is off: 0."""
PRIORITY_BACKGROUND: Final = 2**31 - 3
"""A relay publishes the stream: it is in the background band."""


class Policy(enum.IntEnum):
    """Policy that decides what a publication does when its log is full (``ps_policy.h``)."""

    NONE = 0
    BLOCK = 1
    DROP_NEWEST = 2
    ERROR = 3
    RATE_LIMIT = 4
    DROP_OLDEST = 5


@attrs.frozen(kw_only=True)
class PublicationParams:
    id: int
    log_path: str
    endpoint_id: int                    # 0: IPC
    slot: int
    publisher_limit_counter_id: int
    publisher_position_counter_id: int
    sender_position_counter_id: int = NO_COUNTER
    sender_limit_counter_id: int = NO_COUNTER
    back_pressure_counter_id: int = NO_COUNTER
    naks_counter_id: int = NO_COUNTER
    receivers_counter_id: int = NO_COUNTER
    flow_control: FlowControl = FlowControl.UNICAST
    strategy: str = ""                  # as written; py:... is for the control plane
    fc_receiver_timeout_ns: int = 0     # 0: 5 s
    fc_group_tag: int = 0
    fc_group_min_size: int = 0
    fc_on_late: StrategyLate = StrategyLate.HOLD
    rate_bytes_per_s: int = 0           # 0: no limit
    rate_messages_per_s: int = 0
    policy: Policy = Policy.NONE
    low_watermark_bytes: int = 0        # with a policy; 0: half the window
    depth_messages: int = 0             # with a policy: of publishers; 0: no limit
    low_watermark_messages: int = 0     # 0: half of depth_messages
    depth_bytes: int = 0                # DROP_OLDEST: of readers; 0: a quarter of their window
    reader_depth_messages: int = 0      # DROP_OLDEST: of readers; 0: no limit in messages
    retention_bytes: int = 0            # readers get no data that is further behind; 0: no limit
    retention_ns: int = 0               # readers get no data that is older; 0: no limit
    priority: int = PRIORITY_AUTO       # -1000 to 1000, or one of the constants PRIORITY_
    never_throttle: bool = False        # the governor neither withholds nor throttles it
    retransmit_window_multiple: int = 0
    window_bytes: int
    max_resend: int
    ttl: int = 0
    reserved_position: int
    untethered_window_limit_timeout_ns: int
    untethered_linger_timeout_ns: int
    untethered_resting_timeout_ns: int
    exclusive: bool = False
    group: bool = False
    spies_simulate_connection: bool = False
    signal_eos: bool = True
    channel_timestamp: bool = False
    channel_timestamp_offset: int = 0
    adopted: bool = False  # continues at the positions of a dead daemon's log and counters
    start_position: int = 0             # adopted: first position of the stream
    kept_position: int = 0              # adopted: the terms below were released
    relay_path: tuple[int, ...] = ()    # at most 8 ids; (): no relay publishes it
    credit_weight: int = 0              # of a pool's division, in the SETUP; 0: not stated


class Isolation(enum.IntEnum):
    """How a stream treats a reader that is too slow (ps_reader_isolation)."""

    GATES = 0
    INDEPENDENT = 1
    DROP_OLDEST = 2


@attrs.frozen(kw_only=True)
class SubscriberParams:
    position_counter_id: int
    slot: int
    client_slot: int
    join_position: int                  # what the counter was preset to
    credits: int = 0                    # messages that may be outstanding; 0: it grants none
    credit_burst: int = 0               # the same while nothing is outstanding; 0: credits
    tether: bool = True
    rejoin: bool = True
    frozen: bool = False                # it joins with its credits withheld
    isolated: bool = False              # the stream does not wait for it beyond its depth
    depth_bytes: int = 0                # 0: a quarter of the window
    depth_messages: int = 0             # 0: no limit in messages


@attrs.frozen(kw_only=True)
class PublicationStatus:
    producer_position: int
    consumer_position: int
    publisher_limit: int
    is_connected: bool
    receivers: int
    rate_bytes_per_s: int = 0           # the lower of ps-rate and the NAK-strength rate; 0: none
    pressure_signals: int = 0


@attrs.frozen(kw_only=True)
class ReceiverView:
    """Values from the latest status message of a live receiver of a publication."""

    receiver_id: int
    heard_ns: int
    position: int                       # consumed
    window: int
    group_tag: int | None = None
    capabilities: int = 0               # 0: a plain Aeron peer
    reason: int = 0                     # Cause that limits the receiver
    reason_client: int = 0
    backlog_bytes: int = 0
    fill_ppm: int = 0
    address: Address | None = None
    reason_name: str = ""               # name of reason_client, "" not stated
    reason_host: str = ""               # host of reason_client


@attrs.frozen(kw_only=True)
class RecvDestinationParams:
    id: int
    socket: SocketParams
    control: Address | None = None
    group_control: Address | None = None
    multicast: bool = False


@attrs.frozen(kw_only=True)
class RecvEndpointParams:
    id: int
    status_counter_id: int
    receiver_id: int
    group_tag: int = 0
    has_group_tag: bool = False
    media_timestamp: bool = False
    media_timestamp_offset: int = 0
    channel_timestamp: bool = False
    channel_timestamp_offset: int = 0


@attrs.frozen(kw_only=True)
class ImageParams:
    id: int
    log_path: str
    endpoint_id: int
    slot: int
    high_water_counter_id: int
    position_counter_id: int
    naks_counter_id: int
    session_id: int
    stream_id: int
    initial_term_id: int
    active_term_id: int
    term_offset: int
    window_bytes: int
    congestion_control: CongestionControl = CongestionControl.STATIC
    congestion_name: str = ""           # as written; py:... is for the control plane
    cubic_only: bool = False            # cubic without the Reno-friendly region
    congestion_rtt_counter_id: int = NO_COUNTER         # not of static
    congestion_window_counter_id: int = NO_COUNTER      # not of static
    destination: int
    source: Address
    nak_delay_ns: int = -1
    reserved_position: int
    join_ordinal: int = -1
    retention_bytes: int = 0            # readers get no data that is further behind; 0: no limit
    retention_ns: int = 0               # readers get no data that is older; 0: no limit
    peer_capabilities: int = 0
    untethered_window_limit_timeout_ns: int
    untethered_linger_timeout_ns: int
    untethered_resting_timeout_ns: int
    credits: int = 0                    # until the first reader joins; 0: it grants none
    credit_burst: int = 0
    frozen: bool = False                # they are withheld
    group: bool = False
    reliable: bool = True
    rejoin: bool = True
    adopted: bool = False               # continues at the contiguous end of a dead daemon's log
    half_open: bool = False             # adopted: the dead daemon had accepted no frame
    consumption: int = -1               # adopted: slowest subscriber, -1: none


@attrs.frozen(kw_only=True)
class ImageStatus:
    position: int
    high_water: int
    slowest_subscriber: int
    end_of_stream: int
    gaps: int
    subscribers: int
    foreign_datagrams: int = 0          # dropped datagrams of sources that it does not follow


@attrs.frozen(kw_only=True)
class LogParams:
    path: str
    correlation_id: int
    session_id: int
    stream_id: int
    initial_term_id: int
    term_id: int
    term_offset: int
    term_length: int
    mtu: int
    page_size: int = 4096
    publication_window_bytes: int = 0
    receiver_window_bytes: int = 0
    sndbuf_bytes: int = 0
    rcvbuf_bytes: int = 0
    max_resend: int = 0
    entity_tag: int = -1
    response_correlation_id: int = -1
    linger_timeout_ns: int = 0
    untethered_window_limit_timeout_ns: int = 0
    untethered_linger_timeout_ns: int = 0
    untethered_resting_timeout_ns: int = 0
    group: bool = False
    rejoin: bool = True
    reliable: bool = True
    sparse: bool = True
    signal_eos: bool = True
    spies_simulate_connection: bool = False
    tether: bool = True
    type: int = 0                       # 0 concurrent publication, 2 image, 3 exclusive
    file_mode: int = 0o660
    reserve_terms: int = 2
    reserve_from: int = 0
    reserve_to: int = 0


@attrs.frozen(kw_only=True)
class CncParams:
    directory: str
    client_liveness_timeout_ns: int
    start_ms: int
    pid: int
    counter_values_bytes: int
    error_log_bytes: int
    file_mode: int
    software_version: int


@attrs.frozen(kw_only=True)
class SharedParams:
    directory: str
    clients: int
    publications: int
    images: int
    subscribers: int
    groups: int
    file_mode: int
    daemon_id: int
    daemon_epoch: int
    receiver_id_base: int
    pid: int
    start_ms: int


@attrs.frozen(kw_only=True)
class CounterInfo:
    counter_id: int
    type_id: int
    value: int
    registration_id: int
    owner_id: int
    reference_id: int
    label: str
    key: bytes


@attrs.frozen(kw_only=True)
class ErrorRecord:
    count: int
    first_ms: int
    last_ms: int
    text: str


@attrs.frozen(kw_only=True)
class ImageView:
    """Loss, round trip and fill level of an image, read from its slot."""

    id: int                             # 0: free
    session_id: int
    stream_id: int
    gaps: int
    fill_ppm: int
    lost_bytes: int
    rtt_ns: int                         # 0 unknown
    window_bytes: int
    congestion_window: int              # 0: no such bound


def log_file_length(term_length: int, page_size: int = 4096) -> int:
    """Return the size of a log buffer file: three terms and 4 KiB of metadata, rounded up to a
    page."""
    raw = 3 * term_length + 4096
    return (raw + page_size - 1) // page_size * page_size


def compute_position(term_id: int, term_offset: int, initial_term_id: int, term_length: int) -> int:
    """Return the stream position of the byte at ``term_offset`` in the term ``term_id``. Term ids
    wrap at 32 bits."""
    count = (term_id - initial_term_id) & 0xFFFFFFFF
    return count * term_length + term_offset
