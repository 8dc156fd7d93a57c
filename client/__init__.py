# SPDX-License-Identifier: Apache-2.0
"""The client side of penstock: connect, publish, subscribe."""

from __future__ import annotations

from penstock.client._claim import Claim
from penstock.client._client import Client, Registration, connect
from penstock.client._counters import Counter, Counters
from penstock.client._group_errors import (
    DaemonUnreachable,
    GroupError,
    GroupRefused,
    NotAuthorised,
    RangeNotRetained,
    UnknownGroup,
    UnreliableStream,
)
from penstock.client._groups import GroupControl, GroupState, LogCuts, LogRange
from penstock.client._image import Image
from penstock.client._message import Header, MessageBatch
from penstock.client._offer import Action, Offer
from penstock.client._pressure import Pressure
from penstock.client._publication import (
    BatchResult,
    Publication,
    PublicationStatistics,
    RemoteRejection,
)
from penstock.client._restart import Gap, LostSession
from penstock.client._subscription import Subscription, SubscriptionStatistics
from penstock.config.keys import CurveKeys

__all__ = [
    "Action",
    "BatchResult",
    "Claim",
    "Client",
    "Counter",
    "Counters",
    "CurveKeys",
    "DaemonUnreachable",
    "Gap",
    "GroupControl",
    "GroupError",
    "GroupRefused",
    "GroupState",
    "Header",
    "Image",
    "LogCuts",
    "LogRange",
    "LostSession",
    "MessageBatch",
    "NotAuthorised",
    "Offer",
    "Pressure",
    "Publication",
    "PublicationStatistics",
    "RangeNotRetained",
    "Registration",
    "RemoteRejection",
    "Subscription",
    "SubscriptionStatistics",
    "UnknownGroup",
    "UnreliableStream",
    "connect",
]
