# SPDX-License-Identifier: Apache-2.0
"""The daemon's configuration.

Define one frozen class for each table of the daemon's TOML file; the fields have the names of the
keys. If the value of a key has a unit, the key's name ends in this unit (``_bytes``). A plain
number is in the key's unit; a text such as ``"64k"`` or ``"5s"`` states its own unit. For a setting
that Aeron has too, the default is Aeron's default.
"""

from __future__ import annotations

import os
from typing import Any, Final

import attrs

from penstock.config import uri
from penstock.config.settings._fields import (
    I32_MAX,
    FieldError,
    boolean,
    choice,
    depth,
    duration,
    file_mode,
    integer,
    optional_integer,
    parsed_text,
    percent,
    port_range,
    ratio,
    size,
    text,
)
from penstock.config.settings.backpressure import BackpressureConfig, check_fanout, check_policy
from penstock.config.settings.credits import CreditsConfig, check_credit_policy, check_credits
from penstock.config.settings.relays import RelayRule
from penstock.config.settings.timeouts import TimeoutsConfig

SECOND_NS: Final = 10**9
MILLISECOND_NS: Final = 10**6
KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30
_RARELY: Final = "Rarely."


@attrs.frozen(kw_only=True)
class DirectoryConfig:
    """Directory that daemon and clients share, and its permissions."""

    path: str = text(
        "", r"(/.*)?", "an absolute path, or empty for the default",
        "The daemon's directory. Empty: $PENSTOCK_DIR, else /dev/shm/penstock-$USER. The option "
        "--dir of a command takes precedence.",
        "Set this key for a second daemon on a host, or for huge pages; use a memory file system.",
    )
    mode: int = file_mode(
        0o770, "Permission bits of the directory.",
        "0700 excludes the group. If you set permission bits for other users, every user of the "
        "host can read the streams.",
    )
    file_mode: int = file_mode(
        0o660, "Permission bits of the files and sockets in the daemon's directory.",
        "If you change mode, change file_mode too: clients must read and write the files.",
    )
    group: str = text(
        "", r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}|", "the name of a group, or empty",
        "Group that owns the daemon's directory and its files. Empty: the group of the daemon.",
        "Set this key if clients run as other users, and add those users to this group.",
    )


@attrs.frozen(kw_only=True)
class AgentsConfig:
    """The threads that move data."""

    threading: str = choice(
        "auto", ("auto", "shared", "dedicated"),
        "shared: one thread runs sender and receiver; dedicated: one thread for each; auto: "
        "shared on hosts with at most 2 CPUs.",
        "Set this key to dedicated for high throughput in both directions, if CPUs are free.",
    )
    idle: str = choice(
        "park", ("park", "backoff", "yield", "spin"),
        "Behaviour of a data-plane thread without work; with park, the thread sleeps.",
        'For the lowest latency, use "spin" or "yield", with which each thread keeps a CPU busy.',
    )
    sender_cpu: int = integer(-1, -1, 1023, "CPU to which the sender is pinned; -1: none.",
        "Set this key to run the dedicated sender thread on an isolated CPU.")
    receiver_cpu: int = integer(-1, -1, 1023, "CPU to which the receiver is pinned; -1: none.",
        "Set this key to run the dedicated receiver thread on an isolated CPU.")
    max_gaps: int = integer(1024, 4, 16384,
        "Largest number of gaps that the receiver can track for one image.",
        "Raise this value if a path is long, fast and lossy: the receiver can recover at most this "
        "number of losses in one round trip.")
    loss_recovery: str = choice(
        "all-gaps", ("all-gaps", "single-gap"),
        "all-gaps: the receiver requests all gaps of an image at once. single-gap: the "
        "receiver requests only the first gap, as Aeron does.",
        "Set single-gap only for comparisons.",
    )
    retransmit_percent: int = integer(
        100, 1, 10000, "Bytes that a sender may retransmit on a stream for each 100 new bytes that "
                       "it sends.",
        "Lower this value if retransmits for one receiver use too much of a link that other "
        "receivers share.")
    retransmit_bytes_per_s: int = size(
        4 * MIB, 1, 1024 * GIB,
        "Bytes a second that a sender may retransmit on a stream that sends no new data.",
        "Raise this value for streams that often pause, on paths that lose datagrams.")
    event_capacity: int = integer(4096, 64, 1 << 20,
        "Capacity of the queue of events from the data plane to the conductor.",
        "Raise this value if the daemon's log reports lost events.")
    command_capacity: int = integer(1024, 64, 1 << 20,
        "Capacity of the queue of commands from the conductor to a thread of the data plane.",
        _RARELY)


_FLOW_CONTROLS: Final = ("max", "min", "tagged", "preferred", "nak")


def _flow_control(text: str) -> None:
    """:raises ValueError: the text is no flow control as in fc=."""
    strategy = uri.read_flow_control("fc", text).strategy if text else "max"
    if strategy not in _FLOW_CONTROLS and not strategy.startswith("py:"):
        raise ValueError(f"{strategy} is not a flow control: {', '.join(_FLOW_CONTROLS)}, py:...")


def _unicast_flow_control(text: str) -> None:
    """:raises ValueError: the flow control needs several receivers."""
    if text == "unicast":
        return
    strategy = uri.read_flow_control("fc", text).strategy
    if strategy != "nak" and not strategy.startswith("py:"):
        raise ValueError(f"{strategy} chooses among receivers")


_CONGESTION_CONTROLS: Final = ("static", "cubic")


def _congestion_control(text: str) -> None:
    """:raises ValueError: the text is no congestion control as in cc=."""
    chosen = uri.read_congestion_control("cc", text)
    if chosen.control not in _CONGESTION_CONTROLS and not chosen.is_custom:
        known = ", ".join(_CONGESTION_CONTROLS)
        raise ValueError(f"{chosen.control} is not a congestion control: {known}, py:...")


def _any_congestion_control(text: str) -> None:
    if text:
        _congestion_control(text)


def _rate(text: str) -> None:
    if text:
        uri.read_rate("ps-rate", text)


@attrs.frozen(kw_only=True)
class PublicationsConfig:
    """Defaults of publications; parameters of the channel take precedence."""

    term_length_bytes: int = size(
        16 * MIB, 64 * KIB, GIB, "Length of a term of a network stream; a log has three terms.",
        "Lower this value for many streams with little traffic; raise it for long, fast paths.",
        power_of_two=True)
    ipc_term_length_bytes: int = size(
        64 * MIB, 64 * KIB, GIB, "Length of a term of an IPC stream.",
        "Lower this value if IPC streams need too much shared memory.", power_of_two=True)
    mtu_bytes: int = size(
        1408, 64, 65504, "Largest datagram of a network stream, without IP and UDP headers.",
        "Choose about 8192 if the whole path carries jumbo frames.", multiple_of=32)
    ipc_mtu_bytes: int = size(
        1408, 64, 65504, "Largest frame of an IPC stream; longer messages take several frames.",
        "Raise this value to publish larger IPC messages in one frame, without fragments.",
        multiple_of=32)
    window_bytes: int = size(
        0, 0, GIB // 2,
        "Publication window: bytes that a publisher may be ahead of the sender (on IPC: of the "
        "slowest reader); 0: half a term, on IPC a whole term.",
        "Lower this value to bound the time that data waits in the log.")
    linger_ns: int = duration(
        5 * SECOND_NS, "The sender retransmits data of a closed publication for this time.",
        "Raise this value if receivers detect losses only after the publication was closed.", low=0)
    max_resend: int = integer(16, 1, 256,
        "Largest number of ranges in the retransmit list of a channel with several receivers.",
        "Raise this value for multicast groups with many receivers and much loss.")
    sparse: bool = boolean(True, "Allocate memory of a log file only for the terms in use.",
        "Set false to allocate all memory of a log at once, so that publishers never wait for "
        "memory.")
    unicast_flow_control: str = parsed_text(
        "unicast", _unicast_flow_control, "unicast, nak or py:...",
        "Flow control of channels with one receiver.",
        'Set "nak" if a slow receiver may lower the rate of the sender, but not block the sender.')
    multicast_flow_control: str = parsed_text(
        "max", _flow_control, "a flow control: max, min, tagged, preferred, nak or py:..., "
                              "with their options",
        "Flow control of multicast and multi-destination channels.",
        'Set "min" if no receiver of a group may miss data.')
    flow_control_group_tag: int = integer(
        -1, -(2**63), 2**63 - 1,
        "Group tag for fc=tagged if the channel states no tag: the sender waits for receivers with "
        "this tag.",
        "For Aeron receivers, use the value of their property aeron.flow.control.group.tag.")
    spies_simulate_connection: bool = boolean(
        False, "A publication counts as connected while a spy reads it, even without a receiver.",
        "Set true if a spy must record a stream before the stream has a receiver.")


@attrs.frozen(kw_only=True)
class SchedulerConfig:
    """The order in which a sender serves its streams; parameters of the channel take precedence."""

    auto_priority: bool = boolean(
        True, "If a channel states no priority, a stream gets the priority 500 when a reader "
              "consumes data. After each 30 s without consumed data, the daemon halves this "
              "priority. If false, a stream without a stated priority has the priority 0.",
        "Set false if only priorities from channels or stream rules may have an effect.")
    governor: bool = boolean(
        True, "If the sender is overloaded, the sender delays new data, and a publication whose "
              "log is full refuses messages with the code THROTTLED.",
        "Set false if all streams must get the same treatment under overload.")


@attrs.frozen(kw_only=True)
class StreamRule:
    """One `[[stream]]` rule: settings for all channels and streams that match it. The daemon uses
    only the first rule that matches a stream; parameters of the channel take precedence."""

    channel: str = text(
        "*", r"[^\0]+", "a pattern of a channel, with the wildcards * and ?",
        "Pattern that the channel's canonical text must match.",
        "\"*endpoint=239.*\" for multicast streams.")
    stream_id: int | None = optional_integer(-(2**31), I32_MAX,
        "The rule matches only this stream id; not set: every stream id.",
        "For one stream.")
    session_id: int | None = optional_integer(
        -(2**31), I32_MAX,
        "The rule matches only channels with this session id; not set: all.", "For one session.")
    term_length_bytes: int = size(0, 0, GIB, "Term length; 0: any.", "For streams of one size.")
    flow_control: str = parsed_text(
        "", _flow_control, "a flow control as in fc=, or empty",
        "Flow control of publications; empty: the rule sets no flow control.",
        'Set "min" if no receiver of these streams may miss data.')
    strategy_on_late: str = text(
        "", r"(hold|max|min)?", "hold, max, min or empty",
        "The sender's limit while a flow control in Python takes too long to answer. Empty: the "
        "value of on_late in the flow control's class; its default is hold.",
        'Set "max" if fresh data matters more than complete data.')
    window_bytes: int = size(0, 0, GIB // 2, "Publication window; 0: the rule sets no window.",
        "Set this key to bound the time that data waits in the log.")
    rate: str = parsed_text(
        "", _rate, "a rate as in ps-rate=, or empty", "Rate of publications; empty: unlimited.",
        'Set "10m" to limit bytes a second, "500msg" to limit messages a second.')
    policy: str = parsed_text(
        "", check_policy, f"{', '.join(uri.POLICIES)}, or empty",
        "Policy of publications when their log is full; empty: the rule sets no policy.",
        'Set "drop_newest" for streams of sensors that must not wait.')
    queue_depth: uri.Depth = depth(
        "Depth of publications, like the parameter ps-depth; 0: the rule sets no depth.",
        "Set this key to bound the age of published data.")
    fanout: str = parsed_text(
        "", check_fanout, "min, independent, or empty",
        "Fan-out of publications, like the parameter ps-fanout; empty: the rule sets no fan-out.",
        'Set "independent" if no reader of this host may slow the stream.')
    retention_bytes: int = size(
        0, 0, 3 * GIB, "Retention in bytes, like ps-retention; 0: the rule sets no retention.",
        "Set this key if a reader that was paused must skip old data.")
    retention_time_ns: int = duration(0, "Retention time, like ps-retention-time; 0: the rule sets "
                                         "no time.", "If old data is worthless.", low=0)
    low_watermark_ratio: float = ratio(
        0.0, "Low watermark, like the parameter ps-low-watermark; 0: the rule sets no watermark.",
        "With a depth.")
    priority: int | None = optional_integer(
        -1000, 1000, "Priority of publications, like the parameter ps-priority; not set: the rule "
                     "sets no priority.",
        "Set 1000 if a stream must be sent first, and a negative value if a stream may wait.")
    congestion_control: str = parsed_text(
        "", _any_congestion_control, "a congestion control as in cc=, or empty",
        "Congestion control of subscriptions; empty: the rule sets none. This setting applies "
        "only to arriving streams that match the rule's session_id and term_length_bytes.",
        'Set "cubic" on paths shared with other traffic.')
    receiver_window_bytes: int = size(0, 0, GIB // 2,
        "Receiver window; 0: the rule sets no receiver window.",
        "Set this key to the bandwidth times the round-trip time of this stream.")
    credits: str = parsed_text(
        "", check_credits, "a number of credits (messages), auto, or empty",
        "Credits of subscriptions, like the parameter ps-credits; empty: the rule sets no credits.",
        "Set this key to bound the number of messages in flight to a subscriber.")
    credit_policy: str = parsed_text(
        "", check_credit_policy, f"{', '.join(uri.CREDIT_POLICIES)}, or empty",
        "How a subscription divides its credits among publishers, like the parameter "
        "ps-credit-policy; empty: the rule sets no policy.", "With credits.")
    credit_weight: int = integer(
        0, 0, 1000, "Weight of the publishers that the rule matches, like the parameter "
                    "ps-credit-weight; 0: the rule sets no weight.",
        "With credit_policy = \"weighted\" or \"deficit\".")


@attrs.frozen(kw_only=True)
class SubscriptionsConfig:
    """Defaults of subscriptions; parameters of the channel take precedence."""

    receiver_window_bytes: int = size(
        128 * KIB, 256, GIB // 2,
        "Receiver window: bytes that a sender may have in flight to a receiver.",
        "On fast long paths, set this key to the bandwidth times the round-trip time; the "
        "kernel's net.core.rmem_max must allow a receive buffer of this size.")
    congestion_control: str = parsed_text(
        "static", _congestion_control, "static, cubic or py:..., with their options",
        "static: only the receiver window limits the data in flight. cubic and py:... also compute "
        "a congestion window.",
        'Set "cubic" on paths with other traffic. With cubic, choose a receiver window that can '
        'fill the path when there is no other traffic.',
    )
    cubic_reno_friendly: bool = boolean(
        True, "Keep CUBIC's window at least as large as Reno's (RFC 9438, section 4.3). On a "
              "channel, cc=cubic,reno:false takes precedence over this key.",
        "Set false for Aeron's behaviour, which is slower on paths with a short round trip.")
    reliable: bool = boolean(True, "The receiver requests lost data.",
        "Set false if late data is worthless: a gap then reports the data that readers skip.")
    tether: bool = boolean(True, "The stream waits for a slow subscriber.",
        "Set false if the stream need not wait for slow subscribers.")
    rejoin: bool = boolean(True,
        "If a session sends data after its image ended, the subscription gets a new image.",
        _RARELY)
    group_tag: int | None = optional_integer(
        -(2**63), 2**63 - 1,
        "Group tag that a receiver states in its status messages; not set: no tag.",
        "Set this key on receivers for which publications with fc=tagged must wait.")


@attrs.frozen(kw_only=True)
class SocketsConfig:
    """Defaults of sockets; parameters of the channel take precedence."""

    sndbuf_bytes: int = size(0, 0, I32_MAX, "SO_SNDBUF; 0: the system's default.",
        "Raise this value if pressure() reports that streams are blocked with the cause socket.")
    rcvbuf_bytes: int = size(
        128 * KIB, 0, I32_MAX, "Smallest SO_RCVBUF of a socket; 0: the system's default.",
        "The daemon enlarges the buffer for a large receiver window. Raise this value if many "
        "streams arrive at one socket.")
    multicast_ttl: int = integer(0, 0, 255,
        "TTL or hop limit of multicast datagrams; 0: the system's default, which is 1.",
        "Raise this value if multicast must cross routers.")
    gso: bool = boolean(True, "Send many datagrams in one system call (UDP segmentation).",
        "Set false to find out whether segmentation by a network card is faulty.")
    gro: bool = boolean(True, "Receive many datagrams in one system call.",
        "Set false to find out whether the joining of datagrams by a network card is faulty.")
    sender_ports: tuple[int, int] = port_range(
        "Local ports for publications whose channel states no port; [0, 0]: the system chooses.",
        "Set this key if a firewall admits only certain local ports of the sending host.")
    receiver_ports: tuple[int, int] = port_range(
        "Ports for subscriptions whose endpoint has port 0; [0, 0]: the system chooses a port.",
        "Set this key if a firewall admits only certain ports of the receiving host.")


@attrs.frozen(kw_only=True)
class StorageConfig:
    """Shared memory."""

    budget_bytes: int = size(
        0, 0, 2**60, "Largest amount of memory for log buffers; 0: budget_percent applies.",
        "Set this key to leave room for other programs in the file system of the logs.")
    budget_percent: float = percent(
        80.0, "Largest amount of memory for log buffers, in per cent of the space that is free in "
              "their file system when the daemon starts.", "Used when budget_bytes is 0.")
    page_bytes: int = size(
        4 * KIB, 4 * KIB, GIB,
        "Page size of the file system; the daemon rounds the sizes of log files up to a "
        "multiple of the page size.",
        "\"2m\" on hugetlbfs.", power_of_two=True)
    idle_term_timeout_ns: int = duration(
        60 * SECOND_NS, "Time without data after which the daemon releases unused memory of a "
                        "stream's log; \"0ns\": never.",
        "Lower this value if many streams are idle for most of the time.", low=0)
    counter_values_bytes: int = size(
        8 * MIB, 64 * KIB, 500 * MIB,
        "Memory for the values of counters, 128 bytes each. The labels of the counters need "
        "additional memory, four times as much.",
        "Raise this value if the daemon reports that no counter is free.", multiple_of=128)
    error_log_bytes: int = size(4 * MIB, 64 * KIB, 64 * MIB, "The error log in cnc.dat.", _RARELY,
        multiple_of=64)


@attrs.frozen(kw_only=True)
class LimitsConfig:
    """Numbers of objects at once."""

    clients: int = integer(256, 1, 65536, "Largest number of client processes.",
        "Raise this value if the daemon reports that it has too many clients.")
    publications: int = integer(4096, 64, 65536, "Largest number of publications.",
        "Raise this value if the daemon reports that it has too many publications.")
    images: int = integer(4096, 1, 65536, "Largest number of images.",
        "Raise this value if the daemon reports that it has too many images.")
    subscribers: int = integer(8192, 1, 65536,
        "Largest number of subscribers; a subscription counts once for each log that it reads.",
        "Raise this value if the daemon reports that it has too many subscribers.")
    groups: int = integer(64, 1, 65536, "Consumer groups.", _RARELY)
    queued_commands: int = integer(1024, 1, 1 << 20,
        "Largest number of requests of one client that may wait in the daemon's queue.",
        _RARELY)
    sessions_per_stream: int = integer(I32_MAX, 1, I32_MAX,
        "Largest number of images of one stream on one channel.",
        "Lower this value to limit the memory that hostile or faulty senders can use.")
    reserved_session_low: int = integer(-1, -(2**31), I32_MAX, "First reserved session.", _RARELY)
    reserved_session_high: int = integer(1000, -(2**31), I32_MAX, "Last reserved session.", _RARELY)


@attrs.frozen(kw_only=True)
class ExtensionsConfig:
    """Extensions of penstock to Aeron's wire protocol."""

    advertise: bool = boolean(
        True, "Append this daemon's capabilities to SETUP frames and status messages, so that "
              "peers can use penstock's extensions.",
        "Set false to send exactly the frames that an Aeron driver would send.")


@attrs.frozen(kw_only=True)
class MetricsConfig:
    """Metrics over HTTP, in Prometheus' text format."""

    listen: str = text(
        "unix:metrics.sock",
        r"(unix:[^\0]+|\[[0-9A-Fa-f:]+\]:[0-9]{1,5}|[A-Za-z0-9.-]+:[0-9]{1,5})?",
        "\"unix:PATH\" (a relative PATH is in the daemon's directory), \"host:port\", or empty",
        "Address on which the daemon serves metrics; empty: the daemon serves no metrics.",
        '"127.0.0.1:9464" for a scraper. The metrics page has no access control, so use a '
        "local address.")


@attrs.frozen(kw_only=True)
class ControlTcpConfig:
    """Access to consumer groups for readers on other hosts, over TCP with CURVE keys."""

    listen: str = text(
        "", r"(\[[0-9A-Fa-f:]+\]:[0-9]{1,5}|[A-Za-z0-9.*-]+:[0-9]{1,5})?",
        '"host:port", "*:port" or empty',
            "Address on which the daemon listens for readers of consumer groups; empty: the "
            "daemon does not listen.",
        "Set this key if readers of consumer groups run on other hosts.")
    secret_key: str = text(
        "", r"[^\0]*", "a path", "The daemon's key: NAME.key_secret of 'penstock keygen'.",
        "Set this key if you set listen.")
    clients: str = text(
        "", r"[^\0]*", "a path", "Public keys of the clients that may connect: a file with a "
                                 "key in each line, or a directory of .key files. Changes "
                                 "apply at once.", "Set this key if you set listen.")
    connections: int = integer(64, 1, 4096,
        "Largest number of open connections of remote readers; the daemon refuses further "
        "connections.", _RARELY)
    fetch_bytes: int = size(
        64 * MIB, 4 * MIB, 16 * GIB,
        "Largest amount of fetched data that is in flight to all remote readers together.",
        "Raise this value for many concurrent fetches over paths with a long round-trip time.")

    def __attrs_post_init__(self) -> None:
        if self.listen and not (self.secret_key and self.clients):
            raise FieldError(
                "control_tcp.listen", self.listen,
                "set secret_key and clients too: there is no TCP without keys (penstock keygen)")


@attrs.frozen(kw_only=True)
class ImpairmentConfig:
    """Simulated network faults: for tests and demonstrations only."""

    send_loss_percent: float = percent(0.0, "Outgoing datagrams lost.", "In tests.")
    recv_loss_percent: float = percent(0.0, "Incoming datagrams lost.", "In tests.")
    duplicate_percent: float = percent(0.0, "Datagrams received twice.", "In tests.")
    reorder_percent: float = percent(0.0,
        "Percentage of incoming datagrams that change places with the next datagram.",
        "In tests.")
    corrupt_percent: float = percent(0.0,
        "Percentage of incoming datagrams in which one bit is inverted.", "In tests.")
    delay_ns: int = duration(0, "Delay of each incoming datagram.", "In tests.", low=0)
    jitter_ns: int = duration(0, "Largest random delay of a datagram in addition to delay_ns.",
                              "In tests.", low=0)
    seed: int = integer(
        1, 0, 2**63 - 1,
        "Seed of the random numbers for the simulated faults: the same seed gives the same "
        "losses.", "In tests.")

    @property
    def active(self) -> bool:
        return attrs.evolve(self, seed=1) != ImpairmentConfig()


@attrs.frozen(kw_only=True)
class LogConfig:
    """The daemon's log, on standard error."""

    level: str = choice("info", ("debug", "info", "warning",
        "error"), "Lowest level that is shown.", 'Set "debug" to log each command and event.')


@attrs.frozen(kw_only=True)
class TraceConfig:
    """File with events and samples of all streams as JSON lines; `penstock sim plot` draws them."""

    file: str = text(
        "", r"[^\0]*", "a path, or empty",
        "Path of the trace file; empty: no trace. The option --trace takes precedence over "
        "this key.",
        "Set this key to find out why a stream was slow. After a restart, the new daemon "
        "appends to the same trace file.")
    sample_interval_ns: int = duration(
        100 * MILLISECOND_NS, "Time between two samples of all streams in the trace. With "
                              "thousands of streams the daemon takes samples less often, so that "
                              "the samples need at most 5 % of the control plane's time.",
        "Lower this value to see periods of blocking that are shorter than the interval.",
        low=MILLISECOND_NS)
    file_bytes: int = size(
        GIB, 0, 1024 * GIB,
        "Length of the trace file at which the daemon renames the file to FILE.1 and begins a "
        "new one; 0: never.", "Lower this value if disk space is short.")


@attrs.frozen(kw_only=True)
class StopConfig:
    """Choose how the daemon reacts to SIGTERM and Ctrl-C; `penstock drain` always drains."""

    drain: bool = boolean(
        False, "true: on SIGTERM, drain all streams and remove the directory. false: leave "
               "the streams to the next daemon in the directory. After a drain, the daemon "
               "removes the directory only if no client and no consumer group is left. The "
               "option --drain takes precedence over this key.",
        "Set true if no new daemon will adopt the streams, as in tests and in containers that "
        "run only once.")
    drain_timeout_ns: int = duration(
        10 * SECOND_NS, "Longest time for which a drain waits for receivers. Data that is still "
                        "unsent after this time stays in the directory.",
        "Raise this value for slow receivers; keep it below the stop time-out of the service "
        "manager.",
        low=0)


#: Arrays of tables of the file, with the class of an element.
ARRAYS: Final[dict[str, type[Any]]] = {"stream": StreamRule, "relay": RelayRule}


@attrs.frozen(kw_only=True)
class DaemonConfig:
    """The whole configuration of a daemon; keys that a file leaves out have their defaults."""

    directory: DirectoryConfig = attrs.field(factory=DirectoryConfig)
    agents: AgentsConfig = attrs.field(factory=AgentsConfig)
    publications: PublicationsConfig = attrs.field(factory=PublicationsConfig)
    backpressure: BackpressureConfig = attrs.field(factory=BackpressureConfig)
    scheduler: SchedulerConfig = attrs.field(factory=SchedulerConfig)
    credits: CreditsConfig = attrs.field(factory=CreditsConfig)
    subscriptions: SubscriptionsConfig = attrs.field(factory=SubscriptionsConfig)
    sockets: SocketsConfig = attrs.field(factory=SocketsConfig)
    timeouts: TimeoutsConfig = attrs.field(factory=TimeoutsConfig)
    storage: StorageConfig = attrs.field(factory=StorageConfig)
    limits: LimitsConfig = attrs.field(factory=LimitsConfig)
    extensions: ExtensionsConfig = attrs.field(factory=ExtensionsConfig)
    metrics: MetricsConfig = attrs.field(factory=MetricsConfig)
    control_tcp: ControlTcpConfig = attrs.field(factory=ControlTcpConfig)
    impairment: ImpairmentConfig = attrs.field(factory=ImpairmentConfig)
    log: LogConfig = attrs.field(factory=LogConfig)
    trace: TraceConfig = attrs.field(factory=TraceConfig)
    stop: StopConfig = attrs.field(factory=StopConfig)
    stream: tuple[StreamRule, ...] = ()
    relay: tuple[RelayRule, ...] = ()

    def __attrs_post_init__(self) -> None:
        """Check the conditions between keys."""
        publications, timeouts, limits = self.publications, self.timeouts, self.limits
        half_term = publications.term_length_bytes // 2
        if publications.window_bytes > half_term:
            raise FieldError("publications.window_bytes", publications.window_bytes,
                             f"at most half of term_length_bytes, {half_term}")
        if 0 < publications.window_bytes < publications.mtu_bytes:
            raise FieldError("publications.window_bytes", publications.window_bytes,
                             f"0, or at least mtu_bytes, {publications.mtu_bytes}")
        if limits.publications % 64:
            raise FieldError("limits.publications", limits.publications, "a multiple of 64")
        if limits.reserved_session_low > limits.reserved_session_high:
            raise FieldError("limits.reserved_session_low", limits.reserved_session_low,
                             f"at most reserved_session_high, {limits.reserved_session_high}")
        if timeouts.idle_heartbeat_interval_ns > timeouts.connection_timeout_ns // 2:
            raise FieldError("timeouts.idle_heartbeat_interval_ns",
                             timeouts.idle_heartbeat_interval_ns,
                             "at most half of connection_timeout_ns")

    @property
    def threading(self) -> str:
        """Return ``shared`` or ``dedicated``. With ``auto``, return ``shared`` if this process may
        use at most two CPUs, otherwise ``dedicated``."""
        if self.agents.threading != "auto":
            return self.agents.threading
        return "shared" if len(os.sched_getaffinity(0)) <= 2 else "dedicated"

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration as plain data, with the same tables as the configuration
        file."""
        return attrs.asdict(self)
