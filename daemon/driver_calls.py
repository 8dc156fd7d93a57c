# SPDX-License-Identifier: Apache-2.0
"""Table of the conductor's actions that need only one call of the native driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from penstock.core.driver_types import ObjectKind
from penstock.daemon.conductor import actions as a
from penstock.daemon.conductor.actions.congestion import SetCongestionWindow, SetWindowShare
from penstock.daemon.conductor.actions.credits import SetImageCredits, SetPublicationCredits

_SEND: Final = ObjectKind.SEND_ENDPOINT
_RECV: Final = ObjectKind.RECV_ENDPOINT
_PUBLICATION: Final = ObjectKind.PUBLICATION
_IMAGE: Final = ObjectKind.IMAGE


@attrs.frozen
class DriverCall:
    """Describes how to perform an action: which function of ``ps_driver.h`` to call, and which
    fields of the action to pass."""

    function: str
    kind: ObjectKind                    # of the object
    fields: tuple[str, ...]             # of the action, in the function's order; first the id
    operation: str                      # for the error; {0} is the action


DRIVER_CALLS: Final[Mapping[type[a.Action], DriverCall]] = {
    a.AddSendDestination: DriverCall(
        "ps_send_endpoint_add_destination", _SEND, ("endpoint_id", "destination_id", "address"),
        "add destination {0.address}",
    ),
    a.RemoveSendDestination: DriverCall(
        "ps_send_endpoint_remove_destination", _SEND, ("endpoint_id", "destination_id"),
        "remove a destination",
    ),
    a.SetSendAddress: DriverCall(
        "ps_send_endpoint_set_address", _SEND, ("endpoint_id", "destination_id", "address"),
        "redirect to {0.address}",
    ),
    a.AddPublicationSubscriber: DriverCall(
        "ps_publication_add_subscriber", _PUBLICATION, ("publication_id", "params"),
        "add a local subscriber",
    ),
    a.RemovePublicationSubscriber: DriverCall(
        "ps_publication_remove_subscriber", _PUBLICATION, ("publication_id", "position_counter_id"),
        "remove a local subscriber",
    ),
    a.AddPublicationClient: DriverCall(
        "ps_publication_add_client", _PUBLICATION, ("publication_id", "client_slot"),
        "add a publisher",
    ),
    a.RemovePublicationClient: DriverCall(
        "ps_publication_remove_client", _PUBLICATION, ("publication_id", "client_slot"),
        "remove a publisher",
    ),
    a.DrainPublication: DriverCall(
        "ps_publication_drain", _PUBLICATION, ("publication_id",), "drain a publication"
    ),
    a.RevokePublication: DriverCall(
        "ps_publication_revoke", _PUBLICATION, ("publication_id",), "revoke a publication"
    ),
    # Padding over the claims of the dead client in the slot; -1: over any claim that blocks.
    a.UnblockPublication: DriverCall(
        "ps_publication_unblock", _PUBLICATION, ("publication_id", "client_slot"),
        "unblock a publication",
    ),
    a.PublicationReserved: DriverCall(
        "ps_publication_reserved", _PUBLICATION, ("publication_id", "position"),
        "hand over a reserved term",
    ),
    a.ReleasePublicationTerms: DriverCall(
        "ps_publication_release_terms", _PUBLICATION, ("publication_id", "least_terms"),
        "request idle terms",
    ),
    a.SetPublicationLimit: DriverCall(
        "ps_publication_set_limit", _PUBLICATION, ("publication_id", "limit", "until_ns"),
        "set a limit",
    ),
    a.RemoveRecvDestination: DriverCall(
        "ps_recv_endpoint_remove_destination", _RECV, ("endpoint_id", "destination_id"),
        "remove a receive destination",
    ),
    a.SetRecvControl: DriverCall(
        "ps_recv_endpoint_set_control", _RECV, ("endpoint_id", "destination_id", "control"),
        "redirect status messages to {0.control}",
    ),
    a.ForgetSession: DriverCall(
        "ps_recv_endpoint_forget_session", _RECV,
        ("endpoint_id", "stream_id", "session_id", "keep"), "forget a session",
    ),
    a.RefuseSession: DriverCall(
        "ps_recv_endpoint_refuse_session", _RECV,
        ("endpoint_id", "stream_id", "session_id", "destination", "source", "reason"),
        "refuse a session",
    ),
    a.AddImageSubscriber: DriverCall(
        "ps_image_add_subscriber", _IMAGE, ("image_id", "params"), "add a subscriber"
    ),
    a.RemoveImageSubscriber: DriverCall(
        "ps_image_remove_subscriber", _IMAGE, ("image_id", "position_counter_id"),
        "remove a subscriber",
    ),
    a.DrainImage: DriverCall("ps_image_drain", _IMAGE, ("image_id",), "drain an image"),
    a.RejectImageObject: DriverCall(
        "ps_image_reject", _IMAGE, ("image_id", "reason"), "reject an image"
    ),
    a.ImageReserved: DriverCall(
        "ps_image_reserved", _IMAGE, ("image_id", "position"), "hand over a reserved term"
    ),
    a.ReleaseImageTerms: DriverCall(
        "ps_image_release_terms", _IMAGE, ("image_id", "least_terms"), "request idle terms"
    ),
    SetImageCredits: DriverCall(
        "ps_image_set_credits", _IMAGE,
        ("image_id", "position_counter_id", "credits", "burst", "frozen"),
        "change the credits of a reader",
    ),
    SetPublicationCredits: DriverCall(
        "ps_publication_set_credits", _PUBLICATION,
        ("publication_id", "position_counter_id", "credits", "burst", "frozen"),
        "change the credits of a local reader",
    ),
    SetWindowShare: DriverCall(
        "ps_image_set_share", _IMAGE, ("image_id", "window"), "divide a receiver window",
    ),
    SetCongestionWindow: DriverCall(
        "ps_image_set_congestion_window", _IMAGE, ("image_id", "window"),
        "set a congestion window",
    ),
}
