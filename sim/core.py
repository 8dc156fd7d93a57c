# SPDX-License-Identifier: Apache-2.0
"""Load the simulator's core ``penstock._core_sim``. Wrap those functions of the simulator's core
that the product's core lacks. These functions concern hosts, links, datagrams and applications in
virtual time.

``SIM`` is the simulator's core as a :class:`penstock.core.library.Library`. All objects of a
simulated world are created with this library: drivers, clients, files.
"""

from __future__ import annotations

import enum
from typing import Any, Final, TypeVar

import attrs

from penstock.core.driver import Driver, Net
from penstock.core.driver_types import Address
from penstock.core.errors import native_error
from penstock.core.library import Handle, Library, NativeObject

try:
    from penstock import _core_sim
except ImportError as error:
    raise ImportError(
        f"the simulator's core penstock._core_sim cannot be loaded ({error}); "
        "in a source tree run 'make ext', otherwise reinstall penstock for this Python and platform"
    ) from error

SIM: Final = Library("penstock._core_sim", _core_sim)

#: Names of ``ps_sim_rule``, in its order.
RULES: Final = (
    "nak: overrun repaired", "nak: beyond repair", "nak: rejoins", "nak: hastens",
    "nak: paused", "nak: cut by strength", "nak: settles", "nak: drains", "nak: overrun cuts",
    "nak: probes", "nak: probes beyond", "nak: free again", "nak: healthy silence",
    "nak: congestion window", "nak: plain receiver",
    "join: held", "join: expired", "join: too soon", "join: not joined", "join: spent",
    "join: refused",
    "late: hold", "late: max", "late: min", "strategy silent",
    "cc=py: window", "cc=py: silent",
    "governor: coalesces", "governor: coalesced", "governor: defers", "governor: delays status",
    "governor: throttles", "relay: passes the reason up",
)
assert len(RULES) == SIM.lib.PS_SIM_RULES

@attrs.frozen(kw_only=True)
class Link:
    """Properties of a link. A link transports datagrams from one host to another, in one direction.
    Probabilities are in parts per million; a bandwidth or queue of 0 means no limit."""

    delay_ns: int = 0
    jitter_ns: int = 0
    bandwidth_bytes_per_s: int = 0
    queue_bytes: int = 0
    loss_ppm: int = 0
    burst_enter_ppm: int = 0
    burst_leave_ppm: int = 0
    burst_loss_ppm: int = 0
    duplicate_ppm: int = 0
    reorder_ppm: int = 0
    reorder_ns: int = 0
    corrupt_ppm: int = 0
    stranger_ppm: int = 0               # repeated and falsified by another address
    no_checksum: bool = False


@attrs.frozen(kw_only=True)
class NetworkStatistics:
    """Numbers of datagrams, except ``bytes_sent``."""

    sent: int
    delivered: int
    lost: int
    queue_full: int
    buffer_full: int
    unreachable: int
    bytes_sent: int
    duplicated: int
    reordered: int
    corrupted: int
    forged: int
    refused: int


@attrs.frozen(kw_only=True)
class WireStatistics:
    """Counts the sent datagrams of each type, and the sent bytes of the streams."""

    data: int
    data_bytes: int
    resent: int
    resent_bytes: int
    heartbeats: int
    setups: int
    status_messages: int
    naks: int
    rtt: int
    errors: int
    ext: int
    malformed: int
    overruns: int
    broken: int


@attrs.frozen(kw_only=True)
class UnstoredStatistics:
    """Counts the datagrams that receivers discarded for lack of storage, and the gaps that they
    left. Their senders are under NAK-strength control."""

    datagrams: int
    ranges: int


@attrs.frozen(kw_only=True)
class PublisherStatistics:
    """Numbers of messages that an application has published."""

    messages: int
    bytes: int
    position: int
    refusals: int
    blocked_ns: int
    last_ns: int
    at_end: int


@attrs.frozen(kw_only=True)
class ReaderStatistics:
    """Numbers of messages of one session that an application has received. ``first`` is -1 until
    the first message was received."""

    messages: int
    bytes: int
    missed: int
    gaps: int
    first: int
    next: int
    position: int
    last_ns: int
    latency_ns: int
    untold: int
    dropped: int
    uncounted: int


@attrs.frozen(kw_only=True)
class RelayAccount:
    """Numbers of messages of a session that a relay reads. The relay has published ``messages`` of
    the messages from number ``first`` up to number ``next``. Gaps reported the other ``left_out``
    of them. Other gaps reported ``told`` messages that the publishers' policy dropped. ``source``
    is the ledger of the session."""

    source: int
    first: int
    next: int
    messages: int
    left_out: int
    told: int


class Stop(enum.IntEnum):
    """Reason why a run of the world ended."""

    TIME = 0
    CONTROL = 1
    STUCK = 2
    WOKEN = 3


_T = TypeVar("_T")


def _read(kind: type[_T], native: Any) -> _T:
    names = [field.name for field in attrs.fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: int(getattr(native, name)) for name in names})


class SimNetwork(NativeObject):
    """A simulated network: its behaviour depends only on the seed and on the calls."""

    def __init__(self, seed: int) -> None:
        super().__init__(None, SIM)
        out = self._ffi.new("ps_simnet_t **")
        self._check(self._lib.ps_simnet_create(seed % 2**64, out), "make a simulated network")
        self._handle = out[0]

    def close(self) -> None:
        """Close the network. The caller must first close all drivers that use this network.
        Idempotent."""
        if self._handle is not None:
            self._lib.ps_simnet_destroy(self._handle)
            self._handle = None

    def add_host(self, *ips: str) -> int:
        """Add a host with these addresses; return its index."""
        host = self._check(self._lib.ps_simnet_add_host(self._handle), "add a host")
        for ip in ips:
            address = self.library.new_address(Address(ip=ip, port=0))
            self._check(
                self._lib.ps_simnet_add_address(self._handle, host, address), f"give {ip} to a host"
            )
        return host

    def set_link(self, link: Link, *, sender: int = -1, receiver: int = -1) -> None:
        """Change the link from one host to another; -1 means all hosts."""
        native = self._ffi.new("ps_simnet_link_t *")
        self._fill(native, link)
        self._check(
            self._lib.ps_simnet_set_link(self._handle, sender, receiver, native), "change a link"
        )

    def host_net(self, host: int) -> Net:
        """Return the network implementation of a host, for its driver."""
        net = self._lib.ps_simnet_host_net(self._handle, host)
        if net == self._ffi.NULL:
            raise native_error(-1003, self.library.last_error(), operation="make a host's network")
        return Net(net, self.library)

    def next_event_ns(self) -> int:
        """Return the arrival time of the next datagram; NEVER_NS: none is in flight."""
        return int(self._lib.ps_simnet_next_event_ns(self._handle))

    def advance(self, now_ns: int) -> int:
        """Deliver the due datagrams. Return their number."""
        return int(self._lib.ps_simnet_advance(self._handle, now_ns))

    def trace_hash(self) -> int:
        """Return a 64-bit hash over all sent and all arrived datagrams."""
        return int(self._lib.ps_simnet_trace_hash(self._handle))

    def statistics(self) -> NetworkStatistics:
        native = self._ffi.new("ps_simnet_stats_t *")
        self._lib.ps_simnet_statistics(self._handle, native)
        return _read(NetworkStatistics, native)

    def drop(self, sender: int, receiver: int, number: int) -> None:
        """Let the link between two hosts drop its datagram number ``number``; each link counts its
        datagrams from 0.
        """
        self._check(self._lib.ps_simnet_drop(self._handle, sender, receiver, number), "list a loss")

    def stuff(self, host: int, *, until_ns: int, short_ppm: int) -> None:
        """Make the host's sockets accept no datagram until ``until_ns``. After this time, a send
        call accepts all its datagrams or, with the probability ``short_ppm``, only the first few or
        none.
        """
        self._check(
            self._lib.ps_simnet_stuff(self._handle, host, until_ns, short_ppm), "fill sockets"
        )

    def make_plain(self, host: int) -> None:
        """Make the host one that does not know trailers, as Aeron's: SETUPs and status messages
        arrive there without their trailer."""
        self._check(self._lib.ps_simnet_make_plain(self._handle, host), "remove trailers")

    def inject(
        self, host: int, source: Address, target: Address, data: bytes, now_ns: int
    ) -> None:
        """Send a forged datagram from the host."""
        address = self.library.new_address
        self._check(
            self._lib.ps_simnet_inject(
                self._handle, host, address(source), address(target), data, len(data), now_ns
            ),
            "send a stranger's datagram",
        )

    def calm(self, port: int, delay_ns: int) -> None:
        """Make every link deliver datagrams to or from this UDP port after a fixed time, without
        faults.
        """
        self._check(self._lib.ps_simnet_calm(self._handle, port, delay_ns), "keep a port calm")

    def watch(self, half_term_stream_id: int = 0) -> None:
        """Let the oracle ``watch`` check all datagrams from now on. ``half_term_stream_id`` is the
        id of a stream with fc=nak, or 0. The oracle allows the sender of this stream to be half a
        term ahead of the receivers, even if they advertise smaller windows.
        """
        self._check(self._lib.ps_simnet_watch(self._handle, half_term_stream_id), "watch the wire")

    def wire(self) -> WireStatistics:
        native = self._ffi.new("ps_sim_wire_t *")
        self._lib.ps_simnet_wire(self._handle, native)
        return _read(WireStatistics, native)


class SimWorld(NativeObject):
    """Drivers and applications in virtual time. The C code runs the world until a conductor must
    act."""

    def __init__(self, network: SimNetwork) -> None:
        super().__init__(None, SIM)
        out = self._ffi.new("ps_simworld_t **")
        self._check(self._lib.ps_simworld_create(network.handle, out), "make a world")
        self._handle = out[0]
        self._now = self._ffi.new("int64_t *")

    def close(self) -> None:
        """Before the network.  Idempotent."""
        if self._handle is not None:
            self._lib.ps_simworld_destroy(self._handle)
            self._handle = None

    def set_driver(self, host: int, driver: Driver | None, cycle_ns: int) -> None:
        """Set the driver of a host; None: the host has no driver."""
        native = self._ffi.NULL
        if driver is not None:
            self.library.refuse_others(driver=driver)
            native = driver.handle
        self._check(
            self._lib.ps_simworld_set_driver(self._handle, host, native, cycle_ns), "place a driver"
        )

    def set_control_ns(self, host: int, deadline_ns: int) -> None:
        """Set the time at which the host's conductor must be called."""
        self._lib.ps_simworld_set_control_ns(self._handle, host, deadline_ns)

    def step(self, host: int, now_ns: int) -> int:
        """Run one duty cycle of the host's driver; return the amount of work that it did."""
        return int(self._lib.ps_simworld_step(self._handle, host, now_ns))

    def probe(self) -> None:
        """Let the probe, an oracle, check every duty cycle of every driver from now on. Call this
        method before the first driver is set."""
        self._check(self._lib.ps_simworld_probe(self._handle), "probe the drivers")

    def touch(self, host: int) -> None:
        """Make the next run execute a duty cycle of this host's driver.
        """
        self._lib.ps_simworld_touch(self._handle, host)

    def wants_control(self, host: int, now_ns: int) -> bool:
        return bool(self._lib.ps_simworld_wants_control(self._handle, host, now_ns))

    def hold_control(self, host: int, until_ns: int) -> None:
        """Keep the host's conductor busy until a time: the conductor processes no event before this
        time.
        """
        self._lib.ps_simworld_hold_control(self._handle, host, until_ns)

    def run(self, now_ns: int, until_ns: int) -> tuple[Stop, int]:
        """Run the world until ``until_ns``, or until a conductor or client must act. Return the
        reason why the run ended, and the time at which it ended.
        """
        self._now[0] = now_ns
        stop = self._lib.ps_simworld_run(self._handle, until_ns, self._now)
        return Stop(stop), int(self._now[0])

    def wait_for(self, client: Handle, ticket: int) -> None:
        """Let the next run end as soon as the client is woken. Each wake-up changes the client's
        ticket, so the run ends when the present ticket differs from ``ticket``.
        """
        self._check(
            self._lib.ps_simworld_await(self._handle, client.native, ticket), "wait for a client"
        )

    def wait_for_nobody(self) -> None:
        """Forget the clients that were passed to :meth:`wait_for`: a wake-up of these clients no
        longer ends a run.
        """
        self._lib.ps_simworld_await_nobody(self._handle)

    def set_clock(self, publication: Handle) -> None:
        """Let a publication measure the duration of its refusals in the virtual time of this world.
        """
        self.library.refuse_others(publication=publication)
        self._lib.ps_simworld_set_clock(self._handle, publication.native)

    def steps(self) -> int:
        """Number of duty cycles that all drivers have run so far."""
        return int(self._lib.ps_simworld_steps(self._handle))

    def violations(self) -> list[str]:
        found: list[str] = []
        violation, string = self._lib.ps_simworld_violation, self._ffi.string
        while text := bytes(string(violation(self._handle, len(found)))):
            found.append(text.decode())
        return found

    def rules(self) -> list[str]:
        """Return the names of the protocol's rules that the run has used."""
        met = int(self._lib.ps_simworld_rules(self._handle))
        return [name for bit, name in enumerate(RULES) if met >> bit & 1]

    def unstored(self) -> UnstoredStatistics:
        native = self._ffi.new("ps_sim_unstored_t *")
        self._lib.ps_simworld_unstored(self._handle, native)
        return _read(UnstoredStatistics, native)

    # ---- ledgers: what sessions carried ----

    def add_ledger(self, session_id: int, stream_id: int, seed: int) -> int:
        return self._check(
            self._lib.ps_simworld_add_ledger(self._handle, session_id, stream_id, seed % 2**64),
            "add a ledger",
        )

    def add_relayed(
        self, target: tuple[int, int], source: tuple[int, int], *, relay: int, join_position: int
    ) -> int:
        """Add the ledger of a session that a relay publishes, and return its index. The relay reads
        the source from ``join_position`` on. Target and source are session and stream ids."""
        return self._check(
            self._lib.ps_simworld_add_relayed(
                self._handle, *target, *source, relay, join_position
            ),
            "add a relayed session",
        )

    def relayed(self, publisher: int, position: int, data: bytes, reserved_value: int) -> None:
        """Note and check a message that the publication of a relay has accepted."""
        self._check(
            self._lib.ps_simworld_relayed(
                self._handle, publisher, position, data, len(data), reserved_value
            ),
            "note a relayed message",
        )

    def relay_refused(self, publisher: int) -> None:
        """Note that the publication of a relay has refused a message."""
        self._lib.ps_simworld_relay_refused(self._handle, publisher)

    def relay_gap(
        self, ledger: int, from_: int, to: int, messages: int | None, may_not_know: bool
    ) -> None:
        """Note and check a gap that was reported to a relay; ``ledger`` is the ledger of the
        session that the relay publishes. A report without the number of messages is a fault unless
        the relay ``may_not_know`` it."""
        number = -1 if messages is None else messages
        self._lib.ps_simworld_relay_gap(self._handle, ledger, from_, to, number, may_not_know)

    def relay_released(self, ledger: int, position: int) -> None:
        """Check the position up to which a relay has released the source of the ledger."""
        self._lib.ps_simworld_relay_released(self._handle, ledger, position)

    def relay_account(self, ledger: int) -> RelayAccount:
        """Return what a relay has done with the messages of the session that it reads; ``ledger``
        is the ledger of the session that it publishes."""
        native = self._ffi.new("ps_sim_relay_account_t *")
        self._lib.ps_simworld_relay_account(self._handle, ledger, native)
        return _read(RelayAccount, native)

    def relay_next(self, ledger: int) -> int:
        """Return the number of the message of the source with which a relay continues."""
        return int(self._lib.ps_simworld_relay_next(self._handle, ledger))

    def reserve(self, ledger: int) -> None:
        """Make the publishers of a ledger write a reserved value into each message."""
        self._lib.ps_simworld_reserve(self._handle, ledger)

    def ledger_messages(self, ledger: int) -> int:
        return int(self._lib.ps_simworld_ledger_messages(self._handle, ledger))

    def ledger_dropped(self, ledger: int) -> int:
        """Return how many messages the publication's policy (``ps-policy``) dropped in the session
        of this ledger. The simulated publishers count these messages.
        """
        return int(self._lib.ps_simworld_ledger_dropped(self._handle, ledger))

    def ledger_position(self, ledger: int) -> int:
        return int(self._lib.ps_simworld_ledger_position(self._handle, ledger))

    # ---- applications ----

    def add_publisher(
        self,
        publication: Handle,
        *,
        host: int,
        ledger: int,
        sizes: tuple[int, int],
        count: int,
        start_ns: int,
        interval_ns: int,
        claims: bool = False,
    ) -> int:
        native = self._ffi.new("ps_sim_publisher_params_t *")
        self.library.refuse_others(publication=publication)
        native.pub = publication.native
        native.host = host
        native.ledger = ledger
        native.size_low, native.size_high = sizes
        native.count = count
        native.start_ns = start_ns
        native.interval_ns = interval_ns
        native.claims = claims
        return self._check(
            self._lib.ps_simworld_add_publisher(self._handle, native), "add a publisher"
        )

    def add_subscriber(
        self, subscription: Handle, *, host: int, stream_id: int, poll_limit: int,
        poll_interval_ns: int, batch: int = 0, outstanding: int = 0, pool: int = 0,
    ) -> int:
        native = self._ffi.new("ps_sim_subscriber_params_t *")
        self.library.refuse_others(subscription=subscription)
        native.sub = subscription.native
        native.host = host
        native.stream_id = stream_id
        native.poll_limit = poll_limit
        native.poll_interval_ns = poll_interval_ns
        native.batch = batch
        native.credits = outstanding
        native.pool = pool
        return self._check(
            self._lib.ps_simworld_add_subscriber(self._handle, native), "add a subscriber"
        )

    def detach_publisher(self, publisher: int) -> None:
        """Make the simulator stop using the application's publication. The caller can then close
        the publication's handle.
        """
        self._lib.ps_simworld_detach_publisher(self._handle, publisher)

    def kill_publisher(self, publisher: int) -> None:
        """Kill the application in an offer, after it took a credit. Its message is not in the log.
        """
        self._lib.ps_simworld_kill_publisher(self._handle, publisher)

    def detach_subscriber(self, subscriber: int) -> None:
        self._lib.ps_simworld_detach_subscriber(self._handle, subscriber)

    def pause_publisher(self, publisher: int, paused: bool) -> None:
        self._lib.ps_simworld_pause_publisher(self._handle, publisher, paused)

    def pause_subscriber(self, subscriber: int, paused: bool) -> None:
        self._lib.ps_simworld_pause_subscriber(self._handle, subscriber, paused)

    def pace_subscriber(self, subscriber: int, *, interval_ns: int, batch: int) -> None:
        self._lib.ps_simworld_pace_subscriber(self._handle, subscriber, interval_ns, batch)

    def expect_gap(self, subscriber: int, session_id: int, stream_id: int) -> None:
        """Record that the subscriber was notified of a new image. The simulator then allows
        messages to be missing before the first message of this image."""
        self._lib.ps_simworld_expect_gap(self._handle, subscriber, session_id, stream_id)

    def set_retention(self, ledger: int, bytes_: int, age_ns: int) -> None:
        """Set the limits on the data that the publication of a ledger retains for its readers: a
        number of bytes and an age. 0: no limit."""
        self._lib.ps_simworld_set_retention(self._handle, ledger, bytes_, age_ns)

    def allow_gaps(self, subscriber: int) -> None:
        self._lib.ps_simworld_allow_gaps(self._handle, subscriber)

    def publisher(self, publisher: int) -> PublisherStatistics:
        native = self._ffi.new("ps_sim_publisher_stats_t *")
        self._lib.ps_simworld_publisher(self._handle, publisher, native)
        return _read(PublisherStatistics, native)

    def reader(self, subscriber: int, ledger: int) -> ReaderStatistics:
        native = self._ffi.new("ps_sim_reader_stats_t *")
        self._lib.ps_simworld_reader(self._handle, subscriber, ledger, native)
        return _read(ReaderStatistics, native)

    def digest(self, subscriber: int) -> int:
        """Return a 64-bit hash over the subscriber's messages and their times."""
        return int(self._lib.ps_simworld_digest(self._handle, subscriber))
