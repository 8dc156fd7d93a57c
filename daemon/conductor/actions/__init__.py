# SPDX-License-Identifier: Apache-2.0
"""Actions that the conductor requests from its shell.

Every action is a frozen value.  An :class:`Operation` carries one; when its ``operation_id`` is not
0 the conductor waits for ``on_result`` with that id.  The type after "Result:" is the value of a
successful :class:`Outcome`; without it the value is None.
"""

from __future__ import annotations

from typing import Any

import attrs

from penstock.config.protocol.control import Message
from penstock.core.driver_types import (
    Address,
    ImageParams,
    LogParams,
    ObjectKind,
    PublicationParams,
    ReceiverView,
    RecvDestinationParams,
    RecvEndpointParams,
    SendEndpointParams,
    SlotKind,
    SubscriberParams,
)
from penstock.daemon.conductor.strategy_kind import StrategyKind as StrategyKind


@attrs.frozen(kw_only=True)
class Action:
    """Base of all actions."""


@attrs.frozen
class Operation:
    """An action in progress; ``operation_id`` 0: no saga waits for its result."""

    operation_id: int
    action: Action


@attrs.frozen(kw_only=True)
class ActionError:
    """Why an action failed: a control-protocol error code and one sentence."""

    code: str
    message: str


@attrs.frozen(kw_only=True)
class Outcome:
    """Result of an action: ``error`` is None when it succeeded."""

    value: Any = None
    error: ActionError | None = None


# ---- to clients ----------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Reply(Action):
    client_id: int
    correlation_id: int
    message: Message


@attrs.frozen(kw_only=True)
class Notify(Action):
    client_id: int
    notice: Message


@attrs.frozen(kw_only=True)
class PublishEvent(Action):
    """A line of the event feed."""

    name: str
    fields: dict[str, Any]


@attrs.frozen(kw_only=True)
class Record(Action):
    """A change of the registry, for the next daemon; ``fields`` None: the key is gone."""

    kind: str
    key: tuple[int, ...]
    fields: dict[str, Any] | None


@attrs.frozen(kw_only=True)
class GrantLease(Action):
    connection_id: int
    client_id: int
    client_slot: int
    token: bytes = b""


@attrs.frozen(kw_only=True)
class RefuseLease(Action):
    connection_id: int
    code: str
    message: str


@attrs.frozen(kw_only=True)
class ForgetClient(Action):
    """The client's identity and lease are no longer known."""

    client_id: int


@attrs.frozen(kw_only=True)
class Answer(Action):
    """The reply to a request that came without a lease."""

    request_id: int
    message: Any                        # a Message, or a Located


# ---- consumer groups -----------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class LogView:
    """A log at one moment, as a group sees it."""

    committed: int
    end_position: int
    more: bool = False                  # the walk to the end was cut short


@attrs.frozen(kw_only=True)
class ViewLog(Action):
    """Result: LogView.  Without ``end_counter_id`` (-1) the log is walked to its end, from where
    the last walk ended; a ``slot`` of -1 has no times."""

    log_id: int
    path: str
    committed_counter_id: int
    end_counter_id: int
    kind: SlotKind
    slot: int


@attrs.frozen(kw_only=True)
class OldestPosition(Action):
    """Result: int, the first frame of a publication's log that is not about to be cleaned."""

    slot: int
    start_position: int
    consumer_position: int
    term_length: int


@attrs.frozen(kw_only=True)
class ReleaseTo(Action):
    """Moves the position of a group's subscriber, never backwards."""

    position: int
    position_counter_id: int
    subscriber_slot: int
    publication_slot: int               # -1: of a network image


@attrs.frozen(kw_only=True)
class DescribeGroup(Action):
    slot: int
    committed: int
    retained_from: int
    expires_ns: int                     # from now


# ---- names and interfaces ------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ResolveName(Action):
    """Result: Address, of the family requested, with ``port``."""

    host: str
    port: int
    family: int


@attrs.frozen(kw_only=True)
class ListInterfaces(Action):
    """Result: tuple of :class:`penstock.daemon.addressing.Interface`."""


# ---- files ---------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class CreateLog(Action):
    params: LogParams


@attrs.frozen(kw_only=True)
class DeleteFile(Action):
    path: str


@attrs.frozen(kw_only=True)
class ReserveTerm(Action):
    """Allocates a log's storage between two positions, of one term."""

    path: str
    term_length: int
    position: int
    end: int


@attrs.frozen(kw_only=True)
class ReleaseLog(Action):
    """Release the memory of a log's terms, but for those between two positions."""

    path: str
    term_length: int
    kept_from: int
    kept_to: int


@attrs.frozen(kw_only=True)
class SetStorage(Action):
    budget_bytes: int
    used_bytes: int


@attrs.frozen(kw_only=True)
class LogError(Action):
    """A line for the distinct error log."""

    text: str


@attrs.frozen(kw_only=True)
class ReportLoss(Action):
    lost_bytes: int
    gaps: int                           # each is an observation
    session_id: int
    stream_id: int
    channel: str
    source: str


# ---- counters and slots --------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class AllocateCounter(Action):
    """Result: int, the counter id."""

    type_id: int
    key: bytes
    label: str
    registration_id: int
    owner_id: int = 0
    reference_id: int = 0
    value: int = 0


@attrs.frozen(kw_only=True)
class FreeCounter(Action):
    counter_id: int


@attrs.frozen(kw_only=True)
class SetCounter(Action):
    counter_id: int
    value: int


@attrs.frozen(kw_only=True)
class ReadCounter(Action):
    """Result: int, its value."""

    counter_id: int


@attrs.frozen(kw_only=True)
class ReadReceivers(Action):
    """Result: tuple[ReceiverView, ...], the live receivers of a publication."""

    publication_id: int


@attrs.frozen(kw_only=True)
class MakeStrategy(Action):
    """Finds and makes an object of a class of the user's.  Result: the object, opaque here."""

    kind: StrategyKind
    name: str


@attrs.frozen(kw_only=True)
class StrategyAnswer:
    """Answer of a class of the user's. Without a limit the built-in rule applies."""

    limit: int | None = None            # a position (FLOW) or a window in bytes (CONGESTION)
    complaint: str = ""                 # for the error log: the first failure of its kind


@attrs.frozen(kw_only=True)
class RunStrategy(Action):
    """Calls a flow-control strategy in Python.  Result: StrategyAnswer, perhaps never."""

    publication_id: int
    snapshots: tuple[ReceiverView, ...]
    now_ns: int


@attrs.frozen(kw_only=True)
class SetPublicationLimit(Action):
    publication_id: int
    limit: int
    until_ns: int


@attrs.frozen(kw_only=True)
class AddToSystemCounter(Action):
    counter_id: int
    delta: int = 1


@attrs.frozen(kw_only=True)
class AllocateSlot(Action):
    """Result: int, the slot's index."""

    kind: SlotKind
    object_id: int


@attrs.frozen(kw_only=True)
class FreeSlot(Action):
    kind: SlotKind
    index: int
    object_id: int = 0          # only while it is this one's; 0: whosever it is


@attrs.frozen(kw_only=True)
class DescribeClient(Action):
    slot: int
    pid: int
    uid: int
    name: str


# ---- send side -----------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class OpenSendEndpoint(Action):
    """Result: Address, what it is bound to."""

    params: SendEndpointParams


@attrs.frozen(kw_only=True)
class AddSendDestination(Action):
    endpoint_id: int
    destination_id: int
    address: Address


@attrs.frozen(kw_only=True)
class RemoveSendDestination(Action):
    endpoint_id: int
    destination_id: int


@attrs.frozen(kw_only=True)
class SetSendAddress(Action):
    endpoint_id: int
    destination_id: int                 # -1: the unicast peer
    address: Address


@attrs.frozen(kw_only=True)
class AddPublicationObject(Action):
    params: PublicationParams
    strategy: Any = None                # from MakeStrategy


@attrs.frozen(kw_only=True)
class GetPublicationStatus(Action):
    """Result: PublicationStatus."""

    publication_id: int


@attrs.frozen(kw_only=True)
class AddPublicationSubscriber(Action):
    publication_id: int
    params: SubscriberParams


@attrs.frozen(kw_only=True)
class RemovePublicationSubscriber(Action):
    publication_id: int
    position_counter_id: int


@attrs.frozen(kw_only=True)
class AddPublicationClient(Action):
    publication_id: int
    client_slot: int


@attrs.frozen(kw_only=True)
class RemovePublicationClient(Action):
    publication_id: int
    client_slot: int


@attrs.frozen(kw_only=True)
class DrainPublication(Action):
    publication_id: int


@attrs.frozen(kw_only=True)
class RevokePublication(Action):
    publication_id: int


@attrs.frozen(kw_only=True)
class UnblockPublication(Action):
    publication_id: int
    client_slot: int


@attrs.frozen(kw_only=True)
class PublicationReserved(Action):
    publication_id: int
    position: int


@attrs.frozen(kw_only=True)
class GiveUpPublication(Action):
    """Ask the sender to release the terms that are not in use; PS_EV_TERMS_RELEASED follows."""

    publication_id: int
    least_terms: int


# ---- receive side --------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class OpenRecvEndpoint(Action):
    params: RecvEndpointParams


@attrs.frozen(kw_only=True)
class AddRecvDestination(Action):
    """Result: Address, what it is bound to."""

    endpoint_id: int
    params: RecvDestinationParams


@attrs.frozen(kw_only=True)
class FitRecvBuffer(Action):
    """Enlarges a socket's receive buffer as far as the kernel allows.  Result: its size in bytes
    afterwards, as SO_RCVBUF counts."""

    endpoint_id: int
    destination_id: int
    size_bytes: int


@attrs.frozen(kw_only=True)
class RemoveRecvDestination(Action):
    """Asks the receiver to read the socket no more; PS_EV_RELEASED follows."""

    endpoint_id: int
    destination_id: int


@attrs.frozen(kw_only=True)
class DestroyRecvDestination(Action):
    """Closes the socket of a destination that the receiver has released."""

    endpoint_id: int
    destination_id: int


@attrs.frozen(kw_only=True)
class SetRecvControl(Action):
    endpoint_id: int
    destination_id: int
    control: Address


@attrs.frozen(kw_only=True)
class AddInterest(Action):
    endpoint_id: int
    stream_id: int
    session_id: int | None              # None: every session


@attrs.frozen(kw_only=True)
class RemoveInterest(Action):
    endpoint_id: int
    stream_id: int
    session_id: int | None


@attrs.frozen(kw_only=True)
class ForgetSession(Action):
    endpoint_id: int
    stream_id: int
    session_id: int
    keep: bool


@attrs.frozen(kw_only=True)
class RefuseSession(Action):
    """Forget a session whose SETUP can never become an image; its sender gets the reason."""

    endpoint_id: int
    stream_id: int
    session_id: int
    destination: int
    source: Address
    reason: str


@attrs.frozen(kw_only=True)
class AddImageObject(Action):
    params: ImageParams


@attrs.frozen(kw_only=True)
class AddImageSubscriber(Action):
    image_id: int
    params: SubscriberParams


@attrs.frozen(kw_only=True)
class RemoveImageSubscriber(Action):
    image_id: int
    position_counter_id: int


@attrs.frozen(kw_only=True)
class GetImageJoinPosition(Action):
    """Result: int."""

    image_id: int


@attrs.frozen(kw_only=True)
class DrainImage(Action):
    image_id: int


@attrs.frozen(kw_only=True)
class RejectImageObject(Action):
    image_id: int
    reason: str


@attrs.frozen(kw_only=True)
class ImageReserved(Action):
    image_id: int
    position: int


@attrs.frozen(kw_only=True)
class GiveUpImage(Action):
    """Ask the receiver to release the terms that are not in use; PS_EV_TERMS_RELEASED follows."""

    image_id: int
    least_terms: int


@attrs.frozen(kw_only=True)
class RemoveObject(Action):
    """Asks the owning agent to let go; PS_EV_RELEASED follows."""

    kind: ObjectKind
    object_id: int
    keep_session: bool = False          # images only


@attrs.frozen(kw_only=True)
class DestroyObject(Action):
    """Frees an object that its agent has released."""

    kind: ObjectKind
    object_id: int
