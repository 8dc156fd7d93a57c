# SPDX-License-Identifier: Apache-2.0
"""Actions on the send side: send endpoints, destinations and publications."""

from __future__ import annotations

from typing import Any

import attrs

from penstock.core.driver_types import (
    Address,
    PublicationParams,
    SendEndpointParams,
    SubscriberParams,
)
from penstock.daemon.conductor.actions.base import Action


@attrs.frozen(kw_only=True)
class OpenSendEndpoint(Action):
    """Open a send endpoint. Result: the address to which the socket of the endpoint is bound."""

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
class ReleasePublicationTerms(Action):
    """Request the sender to release those terms of a publication that are not in use. The sender
    answers with the event PS_EV_TERMS_RELEASED."""

    publication_id: int
    least_terms: int
