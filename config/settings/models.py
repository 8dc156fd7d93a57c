# SPDX-License-Identifier: Apache-2.0
"""The daemon's configuration.

One frozen class for each table of the TOML file; fields and keys have the same names. A name ends
in its unit. A number without a unit is in this unit; a text may state another unit (``"64k"``,
``"5s"``). Defaults are Aeron's wherever Aeron has the setting.
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
    duration,
    file_mode,
    integer,
    optional_duration,
    optional_integer,
    parsed_text,
    percent,
    port_range,
    ratio,
    size,
    text,
)
from penstock.config.settings.backpressure import BackpressureConfig, check_policy
from penstock.config.settings.credits import CreditsConfig, check_credit_policy, check_credits
from penstock.config.settings.relays import RelayRule

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
        "The daemon's directory. Empty: $PENSTOCK_DIR, else /dev/shm/penstock-$USER. --dir wins.",
        "For a second daemon on a host, or for huge pages. Use a memory file system.",
    )
    mode: int = file_mode(
        0o770, "Permission bits of the directory.",
        "0700 excludes the group. With bits for other users, every user can read the streams.",
    )
    file_mode: int = file_mode(
        0o660, "Permission bits of the files and sockets in it.",
        "Change it together with mode. A client needs both permissions, to read and to write.",
    )
    group: str = text(
        "", r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}|", "the name of a group, or empty",
        "Group that owns directory and files. Empty: the daemon's own.",
        "If clients run as other users: add those users to this group.",
    )


@attrs.frozen(kw_only=True)
class AgentsConfig:
    """The threads that move data."""

    threading: str = choice(
        "auto", ("auto", "shared", "dedicated"),
        "shared: one thread runs sender and receiver; dedicated: each has its own thread; auto: "
        "shared on hosts with at most 2 CPUs.",
        "Set dedicated for high throughput in both directions, if the host has free CPUs.",
    )
    idle: str = choice(
        "park", ("park", "backoff", "yield", "spin"),
        "Behaviour of a thread without work. A parked thread sleeps until it is woken.",
        "Set spin or yield for the lowest latency; each thread then keeps a CPU busy.",
    )
    sender_cpu: int = integer(-1, -1, 1023, "CPU to which the sender is pinned; -1: none.",
                              "Set it for dedicated threads on isolated CPUs.")
    receiver_cpu: int = integer(-1, -1, 1023, "CPU to which the receiver is pinned; -1: none.",
                                "Set it for dedicated threads on isolated CPUs.")
    max_gaps: int = integer(1024, 4, 16384, "Largest number of gaps that an image can track.",
                            "Raise it on long, fast, lossy paths: it limits the number of losses "
                            "that are recovered in one round trip.")
    loss_recovery: str = choice(
        "all-gaps", ("all-gaps", "single-gap"),
        "Gaps that are requested and retransmitted at once: all, or only the first (Aeron).",
        "Set single-gap only for comparisons.",
    )
    retransmit_percent: int = integer(
        100, 1, 10000, "Bytes that a stream may retransmit for each 100 new bytes.",
        "Lower it if retransmits for one receiver take the link from others.")
    retransmit_bytes_per_s: int = size(
        4 * MIB, 1, 1024 * GIB, "Bytes a second that a stream may retransmit without new bytes.",
        "Raise it for streams that pause often on lossy paths.")
    event_capacity: int = integer(4096, 64, 1 << 20, "Events that may wait for the conductor.",
                                  "Raise it if the daemon's log reports lost events.")
    command_capacity: int = integer(1024, 64, 1 << 20, "Commands that may wait for a thread.",
                                    _RARELY)


_FLOW_CONTROLS: Final = ("max", "min", "tagged", "preferred", "nak")


def _flow_control(text: str) -> None:
    """:raises ValueError: the text is no flow control as in fc=."""
    strategy = uri.read_flow_control("fc", text).strategy if text else "max"
    if strategy not in _FLOW_CONTROLS and not strategy.startswith("py:"):
        raise ValueError(f"{strategy} is none of {', '.join(_FLOW_CONTROLS)}, py:...")


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
        raise ValueError(f"{chosen.control} is none of {', '.join(_CONGESTION_CONTROLS)}, py:...")


def _any_congestion_control(text: str) -> None:
    if text:
        _congestion_control(text)


def _fanout(text: str) -> None:
    if text:
        uri.read_fanout("ps-fanout", text)


def _rate(text: str) -> None:
    if text:
        uri.read_rate("ps-rate", text)


@attrs.frozen(kw_only=True)
class PublicationsConfig:
    """Defaults of publications; a channel's own parameters win."""

    term_length_bytes: int = size(
        16 * MIB, 64 * KIB, GIB, "Length of a term of a network stream; a log has three terms.",
        "Lower it for many quiet streams, raise it for long paths with high bandwidth.",
        power_of_two=True)
    ipc_term_length_bytes: int = size(
        64 * MIB, 64 * KIB, GIB, "Length of a term of an IPC stream.",
        "Lower it if shared memory is short.", power_of_two=True)
    mtu_bytes: int = size(
        1408, 64, 65504, "Largest datagram of a network stream, without IP and UDP headers.",
        "Set about 8192 if the whole path carries jumbo frames.", multiple_of=32)
    ipc_mtu_bytes: int = size(
        1408, 64, 65504, "Largest unfragmented frame of an IPC stream.",
        "Raise it to publish larger messages in one piece.", multiple_of=32)
    window_bytes: int = size(
        0, 0, GIB // 2,
        "Bytes that a publisher may be ahead of its consumers; 0: half a term, on IPC a term.",
        "Lower it to bound latency in the log.")
    linger_ns: int = duration(
        5 * SECOND_NS, "Time for which a closed publication still retransmits.",
        "Raise it for receivers that are slow to notice loss.", low=0)
    max_resend: int = integer(16, 1, 256, "Retransmits in flight at once for a group stream.",
                              "Raise it for large lossy groups.")
    sparse: bool = boolean(True, "Log files take memory only for the terms in use.",
                           "Set false to allocate all memory at once, for steady latency.")
    unicast_flow_control: str = parsed_text(
        "unicast", _unicast_flow_control, "unicast, nak or py:...",
        "Flow control of channels with one receiver.",
        "Set nak if slow receivers shall limit the rate instead of the window.")
    multicast_flow_control: str = parsed_text(
        "max", _flow_control, "max, min, tagged, preferred, nak or py:..., with their options",
        "Flow control of multicast and multi-destination channels.",
        "Set min if no receiver may miss data.")
    flow_control_group_tag: int = integer(
        -1, -(2**63), 2**63 - 1,
        "Tag that tagged flow control follows when the channel names none.",
        "Set it as you set Aeron's flow.control.group.tag.")
    spies_simulate_connection: bool = boolean(
        False, "A publication with spies counts as connected.",
        "Set true to record streams that have no receiver yet.")


@attrs.frozen(kw_only=True)
class SchedulerConfig:
    """The order in which a sender serves its streams; a channel's own parameters win."""

    auto_priority: bool = boolean(
        True, "A stream without a stated priority gets one by recency: 500 when it was just "
              "consumed, half of that after each further 30 s. false: 0.",
        "Set false if only stated priorities may count.")
    governor: bool = boolean(
        True, "Under pressure the sender delays new data, and full publications answer THROTTLED.",
        "Set false if all streams must get the same treatment under overload.")


@attrs.frozen(kw_only=True)
class StreamRule:
    """One `[[stream]]`: values for the channels and streams that it matches. Only the first rule
    that matches is used; parameters of the channel itself win."""

    channel: str = text(
        "*", r"[^\0]+", "a pattern of a channel, with * and ?",
        "Pattern of the channel's canonical text.", "\"*endpoint=239.*\" for multicast streams.")
    stream_id: int | None = optional_integer(-(2**31), I32_MAX, "Stream; not set: any.",
                                             "For one stream.")
    session_id: int | None = optional_integer(
        -(2**31), I32_MAX, "Session as the channel states it; not set: any.", "For one session.")
    term_length_bytes: int = size(0, 0, GIB, "Term length; 0: any.", "For streams of one size.")
    flow_control: str = parsed_text(
        "", _flow_control, "a flow control as in fc=, or empty",
        "Flow control of publications; empty: as without the rule.",
        "\"min\" if no receiver may miss data.")
    strategy_on_late: str = text(
        "", r"(hold|max|min)?", "hold, max, min or empty",
        "Limit while a flow control in Python is late; empty: as its class states, else hold.",
        "\"max\" where fresh data matters more than all data.")
    window_bytes: int = size(0, 0, GIB // 2, "Publication window; 0: as without the rule.",
                             "To bound latency in the log.")
    rate: str = parsed_text(
        "", _rate, "a rate as in ps-rate=, or empty", "Rate of publications; empty: unlimited.",
        "\"10m\" for bytes, \"500msg\" for messages a second.")
    policy: str = parsed_text(
        "", check_policy, f"{', '.join(uri.POLICIES)}, or empty",
        "Policy of publications when their log is full; empty: as without the rule.",
        "\"drop_newest\" for sensors that must not wait.")
    queue_depth: int = size(0, 0, GIB, "Depth in bytes as in ps-depth=; 0: as without the rule.",
                            "To bound the age of what is published.")
    fanout: str = parsed_text(
        "", _fanout, "min, independent, or empty",
        "Fan-out of publications as in ps-fanout=; empty: as without the rule.",
        "\"independent\" if no reader of this host may slow the stream.")
    low_watermark_ratio: float = ratio(
        0.0, "Low watermark as in ps-low-watermark=; 0: as without the rule.", "With a depth.")
    priority: int | None = optional_integer(
        -1000, 1000, "Priority of publications as in ps-priority=; not set: by recency.",
        "1000 for streams that must be sent first, below 0 for streams that may wait.")
    congestion_control: str = parsed_text(
        "", _any_congestion_control, "a congestion control as in cc=, or empty",
        "Congestion control of subscriptions; empty: as without the rule. Session and term length "
        "of the rule are compared with those of the arriving stream.",
        "\"cubic\" on paths shared with others.")
    receiver_window_bytes: int = size(0, 0, GIB // 2, "Receiver window; 0: as without the rule.",
                                      "Set bandwidth times round trip of this stream.")
    credits: str = parsed_text(
        "", check_credits, "a number of messages, auto, or empty",
        "Credits of subscriptions as in ps-credits=; empty: as without the rule.",
        "To bound the messages in flight to an operator.")
    credit_policy: str = parsed_text(
        "", check_credit_policy, f"{', '.join(uri.CREDIT_POLICIES)}, or empty",
        "Division of credits as in ps-credit-policy=; empty: as without the rule.", "With credits.")
    credit_weight: int = integer(
        0, 0, 1000, "Weight of the publishers that the rule matches; 0: as without the rule.",
        "With credit_policy = \"weighted\" or \"deficit\".")


@attrs.frozen(kw_only=True)
class SubscriptionsConfig:
    """Defaults of subscriptions; a channel's own parameters win."""

    receiver_window_bytes: int = size(
        128 * KIB, 256, GIB // 2, "Bytes that a sender may have in flight to a receiver.",
        "Set bandwidth times round trip for fast long paths; this needs a large net.core.rmem_max.")
    congestion_control: str = parsed_text(
        "static", _congestion_control, "static, cubic or py:..., with their options",
        "Limit of the data in flight, below the receiver window.",
        "Set cubic on shared paths, with a receiver window for the fastest case.",
    )
    cubic_reno_friendly: bool = boolean(
        True, "CUBIC's window is never below Reno's (RFC 9438, section 4.3). cc=cubic,reno:false "
              "turns this off for one stream.",
        "Set false for Aeron's behaviour, which is slower on short paths.")
    reliable: bool = boolean(True, "The receiver requests lost data.",
                             "Set false if late data is worthless: gaps are then skipped.")
    tether: bool = boolean(True, "A slow subscriber holds its stream back.",
                           "Set false if the stream need not wait for slow subscribers.")
    rejoin: bool = boolean(True, "A session that returns after its end is an image again.", _RARELY)
    group_tag: int | None = optional_integer(
        -(2**63), 2**63 - 1, "Group tag in the receiver's status messages; not set: no tag.",
        "Set it for a receiver that publications with fc=tagged must follow.")


@attrs.frozen(kw_only=True)
class SocketsConfig:
    """Defaults of sockets; a channel's own parameters win."""

    sndbuf_bytes: int = size(0, 0, I32_MAX, "SO_SNDBUF; 0: the system's default.",
                             "Raise it if streams are blocked with the cause socket.")
    rcvbuf_bytes: int = size(
        128 * KIB, 0, I32_MAX, "Least SO_RCVBUF of a socket; 0: the system's default.",
        "The buffer grows with the receiver window. Raise it for many streams at one address.")
    multicast_ttl: int = integer(0, 0, 255, "TTL or hop limit of multicast; 0: the system's (1).",
                                 "Raise it if multicast must cross routers.")
    gso: bool = boolean(True, "Send many datagrams in one system call (UDP segmentation).",
                        "Set false to find out whether a network card is faulty.")
    gro: bool = boolean(True, "Receive many datagrams in one system call.",
                        "Set false to find out whether a network card is faulty.")
    sender_ports: tuple[int, int] = port_range(
        "Ports of publications whose channel names no port; [0, 0]: the system chooses.",
        "Set it if a firewall admits only certain ports.")
    receiver_ports: tuple[int, int] = port_range(
        "Ports for subscriptions whose endpoint has port 0; [0, 0]: the system chooses.",
        "Set it if a firewall admits only certain ports.")


@attrs.frozen(kw_only=True)
class TimeoutsConfig:
    """Intervals and time-outs of the protocol."""

    setup_interval_ns: int = duration(
        100 * MILLISECOND_NS, "Time between SETUPs until a receiver answers.", _RARELY)
    heartbeat_interval_ns: int = duration(
        100 * MILLISECOND_NS, "Time between heartbeats of a stream that became idle.", _RARELY)
    idle_after_ns: int = duration(
        SECOND_NS, "Silence after which heartbeats and status messages slow down.", _RARELY)
    idle_heartbeat_interval_ns: int = duration(
        SECOND_NS, "Time between heartbeats of an idle stream.",
        "\"100ms\" restores Aeron's pace; must stay well under a receiver's liveness time-out.")
    status_message_timeout_ns: int = duration(
        200 * MILLISECOND_NS, "A receiver states its position at least this often.", _RARELY)
    connection_timeout_ns: int = duration(
        5 * SECOND_NS, "Silence of all receivers after which a publication is not connected.",
        "Raise it on paths with long outages.")
    image_liveness_timeout_ns: int = duration(
        10 * SECOND_NS, "Silence of a sender after which its image ends.",
        "Raise it on paths with long outages.")
    image_linger_ns: int = duration(
        10 * SECOND_NS, "Time for which an ended image's log is kept for its slow subscribers.",
        "Raise it for slow readers.", low=0)
    pending_setup_timeout_ns: int = duration(
        SECOND_NS, "Time between requests for a SETUP by receivers with a control address.",
        _RARELY)
    unblock_timeout_ns: int = duration(
        15 * SECOND_NS, "The daemon pads over a claim that stays open this long.",
        "Raise it if debuggers stop publishers.")
    retransmit_delay_ns: int = duration(
        0, "Time from a NAK to its retransmit.", "Raise it for large multicast groups.", low=0)
    retransmit_linger_ns: int = duration(
        10 * MILLISECOND_NS, "A range is not retransmitted twice within this time.",
        "Set about one round trip if receivers repeat NAKs.", low=0)
    nak_unicast_delay_ns: int = duration(
        1000, "Time from a gap to its NAK, on unicast.", "Raise it if datagrams are reordered.")
    nak_unicast_retry_ratio: int = integer(
        100, 1, 10**6, "NAK delays from a NAK to its repeat, while the round trip is unknown.",
        _RARELY)
    nak_multicast_max_backoff_ns: int = duration(
        10 * MILLISECOND_NS, "Longest random wait before a NAK in a group.",
        "Raise it for large groups.")
    nak_multicast_group_size: int = integer(
        10, 1, 100_000, "Number of receivers for which the multicast back-off is computed.",
        "Set it to the size of your groups.")
    untethered_window_limit_timeout_ns: int = duration(
        5 * SECOND_NS, "Time until an untethered subscriber that blocks the window is dropped.",
        _RARELY)
    untethered_linger_timeout_ns: int | None = optional_duration(
        "Time in which a dropped subscriber may finish; not set: window limit time-out.", _RARELY)
    untethered_resting_timeout_ns: int = duration(
        10 * SECOND_NS, "Time after which a dropped subscriber joins again.", _RARELY)
    resolution_interval_ns: int = duration(
        SECOND_NS, "Time between checks whether host names must be resolved again.", _RARELY)
    reattach_timeout_ns: int = duration(
        10 * SECOND_NS, "Time in which clients of a dead daemon must return to the new one.",
        "Raise it if debuggers stop clients.")


@attrs.frozen(kw_only=True)
class StorageConfig:
    """Shared memory."""

    budget_bytes: int = size(
        0, 0, 2**60, "Largest amount of memory for log buffers; 0: budget_percent applies.",
        "To leave room for other programs on the same file system.")
    budget_percent: float = percent(
        80.0, "Part of the free space at start for log buffers.", "Used when budget_bytes is 0.")
    page_bytes: int = size(
        4 * KIB, 4 * KIB, GIB, "Page size that log files are rounded to.",
        "\"2m\" on hugetlbfs.", power_of_two=True)
    idle_term_timeout_ns: int = duration(
        60 * SECOND_NS, "Idle time after which unused memory of a log is released; \"0ns\": never.",
        "Lower it if many streams are idle for most of the time.", low=0)
    counter_values_bytes: int = size(
        8 * MIB, 64 * KIB, 500 * MIB, "Counters: 128 bytes each, and four times that for labels.",
        "Raise it if the daemon reports that no counter is free.", multiple_of=128)
    error_log_bytes: int = size(4 * MIB, 64 * KIB, 64 * MIB, "The error log in cnc.dat.", _RARELY,
                                multiple_of=64)


@attrs.frozen(kw_only=True)
class LimitsConfig:
    """Numbers of objects at once."""

    clients: int = integer(256, 1, 65536, "Client processes.", "Raise it if it is reached.")
    publications: int = integer(4096, 64, 65536, "Publications.", "Raise it if it is reached.")
    images: int = integer(4096, 1, 65536, "Images.", "Raise it if it is reached.")
    subscribers: int = integer(8192, 1, 65536, "Pairs of subscription and image.",
                               "Raise it if it is reached.")
    groups: int = integer(64, 1, 65536, "Consumer groups.", _RARELY)
    queued_commands: int = integer(1024, 1, 1 << 20, "Requests of one client that may wait.",
                                   _RARELY)
    sessions_per_stream: int = integer(I32_MAX, 1, I32_MAX, "Images of one stream on one channel.",
                                       "Lower it against hostile or faulty senders.")
    reserved_session_low: int = integer(-1, -(2**31), I32_MAX, "First reserved session.", _RARELY)
    reserved_session_high: int = integer(1000, -(2**31), I32_MAX, "Last reserved session.", _RARELY)


@attrs.frozen(kw_only=True)
class ExtensionsConfig:
    """Extensions of penstock to Aeron's wire protocol."""

    advertise: bool = boolean(
        True, "Announce this peer's capabilities behind SETUP and status messages.",
        "Set false to send only what an Aeron driver would send.")


@attrs.frozen(kw_only=True)
class MetricsConfig:
    """Metrics over HTTP, in Prometheus' text format."""

    listen: str = text(
        "unix:metrics.sock",
        r"(unix:[^\0]+|\[[0-9A-Fa-f:]+\]:[0-9]{1,5}|[A-Za-z0-9.-]+:[0-9]{1,5})?",
        '"unix:PATH" (in the directory when relative), "host:port", or empty',
        "Address of the metrics; empty: none.",
        "\"127.0.0.1:9464\" for a scraper. The page has no access control: keep it local.")


@attrs.frozen(kw_only=True)
class ControlTcpConfig:
    """Consumer groups, status and fetches for other hosts: over TCP, with CURVE keys."""

    listen: str = text(
        "", r"(\[[0-9A-Fa-f:]+\]:[0-9]{1,5}|[A-Za-z0-9.*-]+:[0-9]{1,5})?",
        '"host:port", "*:port" or empty', "Address; empty: none.",
        "Set it if readers of groups run on other hosts.")
    secret_key: str = text(
        "", r"[^\0]*", "a path", "The daemon's key: NAME.key_secret of 'penstock keygen'.",
        "Set it together with listen.")
    clients: str = text(
        "", r"[^\0]*", "a path", "Public keys of the clients that may connect: a file "
        "with a key in each line, or a directory of .key files. Changes apply at once.",
        "Set it together with listen.")
    connections: int = integer(64, 1, 4096, "Connections at once; more are refused.", _RARELY)
    fetch_bytes: int = size(
        64 * MIB, 4 * MIB, 16 * GIB, "Fetched data in flight for all readers together, at most.",
        "Raise it for many fetches over long paths.")

    def __attrs_post_init__(self) -> None:
        if self.listen and not (self.secret_key and self.clients):
            raise FieldError(
                "control_tcp.listen", self.listen,
                "with secret_key and clients: there is no TCP without keys (penstock keygen)")


@attrs.frozen(kw_only=True)
class ImpairmentConfig:
    """Simulated network faults: for tests and demonstrations only."""

    send_loss_percent: float = percent(0.0, "Outgoing datagrams lost.", "In tests.")
    recv_loss_percent: float = percent(0.0, "Incoming datagrams lost.", "In tests.")
    duplicate_percent: float = percent(0.0, "Datagrams received twice.", "In tests.")
    reorder_percent: float = percent(0.0, "Incoming datagrams that arrive after the next one.",
        "In tests.")
    corrupt_percent: float = percent(0.0, "Datagrams received with one bit flipped.", "In tests.")
    delay_ns: int = duration(0, "Delay of each incoming datagram.", "In tests.", low=0)
    jitter_ns: int = duration(0, "Largest random delay added to delay_ns.", "In tests.", low=0)
    seed: int = integer(
        1, 0, 2**63 - 1, "Seed of the generator: the same seed gives the same losses.", "In tests.")

    @property
    def active(self) -> bool:
        return attrs.evolve(self, seed=1) != ImpairmentConfig()


@attrs.frozen(kw_only=True)
class LogConfig:
    """The daemon's log, on standard error."""

    level: str = choice("info", ("debug", "info", "warning",
        "error"), "Lowest level that is shown.",
                        "debug to log each command and event.")


@attrs.frozen(kw_only=True)
class TraceConfig:
    """Events and samples as JSON lines in a file; `penstock sim plot` draws it."""

    file: str = text(
        "", r"[^\0]*", "a path, or empty", "Path of the file; empty: none. --trace wins.",
        "To find out why a stream was slow. A new daemon continues the same file.")
    sample_interval_ns: int = duration(
        100 * MILLISECOND_NS, "Time between samples of all streams. With thousands of streams the "
                              "samples come less often, so that they take at most 5 % of the "
                              "control plane's time.",
        "Lower it to see each short stall.", low=MILLISECOND_NS)
    file_bytes: int = size(
        GIB, 0, 1024 * GIB, "Length at which the daemon renames the file to FILE.1; 0: never.",
        "Lower it if disk space is short.")


@attrs.frozen(kw_only=True)
class StopConfig:
    """Choose what SIGTERM and Ctrl-C do; `penstock drain` always drains."""

    drain: bool = boolean(
        False, "End all streams in order and remove the directory. false: leave the streams to "
               "the next daemon in the directory, and remove it only if no client and no group is "
               "left. --drain wins.",
        "If no new daemon will adopt the streams, as in tests and one-off containers.")
    drain_timeout_ns: int = duration(
        10 * SECOND_NS, "Time for which a drain waits for receivers; unsent data then stays in "
        "the directory.", "Raise it for slow receivers, below the service manager's patience.",
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
        """Return ``shared`` or ``dedicated``; ``auto`` is replaced by the choice for this
        machine."""
        if self.agents.threading != "auto":
            return self.agents.threading
        return "shared" if len(os.sched_getaffinity(0)) <= 2 else "dedicated"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, table by table, as in the file."""
        return attrs.asdict(self)
