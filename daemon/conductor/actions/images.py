# SPDX-License-Identifier: Apache-2.0
"""Actions on the receive side: receive endpoints, subscribed streams (interest) and images."""

from __future__ import annotations

import attrs

from penstock.core.driver_types import (
    Address,
    ImageParams,
    RecvDestinationParams,
    RecvEndpointParams,
    SubscriberParams,
)
from penstock.daemon.conductor.actions.base import Action


@attrs.frozen(kw_only=True)
class OpenRecvEndpoint(Action):
    params: RecvEndpointParams


@attrs.frozen(kw_only=True)
class AddRecvDestination(Action):
    """Open a socket of a receive endpoint. Result: the address to which the new socket is bound."""

    endpoint_id: int
    params: RecvDestinationParams


@attrs.frozen(kw_only=True)
class FitRecvBuffer(Action):
    """Enlarge a socket's receive buffer as far as the kernel allows. Result: the new size of the
    receive buffer, in bytes as SO_RCVBUF counts them."""

    endpoint_id: int
    destination_id: int
    size_bytes: int


@attrs.frozen(kw_only=True)
class RemoveRecvDestination(Action):
    """Request the receiver to stop reading a socket. The receiver answers with the event
    PS_EV_RELEASED."""

    endpoint_id: int
    destination_id: int


@attrs.frozen(kw_only=True)
class DestroyRecvDestination(Action):
    """Close the socket of a destination after the receiver has released it."""

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
    """Remove the receiver's record of a refused session, and send the reason to the session's
    sender. The conductor creates no image for a refused session."""

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
class ReleaseImageTerms(Action):
    """Request the receiver to release those terms of an image that are not in use. The receiver
    answers with the event PS_EV_TERMS_RELEASED."""

    image_id: int
    least_terms: int
