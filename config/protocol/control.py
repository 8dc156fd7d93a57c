# SPDX-License-Identifier: Apache-2.0
"""Messages between clients and the daemon's control socket and lease socket.

Every message is a frozen attrs class.  On the wire, a message is one msgpack array
``[PROTOCOL_VERSION, type name, correlation id, {field: value}]``. On the control socket, this array
is a ZeroMQ frame; on the lease socket, a SEQPACKET datagram. A request carries a correlation id > 0
that the client chooses; the reply repeats this id. Notices carry 0.

Decoding is strict. Unknown types, unknown or missing fields, wrong types and values out of range
raise :class:`ControlError`. The error's text names the message, the field and the expected value.
"""

from __future__ import annotations

from typing import Any, Final, get_args

import attrs
from attrs import validators

from penstock.config.protocol.relays import RELAY_PATH

PROTOCOL_VERSION: Final = 1
MAX_MESSAGE_BYTES: Final = 64 * 1024
MAX_STATUS_BYTES: Final = 16 * 1024 * 1024
"""Of the replies whose size follows the number of streams: Status, GroupReply, GroupList."""
MAX_CHANNEL_CHARS: Final = 4095

_I32 = validators.and_(validators.ge(-(2**31)), validators.lt(2**31))
_I64 = validators.and_(validators.ge(-(2**63)), validators.lt(2**63))
_SHORT = validators.lt(2**62)
_ID = validators.and_(validators.gt(0), validators.lt(2**63))
_CHANNEL: Any = validators.and_(validators.min_len(1), validators.max_len(MAX_CHANNEL_CHARS))


class ControlError(ValueError):
    """Raised for an invalid control message. The exception's text names the message, the field and
    the reason."""


# ---- lease socket --------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class LeaseRequest:
    """First datagram of a client on ``DIR/lease.sock``. While the connection is open, the client
    counts as alive. A client whose daemon has died states its old client id. A new daemon that
    adopted the client grants the same id and slot; any other daemon grants a new id."""

    client_id: int = attrs.field(default=0, validator=_I64)     # 0: new
    token: bytes = attrs.field(default=b"", validator=validators.max_len(64))
    name: str = attrs.field(default="", validator=validators.max_len(95))
    library_version: str = attrs.field(default="", validator=validators.max_len(40))
    watch: bool = False
    """Ask for a third eventfd. The daemon writes it when something happens for a watching client.
    Left out of the message while it is False: older daemons do not know it."""
    linger_ns: int = attrs.field(default=0, validator=validators.and_(validators.ge(0), _SHORT))
    """How long the daemon keeps what the client has after its process has ended: another process
    that states id and token continues it.  Only for exclusive publications and subscriptions.
    Left out of the message while it is 0."""


@attrs.frozen(kw_only=True)
class Drain:
    """Request to the daemon: end all streams, then exit. Drain is the first datagram of a process
    on ``lease.sock``, and only the daemon's user and root may send it. The daemon replies with
    Drained, and closes the connection when it has removed its files."""

    timeout_ns: int = attrs.field(validator=validators.and_(validators.ge(0), _SHORT))
    discard: bool = False
    """Remove also what is not sent by then, and what groups hold."""


@attrs.frozen(kw_only=True)
class Drained:
    """Reply to Drain, sent when all streams have ended or the time-out of the drain has passed."""

    kept: list[str]
    """What stays in the directory for a new daemon; empty: the directory goes."""
    discarded: list[str]


@attrs.frozen(kw_only=True)
class LeaseGrant:
    """Reply to LeaseRequest, with file descriptors (SCM_RIGHTS): the eventfds that wake sender and
    receiver, and a third eventfd if the client requested ``watch``."""

    client_id: int = attrs.field(validator=_ID)
    client_slot: int = attrs.field(validator=_I32)
    token: bytes = attrs.field(validator=validators.max_len(64))
    daemon_id: int
    daemon_epoch: int
    daemon_version: str


# ---- requests ------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Hello:
    """States that this ZeroMQ connection belongs to the client with this ``token``. Reply: Done."""

    token: bytes = attrs.field(validator=validators.max_len(64))


@attrs.frozen(kw_only=True)
class AddPublication:
    """Reply: PublicationReady."""

    channel: str = attrs.field(validator=_CHANNEL)
    stream_id: int = attrs.field(validator=_I32)
    exclusive: bool = False
    relay_path: list[int] = attrs.field(factory=list, validator=RELAY_PATH)


@attrs.frozen(kw_only=True)
class RemovePublication:
    """Reply: Done. ``revoke`` ends an exclusive publication at once and drops its unsent data."""

    registration_id: int = attrs.field(validator=_ID)
    revoke: bool = False


@attrs.frozen(kw_only=True)
class AddSubscription:
    """Reply: SubscriptionReady, followed by one ImageAvailable notice for each image."""

    channel: str = attrs.field(validator=_CHANNEL)
    stream_id: int = attrs.field(validator=_I32)


@attrs.frozen(kw_only=True)
class RemoveSubscription:
    """Reply: Done."""

    registration_id: int = attrs.field(validator=_ID)


@attrs.frozen(kw_only=True)
class AddDestination:
    """Adds a destination to a publication or subscription with ``control-mode=manual``.  The daemon
    replies with Done, whose ``registration_id`` is the id of the destination."""

    registration_id: int = attrs.field(validator=_ID)
    channel: str = attrs.field(validator=_CHANNEL)


@attrs.frozen(kw_only=True)
class RemoveDestination:
    """Remove a destination, given by ``channel`` or a ``destination_id`` above 0. Reply: Done."""

    registration_id: int = attrs.field(validator=_ID)
    channel: str = attrs.field(default="", validator=validators.max_len(MAX_CHANNEL_CHARS))
    destination_id: int = attrs.field(default=0, validator=_I64)


@attrs.frozen(kw_only=True)
class AddCounter:
    """Allocates an application counter.  Reply: CounterReady."""

    type_id: int = attrs.field(validator=_I32)
    key: bytes = attrs.field(default=b"", validator=validators.max_len(112))
    label: str = attrs.field(validator=validators.max_len(380))


@attrs.frozen(kw_only=True)
class RemoveCounter:
    """Reply: Done."""

    registration_id: int = attrs.field(validator=_ID)


@attrs.frozen(kw_only=True)
class RejectImage:
    """Reject an image: the daemon sends an ERR frame to the image's sender. Reply: Done."""

    correlation_id: int = attrs.field(validator=_ID)
    reason: str = attrs.field(validator=validators.max_len(1023))


@attrs.frozen(kw_only=True)
class WithholdCredits:
    """Withhold a subscription's credits, or grant them again. The reply Done comes before the
    senders have acknowledged the change; its field ``coming`` lists images without a frame."""

    registration_id: int = attrs.field(validator=_ID)
    withheld: bool


@attrs.frozen(kw_only=True)
class Resume:
    """Lists the objects that an adopted client still uses; the daemon removes the client's other
    objects. Reply: Resumed. After Resumed, the daemon sends SubscriptionResumed and ImageAvailable
    notices for each subscription."""

    registration_ids: list[int]


@attrs.frozen(kw_only=True)
class GetStatus:
    """Reply: Status.  ``penstock stat`` sends this request, which needs no lease."""


# ---- consumer groups (no lease; also over TCP) ---------------------------------------------------

MAX_GROUP_NAME_CHARS: Final = 80
MAX_GROUP_SESSIONS: Final = 64
MAX_FETCH_CREDIT: Final = 8
FETCH_PIECE_BYTES: Final = 1024 * 1024
"""The largest piece that a fetch is answered with."""
MAX_CUT_PIECES: Final = 1024
MAX_TIMES: Final = 2048
"""The most entries of an answer to ReadTimes; they fit into MAX_MESSAGE_BYTES."""
MAX_MARKS: Final = 128
MARK_BYTES: Final = 2048
"""The most messages of an answer to FindMarks, and the most bytes of each."""
MAX_MARKS_BYTES: Final = 32 * 1024
"""The most bytes of all of them, but for one message."""
MAX_OWNER_CHARS: Final = 200

_CREDIT_ACTION: Any = validators.in_(("withhold", "resume", "report"))
_NAME: Any = validators.and_(
    validators.min_len(1), validators.max_len(MAX_GROUP_NAME_CHARS),
    validators.matches_re(r"[^\x00-\x1f\x7f]*"),
)
_OWNER: Any = validators.and_(
    validators.max_len(MAX_OWNER_CHARS), validators.matches_re(r"[^\x00-\x1f\x7f]*")
)
_SESSIONS: Any = validators.and_(
    validators.max_len(MAX_GROUP_SESSIONS), validators.deep_iterable(_I32)
)
_POSITION: Any = validators.and_(validators.ge(0), validators.lt(2**63))


@attrs.frozen(kw_only=True)
class _OfGroup:
    """Fields that identify a group."""

    name: str = attrs.field(validator=_NAME)
    channel: str = attrs.field(validator=_CHANNEL)
    stream_id: int = attrs.field(validator=_I32)


@attrs.frozen(kw_only=True)
class OpenGroup(_OfGroup):
    """Open a consumer group, if it is not open already. Reply: GroupReply."""

    sessions: list[int] = attrs.field(factory=list, validator=_SESSIONS)    # none: all
    starting: str = attrs.field(
        default="latest", validator=validators.in_(("latest", "earliest"))
    )
    expiry_ns: int = attrs.field(validator=_ID)
    allow_unreliable: bool = False      # accept a stream whose flow control does not wait
    owner: str = attrs.field(default="", validator=_OWNER)
    """Who reads the group from now on; refused with ``owned`` while another owner lives."""
    instead_of: str = attrs.field(default="", validator=_OWNER)
    """An owner that the client knows to be dead: it is replaced at once."""


@attrs.frozen(kw_only=True)
class GetGroup(_OfGroup):
    """Return the group's state, and keep the group alive. Reply: GroupReply."""

    owner: str = attrs.field(default="", validator=_OWNER)  # "": the request is not from its owner
    leave: bool = False                                 # the owner stops reading it


@attrs.frozen(kw_only=True)
class AcknowledgeGroup(_OfGroup):
    """Acknowledge data of several logs. ``sessions[i]`` and ``initial_term_ids[i]`` identify a log;
    its data below ``positions[i]`` is acknowledged. The daemon ignores entries for logs that it
    does not keep for the group. Keeps the group alive. Reply: GroupReply."""

    sessions: list[int] = attrs.field(validator=validators.deep_iterable(_I32))
    initial_term_ids: list[int] = attrs.field(validator=validators.deep_iterable(_I32))
    positions: list[int] = attrs.field(validator=validators.deep_iterable(_POSITION))
    owner: str = attrs.field(default="", validator=_OWNER)  # "": the request is not from its owner

    def __attrs_post_init__(self) -> None:
        if not len(self.sessions) == len(self.initial_term_ids) == len(self.positions):
            raise ValueError("sessions, initial_term_ids and positions are of different lengths")


@attrs.frozen(kw_only=True)
class CloseGroup(_OfGroup):
    """Close a group and release its data. Reply: Done."""


@attrs.frozen(kw_only=True)
class ListGroups:
    """Reply: GroupList.  Does not keep them alive."""


@attrs.frozen(kw_only=True)
class WithholdStream:
    """Withhold, resume or report the credits of a stream's subscriptions. Reply: CreditReport."""

    stream_id: int = attrs.field(validator=_I32)
    channel: str = attrs.field(default="", validator=validators.max_len(MAX_CHANNEL_CHARS))  # any
    group: str = attrs.field(default="", validator=validators.max_len(MAX_GROUP_NAME_CHARS))
    action: str = attrs.field(default="report", validator=_CREDIT_ACTION)


@attrs.frozen(kw_only=True)
class Fetch:
    """Request for the frames of [start, end) in a log that the daemon keeps for a group. Reply: at
    most ``credit`` FetchPiece messages, each followed by a ZeroMQ frame with the piece's bytes. In
    case of an error, RangeGone or Failure ends the reply to Fetch."""

    log_id: int = attrs.field(validator=_ID)
    session_id: int = attrs.field(validator=_I32)
    initial_term_id: int = attrs.field(validator=_I32)
    start: int = attrs.field(validator=_POSITION)
    end: int = attrs.field(validator=_POSITION)
    credit: int = attrs.field(
        default=4, validator=validators.and_(validators.ge(1), validators.le(MAX_FETCH_CREDIT))
    )


@attrs.frozen(kw_only=True)
class CutLog:
    """Request to choose the end of a batch that begins at ``start``, and to split the batch into
    ``pieces`` parts. ``start`` lies between two messages. The batch has at most ``max_bytes`` bytes
    and ``max_messages`` messages (0: no limit). Reply: LogCuts, RangeGone."""

    log_id: int = attrs.field(validator=_ID)
    session_id: int = attrs.field(validator=_I32)
    initial_term_id: int = attrs.field(validator=_I32)
    start: int = attrs.field(validator=_POSITION)
    max_bytes: int = attrs.field(validator=_ID)
    max_messages: int = attrs.field(default=0, validator=_POSITION)
    pieces: int = attrs.field(
        default=1, validator=validators.and_(validators.ge(1), validators.le(MAX_CUT_PIECES))
    )


@attrs.frozen(kw_only=True)
class ReadTimes:
    """Request for times at which a log reached positions between ``start`` and ``end``. The reply
    has at most ``most`` entries. Reply: LogTimes, RangeGone."""

    log_id: int = attrs.field(validator=_ID)
    session_id: int = attrs.field(validator=_I32)
    initial_term_id: int = attrs.field(validator=_I32)
    start: int = attrs.field(validator=_POSITION)
    end: int = attrs.field(validator=_POSITION)
    most: int = attrs.field(
        default=MAX_TIMES, validator=validators.and_(validators.ge(2), validators.le(MAX_TIMES))
    )


@attrs.frozen(kw_only=True)
class FindMarks:
    """Request for the messages with ``reserved_value`` in a log that the daemon keeps for a group.
    The search begins at ``start`` and covers ``max_bytes`` of the log. Reply: LogMarks."""

    log_id: int = attrs.field(validator=_ID)
    session_id: int = attrs.field(validator=_I32)
    initial_term_id: int = attrs.field(validator=_I32)
    start: int = attrs.field(validator=_POSITION)
    reserved_value: int = attrs.field(
        validator=validators.and_(validators.ge(-(2**63)), validators.lt(2**63))
    )
    max_bytes: int = attrs.field(default=2**62, validator=_ID)


@attrs.frozen(kw_only=True)
class FetchCredit:
    """Permit the daemon to send ``pieces`` more pieces of the Fetch with the same correlation id; 0
    ends this Fetch."""

    pieces: int = attrs.field(
        validator=validators.and_(validators.ge(0), validators.le(MAX_FETCH_CREDIT))
    )


# ---- replies -------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Done:
    registration_id: int = 0
    coming: dict[str, Any] = attrs.field(factory=dict)  # WithholdCredits: [session, source] by id


@attrs.frozen(kw_only=True)
class Failure:
    """A request was refused. ``code`` is one of ERROR_CODES. ``message`` is one sentence with the
    mistake, the value found, and the remedy."""

    code: str
    message: str


ERROR_CODES: Final = (
    "invalid_channel",        # URI cannot be parsed, unknown or contradictory parameters
    "unknown_registration",   # no such publication, subscription, counter, image
    "not_supported",
    "address_in_use",
    "no_interface",
    "unknown_host",
    "socket_buffer",          # window or MTU larger than the socket buffers allow
    "storage",  # shared memory is too small: the message has the bytes needed and available
    "limit",                  # no slot, session or counter is left
    "permission",
    "malformed",              # message not understood
    "unknown_group",          # no such consumer group: never opened, closed or expired
    "owned",                  # another reader has the consumer group
    "unreliable",             # the stream's strategy does not wait for the group
    "stalled",                # the reader of a fetch gave no credit for too long
    "not_leased",             # Hello missing or token unknown
    "internal",
)


@attrs.frozen(kw_only=True)
class PublicationReady:
    registration_id: int      # of this client's registration
    original_id: int          # of the publication (differs when it joined a shared one)
    session_id: int
    stream_id: int
    log_path: str
    publication_slot: int
    limit_counter_id: int
    channel_status_id: int    # counter, -1 for IPC
    max_message_bytes: int
    exclusive: bool
    shared_log: bool = False  # the sender appends too, so an exclusive publisher reserves as others


@attrs.frozen(kw_only=True)
class SubscriptionReady:
    registration_id: int
    stream_id: int
    channel_status_id: int    # counter, -1 for IPC and spies
    local_addresses: list[str] = attrs.field(factory=list)   # "ip:port" with port 0 resolved


@attrs.frozen(kw_only=True)
class CounterReady:
    registration_id: int
    counter_id: int


@attrs.frozen(kw_only=True)
class Resumed:
    registration_ids: list[int]  # registrations that continue; the client must add the others again


@attrs.frozen(kw_only=True)
class Status:
    """The daemon's state, as dicts and lists; ``penstock.daemon.observe.status`` has the fields."""

    snapshot: dict[str, Any]


@attrs.frozen(kw_only=True)
class GroupReply:
    """A group's state as plain data, with the fields of :class:`penstock.client.GroupState`."""

    group: dict[str, Any]


@attrs.frozen(kw_only=True)
class GroupList:
    """The states of all groups, as in GroupReply; each key is a group's id as text."""

    groups: dict[str, Any]


@attrs.frozen(kw_only=True)
class CreditReport:
    """Credits of a stream. ``readers`` maps each subscriber's number (from 0) to its credits."""

    readers: dict[str, Any]
    withheld: bool
    complete: bool            # nothing is in flight or in an application's hands


@attrs.frozen(kw_only=True)
class FetchPiece:
    """A piece of a log: whole frames of the positions [position, next_position). The ZeroMQ frame
    after this message contains the bytes of the log frames."""

    position: int
    next_position: int
    last: bool


@attrs.frozen(kw_only=True)
class LogCuts:
    """Reply to CutLog: ascending positions between messages; the last one is the end of the batch.
    If the log has no complete message at ``start`` yet, the list is empty."""

    positions: list[int]
    messages: int             # before the last place


@attrs.frozen(kw_only=True)
class LogTimes:
    """Reply to ReadTimes: at ``times_ns[i]`` (since 1970), the log had reached ``positions[i]``.
    Both lists ascend; the last position is at or after the end of the requested range."""

    positions: list[int]
    times_ns: list[int]


@attrs.frozen(kw_only=True)
class LogMarks:
    """Reply to FindMarks: the found message ``i`` occupies the log positions [``begins[i]``,
    ``ends[i]``). ``data`` contains the first ``sizes[i]`` payload bytes of each message. The daemon
    has searched all messages before ``position``, but the log may contain later messages."""

    begins: list[int]
    ends: list[int]
    sizes: list[int]
    data: bytes
    position: int


@attrs.frozen(kw_only=True)
class RangeGone:
    """Reply: the daemon no longer retains the requested positions, or does not have them yet."""

    lowest: int               # readable now
    end: int                  # readable now, below it
    message: str


# ---- notices -------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ImageAvailable:
    subscription_id: int
    correlation_id: int       # image id; publication id for IPC and spies
    session_id: int
    stream_id: int
    log_path: str
    position_counter_id: int
    subscriber_slot: int
    image_slot: int           # -1 for IPC and spies
    publication_slot: int     # -1 for network images
    source_identity: str      # "ip:port", or "aeron:ipc" / "aeron-spy"
    join_position: int
    join_ordinal: int = -1    # messages of the session below join_position, -1 unknown
    credit_mode: int = 0      # 1: the reader grants credits, which releases return
    relay_path: list[int] = attrs.field(factory=list)     # relays that the stream has passed
    isolation: int = 0        # ps_reader_isolation
    depth_bytes: int = 0      # of an isolated reader
    fan_in_weight: int = 0    # weight in polls of the subscription; 0: images take turns


@attrs.frozen(kw_only=True)
class SubscriptionResumed:
    """Lists the images that the new daemon continues; the client must end all others."""
    subscription_id: int
    correlation_ids: list[int]


@attrs.frozen(kw_only=True)
class ImageUnavailable:
    subscription_id: int
    correlation_id: int
    stream_id: int
    reason: str               # end_of_stream, timeout, revoked, closed, rejected, lagged
    end_position: int = -1    # where the image ended, -1 unknown
    end_ordinal: int = -1     # messages of the session below end_position, -1 unknown


@attrs.frozen(kw_only=True)
class PublicationError:
    """Notice to a publisher: a receiver has rejected the stream with an ERR frame."""

    registration_id: int
    receiver_id: int
    source: str
    code: int
    message: str
    count: int = 1            # ERR frames of this receiver so far


@attrs.frozen(kw_only=True)
class DaemonStopping:
    """The daemon stops."""

    drain: bool = False
    """All streams end: leave now.  Else a new daemon goes on with them."""

Message = (
    LeaseRequest | LeaseGrant | Drain | Drained | Hello | AddPublication | RemovePublication
    | AddSubscription | RemoveSubscription | AddDestination | RemoveDestination | AddCounter
    | RemoveCounter | RejectImage | WithholdCredits | Resume | GetStatus | Done | Failure
    | PublicationReady | SubscriptionReady | CounterReady | Resumed | Status | ImageAvailable
    | SubscriptionResumed | ImageUnavailable | PublicationError | DaemonStopping | OpenGroup
    | GetGroup | AcknowledgeGroup | CloseGroup | ListGroups | Fetch | FetchCredit | CutLog
    | ReadTimes | FindMarks | GroupReply | GroupList | FetchPiece | LogCuts | LogTimes | LogMarks
    | RangeGone | WithholdStream | CreditReport
)

MESSAGE_TYPES: Final[dict[str, type[Any]]] = {cls.__name__: cls for cls in get_args(Message)}
