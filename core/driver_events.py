# SPDX-License-Identifier: Apache-2.0
"""Events that the agents report to the conductor: one class for each type of ``ps_event_t``. For
each type, ``ps_event_t`` has a union member with the same fields as the class;
``core/src/agent/ps_event.h`` states their units.

``tests/unit/test_mirrors.py`` compares classes and fields with the header.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import attrs

from penstock.core.driver_types import Address, EventType, ObjectKind
from penstock.core.library import Library


@attrs.frozen(kw_only=True)
class DriverEvent:
    """Base class of all events. ``kind`` and ``id`` identify the endpoint, publication or image
    that the event concerns."""

    type: ClassVar[EventType]
    member: ClassVar[str] = ""          # member of the union; "": none

    kind: ObjectKind = ObjectKind.NONE
    id: int = 0
    now_ns: int = 0
    session_id: int = 0
    stream_id: int = 0


@attrs.frozen(kw_only=True)
class Setup(DriverEvent):
    """On a subscribed stream, a SETUP frame of an unknown session arrived, so the conductor creates
    an image for the session."""

    type = EventType.SETUP
    member = "setup"

    source: Address | None = None
    peer_ordinal: int = -1              # -1: unknown
    peer_group_tag: int = 0             # tag of the receivers that the sender follows, if tagged
    peer_depth_bytes: int = 0           # of peer_policy; 0: this host's choice
    peer_depth_messages: int = 0        # of peer_policy; 0: no limit in messages
    retention_bytes: int = 0            # readers get no data that is further behind; 0: no limit
    retention_ns: int = 0               # readers get no data that is older; 0: no limit
    peer_policy: int = 0                # Policy that the sender requests of its receivers
    destination: int = 0
    initial_term_id: int = 0
    active_term_id: int = 0
    term_offset: int = 0
    term_length: int = 0
    mtu: int = 0
    ttl: int = 0
    flags: int = 0
    peer_flow_control: int = -1         # -1: the sender has not stated it
    peer_capabilities: int = 0
    peer_credit_weight: int = 0         # 0: the sender has not stated it
    peer_priority: int = 0              # 0: also if the sender has not stated it
    relay_path: tuple[int, ...] = ()    # ids of relays that the stream has passed


@attrs.frozen(kw_only=True)
class ImageInactive(DriverEvent):
    """An image's stream ended."""

    type = EventType.IMAGE_INACTIVE
    member = "ended"

    position: int = 0
    messages: int = 0                   # of the session below the position, -1: unknown
    reason: int = 0                     # ImageEnd


@attrs.frozen(kw_only=True)
class ImageDrained(ImageInactive):
    """All subscribers have read an image to its end, and 5 status message time-outs have passed
    since then."""

    type = EventType.IMAGE_DRAINED


@attrs.frozen(kw_only=True)
class PublicationConnected(DriverEvent):
    type = EventType.PUB_CONNECTED
    member = "connection"

    connected: int = 0


@attrs.frozen(kw_only=True)
class PublicationDrained(DriverEvent):
    """A publication that is being closed has now sent all its data, and its spies have read all of
    the data."""

    type = EventType.PUB_DRAINED
    member = "drained"

    position: int = 0
    unsent: int = 0


@attrs.frozen(kw_only=True)
class EndConfirmed(DriverEvent):
    """The receiver of a unicast publication has confirmed that it received the whole stream."""

    type = EventType.PUB_EOS_ACK


@attrs.frozen(kw_only=True)
class Blocked(DriverEvent):
    """A publisher has claimed space in a publication's log and not committed it, so the sender
    cannot send the data behind the claim."""

    type = EventType.PUB_BLOCKED
    member = "blocked"

    position: int = 0
    client_slot: int = -1               # of the claimer, -1: unknown


@attrs.frozen(kw_only=True)
class Unblocked(DriverEvent):
    """The sender has replaced an uncommitted claim with padding."""

    type = EventType.PUB_UNBLOCKED
    member = "unblocked"

    position: int = 0
    bytes: int = 0


@attrs.frozen(kw_only=True)
class TermNeeded(DriverEvent):
    """A publication or an image requests log storage that begins at position ``reserved``."""

    type = EventType.TERM_NEEDED
    member = "term"

    reserved: int = 0
    wanted: int = 0                     # at least up to here; 0: to the end of the next term


@attrs.frozen(kw_only=True)
class Released(DriverEvent):
    """The agent has released the object, so the conductor may destroy the object."""

    type = EventType.RELEASED
    member = "released"

    destination_id: int = 0             # of a receive destination; ``id`` is the endpoint's


@attrs.frozen(kw_only=True)
class EndpointError(DriverEvent):
    type = EventType.ENDPOINT_ERROR
    member = "error"

    code: int = 0
    destination: int = 0
    text: str = ""


@attrs.frozen(kw_only=True)
class DestinationChanged(DriverEvent):
    """``change``: a destination of a send endpoint was added (1), timed out (0) or was refused
    (-1)."""

    type = EventType.DESTINATION
    member = "destination"

    source: Address | None = None
    refused: int = 0
    change: int = 0


@attrs.frozen(kw_only=True)
class RemoteError(DriverEvent):
    """A receiver of a publication sent an ERR frame."""

    type = EventType.REMOTE_ERROR
    member = "remote_error"

    source: Address | None = None
    receiver_id: int = 0
    code: int = 0
    text: str = ""


@attrs.frozen(kw_only=True)
class Silent(DriverEvent):
    """No datagram arrived from ``source`` for 5 s. The daemon resolves the peer's host name again,
    because the host may have another address now."""

    type = EventType.SILENT
    member = "silent"

    source: Address | None = None
    destination_id: int = 0


@attrs.frozen(kw_only=True)
class Loss(DriverEvent):
    type = EventType.LOSS
    member = "loss"

    bytes: int = 0                      # newly lost
    position: int = 0
    gaps: int = 0                       # newly lost gaps; 0 if only known gaps grew


@attrs.frozen(kw_only=True)
class SubscriberChanged(DriverEvent):
    """The tether state of a subscriber changed. This state determines whether the stream waits for
    the subscriber."""

    type = EventType.SUBSCRIBER
    member = "subscriber"

    position_counter_id: int = 0
    state: int = 0                      # TetherState


@attrs.frozen(kw_only=True)
class SessionLeft(DriverEvent):
    """The receiver no longer ignores a session, and will report the session's next SETUP."""

    type = EventType.SESSION_LEFT


@attrs.frozen(kw_only=True)
class TermsReleased(DriverEvent):
    """The agent uses only the terms between ``kept_from`` and ``kept_to``, so the memory of the
    other terms may be released. ``kept_to`` is -1 if the agent needs all terms."""

    type = EventType.TERMS_RELEASED
    member = "terms"

    kept_to: int = -1
    kept_from: int = 0


@attrs.frozen(kw_only=True)
class SecondSource(DriverEvent):
    """A second address sends frames of an image's session; the receiver drops these frames."""

    type = EventType.SECOND_SOURCE
    member = "second_source"

    source: Address | None = None
    datagrams: int = 0
    destination: int = 0


@attrs.frozen(kw_only=True)
class ImageEstablished(DriverEvent):
    """The receiver has accepted the first frame of an image's stream."""

    type = EventType.IMAGE_ESTABLISHED


@attrs.frozen(kw_only=True)
class Join(DriverEvent):
    """During a join hold (``ps_join.h``), the sender does not raise its limit, because a receiver
    has requested a SETUP and not joined yet. The sender refused a join hold, or the hold ended
    before the receiver joined."""

    type = EventType.JOIN
    member = "join"

    source: Address | None = None
    receiver_id: int = 0
    refused: int = 0                    # requests refused since the last such event
    verdict: int = 0                    # JoinVerdict


@attrs.frozen(kw_only=True)
class PressureTriggered(DriverEvent):
    """The unsent data of a publication has reached the depth that is configured for the log. The
    sender emits at most one PressureTriggered a second."""

    type = EventType.PRESSURE_TRIGGERED
    member = "pressure"

    source: Address | None = None       # of a receiver that is the culprit
    culprit: int = 0                    # receiver id or client id, 0: unknown
    peak_bytes: int = 0
    depth_bytes: int = 0
    duration_ns: int = 0                # since the depth was reached
    drained: int = 0                    # messages since then, -1: unknown
    episodes: int = 0                   # since the last such event, with this one
    cause: int = 0                      # Cause
    client_slot: int = -1               # of a client on this host that is the culprit


@attrs.frozen(kw_only=True)
class PressureRelieved(PressureTriggered):
    """After PressureTriggered, the unsent data of the publication has fallen to the low
    watermark."""

    type = EventType.PRESSURE_RELIEVED


@attrs.frozen(kw_only=True)
class ReaderLagged(DriverEvent):
    """A reader for which the stream does not wait has fallen behind its depth, or has caught up."""

    type = EventType.READER_LAGGED
    member = "reader"

    behind: int = 0                     # bytes
    messages: int = 0                   # that the reader skipped since it fell behind
    duration_ns: int = 0                # since the reader fell behind
    position_counter_id: int = 0
    lagged: int = 0                     # 1: it has fallen behind


EVENTS: Final[dict[EventType, type[DriverEvent]]] = {
    event.type: event
    for event in (
        Setup, ImageInactive, ImageDrained, PublicationConnected, PublicationDrained, EndConfirmed,
        Blocked, Unblocked, TermNeeded, Released, EndpointError, DestinationChanged, RemoteError,
        Silent, Loss, SubscriberChanged, SessionLeft, TermsReleased, SecondSource,
        ImageEstablished, Join, PressureTriggered, PressureRelieved,
        ReaderLagged,
    )
}
_COMMON: Final = frozenset(field.name for field in attrs.fields(DriverEvent))
_FIELDS: Final = {
    event: tuple(f.name for f in attrs.fields(kind) if f.name not in _COMMON)
    for event, kind in EVENTS.items()
}


def read_event(native: Any, library: Library) -> DriverEvent:
    """Convert a ``ps_event_t`` to an object of the class for its type."""
    tag = EventType(native.type)
    event = EVENTS[tag]
    member: Any = getattr(native, event.member) if event.member else None
    values: dict[str, Any] = {}
    for name in _FIELDS[tag]:
        if name == "source":
            values[name] = library.read_address(member.source)
        elif name == "text":
            text = bytes(library.ffi.string(member.text))
            values[name] = text.decode("utf-8", "replace")
        elif name == "relay_path":
            path = member.relay_path
            values[name] = tuple(int(path.ids[i]) for i in range(path.count))
        else:
            values[name] = int(getattr(member, name))
    return event(
        kind=ObjectKind(native.kind), id=native.id, now_ns=native.now_ns,
        session_id=native.session_id, stream_id=native.stream_id, **values,
    )
