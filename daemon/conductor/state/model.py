# SPDX-License-Identifier: Apache-2.0
"""Objects that the conductor owns: clients, endpoints, publications, images, subscriptions and the
links between them. The classes are plain records; the sagas contain the code that changes these
records."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Hashable
from typing import Final

import attrs

from penstock.config import uri
from penstock.config.protocol.control import Message
from penstock.core.driver_types import (
    ALL_TERMS,
    Address,
    ImageParams,
    PublicationParams,
    RecvDestinationParams,
    RecvEndpointParams,
    SendEndpointParams,
    log_file_length,
)
from penstock.daemon.conductor.channel.plans import PublicationPlan, SubscriptionPlan
from penstock.daemon.conductor.state.by_stream import ByStream
from penstock.daemon.conductor.state.machines import EndpointState, ImageState, PublicationState

_FRAME_ALIGNMENT: Final = 32
TERMS: Final = 3                        # of each log


class Joins(enum.Enum):
    """Start position of a subscription that joins a stream which has already begun."""

    BESIDE = "beside"                   # at the slowest subscriber
    OLDEST = "oldest"                   # at the beginning of a local log; in an image as BESIDE
    NEWEST = "newest"                   # at the end


@attrs.define(eq=False, kw_only=True)
class CreditPool:
    """Credits that are divided among several publishers (sagas/credit_pools.py)."""

    size: int = 0                       # number of automatic credits; 0: as the plan states
    dividing: bool = False              # a step of the division is due
    requests: int = 0                   # number of the latest request for credits
    turns: int = 0                      # number of divisions
    owed: dict[int, float] = attrs.field(factory=dict)      # by the division


@attrs.define(eq=False, kw_only=True)
class Client:
    id: int
    slot: int
    name: str
    pid: int
    uid: int
    token: bytes = b""
    started: int = 0                    # of its process, in the kernel's ticks; 0: unknown
    alive: bool = True
    attached: bool = True  # False: of a dead daemon, or its process has ended; and not back yet
    linger_ns: int = 0                  # how long its objects stay after its process
    lost: int = 0                       # number of times that its process ended
    publications: dict[int, Publication] = attrs.field(factory=dict)    # by registration id
    subscriptions: dict[int, Subscription] = attrs.field(factory=dict)
    counters: dict[int, int] = attrs.field(factory=dict)                # registration -> counter
    commands: deque[tuple[int, Message]] = attrs.field(factory=deque)
    busy: bool = False
    group_id: int = 0                   # of a consumer group, which has no process; 0: a client
    #: Pool of the subscriptions with ps-credit-pool=client.
    credit_pool: CreditPool = attrs.field(factory=CreditPool)

    @property
    def has_objects(self) -> bool:
        return bool(self.publications or self.subscriptions or self.counters)


@attrs.define(eq=False, kw_only=True)
class Destination:
    """A destination: an address of a manual multi-destination publication, or a socket of a receive
    endpoint."""

    id: int
    channel: str
    address: Address
    name: uri.Address | None = None        # to be resolved again when silent
    control: Address | None = None
    counter_id: int = -1                # local address
    params: RecvDestinationParams | None = None     # of a receive endpoint


@attrs.define(eq=False, kw_only=True)
class SendEndpoint:
    id: int
    key: Hashable
    channel: str
    tag: int | None
    params: SendEndpointParams
    status_counter: int
    address_counter: int
    destinations_counter: int = -1
    refused_counter: int = -1
    local: Address
    peer: uri.Address | None = None
    peer_address: Address | None = None
    multicast: bool = False
    manual: bool = False
    group: bool = False
    ttl: int = 0
    buffers: tuple[int, int] = (0, 0)
    publications: set[int] = attrs.field(factory=set)
    destinations: dict[int, Destination] = attrs.field(factory=dict)
    next_resolution_ns: int = 0
    state: EndpointState = EndpointState.OPEN


@attrs.define(eq=False, kw_only=True)
class LogFile:
    """The file of one log buffer, and the part of the file that has allocated memory."""

    path: str
    term_length: int
    page_size: int
    reserved_position: int
    reserved_terms: int                 # terms begun; the last one may be allocated in part
    reserving: bool = False
    giving_up: bool = False             # an agent was requested to release terms
    punching: bool = False             # its unneeded terms are being released
    wanted: bool = False                # the agent requested a term meanwhile
    low_missing: int = 0                # bytes of the first term that have no memory

    @property
    def kept_position(self) -> int:
        """Position below which the memory of the log was released; 0: no memory was released."""
        if self.is_whole:
            return 0
        return self.last_end - self.reserved_terms * self.term_length

    @property
    def last_end(self) -> int:
        """End of the last term that has memory, even if only a part of this term has memory."""
        return -(-self.reserved_position // self.term_length) * self.term_length

    @property
    def notified_position(self) -> int:
        """Position up to which the sender or receiver may write frames. After each frame, the
        sender or receiver also writes a zero word. The zero word needs room. If only a part of the
        last term is allocated, the position therefore lies 32 bytes before the end of this part."""
        if self.is_whole:
            return ALL_TERMS
        whole = self.reserved_position == self.last_end
        return self.reserved_position if whole else self.reserved_position - _FRAME_ALIGNMENT

    @property
    def is_whole(self) -> bool:
        """Whether all terms are allocated."""
        return (
            self.reserved_terms >= TERMS and not self.low_missing
            and self.reserved_position == self.last_end
        )

    def settle(self) -> None:
        """After the adoption of a log, forget the allocations and releases that the old daemon had
        begun but not finished."""
        self.reserving = self.giving_up = self.punching = self.wanted = False

    @property
    def reserved_bytes(self) -> int:
        fixed = log_file_length(self.term_length, self.page_size) - 3 * self.term_length
        missing = self.last_end - self.reserved_position + self.low_missing
        return fixed + self.reserved_terms * self.term_length - missing


@attrs.define(eq=False)
class Rejection:
    """One receiver's rejections of a publication: how many arrived, and when the publication's
    clients were last notified."""

    count: int = 0
    notified_ns: int = 0


@attrs.define(eq=False, kw_only=True)
class Pressed:
    """The time for which a publication was under pressure in the present minute: its unsent data
    had reached the configured depth."""

    total_ns: int = 0                   # of episodes that have ended
    since_ns: int | None = None         # the running episode; None: there is none
    culprit: str = ""                   # of the last one


@attrs.define(eq=False, kw_only=True)
class Publication:
    id: int
    plan: PublicationPlan
    params: PublicationParams
    endpoint: SendEndpoint | None       # None: IPC
    stream_id: int
    session_id: int
    initial_term_id: int
    start_position: int
    exclusive: bool
    slot: int
    counters: list[int]
    limit_counter: int
    log: LogFile
    links: dict[int, Client] = attrs.field(factory=dict)        # registration id -> owner
    subscribers: dict[int, SubscriberLink] = attrs.field(factory=dict)  # by subscription id
    state: PublicationState = PublicationState.ACTIVE
    end_reason: str = "end_of_stream"
    end_confirmed: bool = False
    rejections: dict[int, Rejection] = attrs.field(factory=dict)        # by receiver id
    late_limits: int = 0                # number of late answers of a Python strategy
    unanswered_ns: int | None = None    # when an unanswered call of a Python strategy began
    silence_notified: bool = False
    joins_logged: dict[int, int] = attrs.field(factory=dict)    # by JoinVerdict: when
    pressed: Pressed | None = None      # None: no pressure since the last look
    warnings: dict[str, str] = attrs.field(factory=dict)        # by kind

    @property
    def term_length(self) -> int:
        return self.log.term_length


@attrs.define(eq=False, kw_only=True)
class RecvEndpoint:
    id: int
    key: Hashable
    channel: str
    tag: int | None
    status_counter: int
    receiver_id: int
    params: RecvEndpointParams | None = None
    multicast: bool = False
    manual: bool = False
    buffers: tuple[int, int] = (0, 0)
    stamps: tuple[int | None, int | None] = (None, None)
    destinations: dict[int, Destination] = attrs.field(factory=dict)
    leaving: set[int] = attrs.field(factory=set)    # removed, not yet released by the receiver
    subscriptions: ByStream[int, Subscription] = attrs.field(factory=lambda: ByStream())
    stating_buffer: set[int] = attrs.field(factory=set)     # of them, those that state so-rcvbuf
    interest: dict[tuple[int, int | None], int] = attrs.field(factory=dict)
    images: ByStream[tuple[int, int], Image] = attrs.field(factory=lambda: ByStream())
    """The live images, by (stream, session)."""
    held_by: int = 0                    # images that the receiver has not released
    outrun: dict[tuple[int, int], int] = attrs.field(factory=dict)      # when last, by session
    # when the lack of an image was last logged
    refusals: dict[tuple[int, int], int] = attrs.field(factory=dict)
    next_resolution_ns: int = 0
    window: int = 0                     # largest window of its images so far
    window_notified: int = 0  # the log has reported that the buffers are too small for it
    buffer_sizes: dict[int, int] = attrs.field(factory=dict)    # by destination, once enlarged
    state: EndpointState = EndpointState.OPEN

    @property
    def buffer_bytes(self) -> int:
        """The size of the smallest receive buffer of the endpoint's sockets, in bytes as SO_RCVBUF
        counts them."""
        sizes = [self.buffer_sizes.get(id_, self.buffers[1]) for id_ in self.destinations]
        return min(sizes, default=self.buffers[1])

    def subscribe(self, subscription: Subscription) -> None:
        self.subscriptions[subscription.id] = subscription
        if subscription.plan.address.rcvbuf_bytes is not None:
            self.stating_buffer.add(subscription.id)

    def unsubscribe(self, subscription: Subscription) -> None:
        self.subscriptions.pop(subscription.id, None)
        self.stating_buffer.discard(subscription.id)


@attrs.define(eq=False, kw_only=True)
class Image:
    id: int
    params: ImageParams
    endpoint: RecvEndpoint
    stream_id: int
    session_id: int
    source: Address
    slot: int
    counters: list[int]
    log: LogFile
    rejoin: bool
    join_position: int
    initial_term_id: int
    mtu: int = 0
    sender_flow_control: int = -1       # FlowControl as its SETUP states it, -1: it states none
    sender_group_tag: int = 0           # tag of the receivers that the sender follows, if tagged
    sender_policy: int = 0              # Policy that the sender requests of its receivers
    sender_depth_bytes: int = 0         # of that policy; 0: this host's choice
    sender_depth_messages: int = 0      # of that policy; 0: no limit in messages
    sender_credit_weight: int = 0       # of its publication in a pool of credits; 0: not stated
    sender_priority: int = 0            # of its publication; 0: also if it is not stated
    window_share: int = 0               # bytes of a divided window; 0: the window is not divided
    subscribers: dict[int, SubscriberLink] = attrs.field(factory=dict)
    state: ImageState = ImageState.ACTIVE
    end_reason: str = "timeout"
    rejection: str | None = None        # reason for which an application rejected it
    released: bool = False              # by the receiver
    lost_bytes: int = 0
    join_ordinal: int = -1              # messages of the session below join_position, -1 unknown
    end_position: int = -1              # once drained
    end_ordinal: int = -1               # messages below end_position
    established: bool = False           # the receiver accepted a frame of the stream
    established_ns: int = 0             # when, or when this daemon adopted the image
    shown: bool = False                 # each subscription that wanted it then has its link
    late_limits: int = 0                # number of late answers of a Python congestion control
    unanswered_ns: int | None = None    # when an unanswered call of it began
    silence_told: bool = False
    relay_path: tuple[int, ...] = ()    # ids of relays that the stream has passed


@attrs.define(eq=False, kw_only=True)
class CreditShare:
    """The credits that one reader grants to one publisher, in messages (sagas/credit_pools.py)."""

    share: int = 0                      # 0: of a pool without a free credit, until the next step
    held: int = 0                       # the most that may be outstanding, at least the share
    before_freeze: int = -1             # epoch of the credits when they were withheld last
    lowered: bool = False               # the share was lowered, and more may be outstanding
    applied: bool = False               # the agent has shown the lower share
    returned: int = 0                   # when the measurement of its use began
    since_ns: int = 0                   # when it began
    hungry: bool = True                 # the publisher may have been without credit since
    waits: int = 0                      # number of its request; 0: none
    peak: int = 0                       # the most that it used in a step, within the idle time-out
    peak_ns: int = 0


@attrs.define(eq=False, kw_only=True)
class SubscriberLink:
    """The link of one subscription to one image or local publication."""

    subscription: Subscription
    source: Image | Publication
    counter_id: int
    slot: int
    join_position: int = 0
    resting: bool = False
    isolated: bool = False              # the stream does not wait for it
    credit: CreditShare = attrs.field(factory=CreditShare)
    leaked: int = 0                     # credits lost with their handles, as last reported
    acknowledged: int = 0               # of a group with credits: may be ahead of the log

    @property
    def may_skip(self) -> bool:
        """Whether the reader may skip messages. If so, the reader's slot counts the skipped
        messages."""
        params = self.source.params
        return self.isolated or params.retention_bytes > 0 or params.retention_ns > 0


@attrs.define(eq=False, kw_only=True)
class Subscription:
    id: int
    client: Client
    plan: SubscriptionPlan
    stream_id: int
    endpoint: RecvEndpoint | None = None        # None: IPC and spies
    spy_key: Hashable = None
    spy_tag: int | None = None
    joins: Joins = Joins.BESIDE
    withheld: bool = False                      # its credits
    watches_losses: bool = False                # of credits
    own_pool: CreditPool = attrs.field(factory=CreditPool)
    links: dict[int, SubscriberLink] = attrs.field(factory=dict)        # by source id

    @property
    def credit_pool(self) -> CreditPool:
        """The pool from which the subscription's publishers get their credits."""
        return self.client.credit_pool if self.plan.credit_pool else self.own_pool

    @property
    def pool_members(self) -> list[Subscription]:
        """The subscriptions that share this subscription's pool."""
        if not self.plan.credit_pool:
            return [self]
        return [each for each in self.client.subscriptions.values() if each.plan.credit_pool]

    def wants_session(self, session_id: int) -> bool:
        return self.plan.session_id is None or self.plan.session_id == session_id


@attrs.define(eq=False, kw_only=True)
class Retained:
    """The log of an ended stream, which the daemon keeps for a consumer group."""

    log_id: int
    group_id: int
    counter_id: int                     # the group's position
    slot: int
    stream_id: int
    session_id: int
    initial_term_id: int
    mtu: int
    window_bytes: int
    log: LogFile
    join_position: int
    brief_source: str = ""              # IP address of a brief image's sender (brief_logs.py)
    ended: bool = False                 # the data plane has released it: end_position is final
    end_position: int = 0
    time_index: list[tuple[int, int]] = attrs.field(factory=list)


@attrs.define(eq=False, kw_only=True)
class Group:
    """A consumer group: a client without a process, and its subscriptions."""

    id: int
    client: Client
    slot: int
    name: str
    channel: str
    stream_id: int
    sessions: tuple[int, ...]
    starting: str
    expiry_ns: int
    allow_unreliable: bool
    deadline_ns: int = 0
    owner: str = ""                     # the reader; "": none
    owner_heard_ns: int = 0
    watches: int = 0  # number of its latest expiry timer; older timers are ignored
    retained: dict[int, Retained] = attrs.field(factory=dict)           # by log id

    @property
    def key(self) -> tuple[str, str, int]:
        return (self.name, self.channel, self.stream_id)
