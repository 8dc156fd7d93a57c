# SPDX-License-Identifier: Apache-2.0
"""The client side of penstock: connect, publish, subscribe."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock.client._asking import RequesterStatistics
    from penstock.client._claim import Claim
    from penstock.client._client import Client
    from penstock.client._connect import connect
    from penstock.client._consumer import ConsumerGroup, GroupBatch
    from penstock.client._counters import Counter, Counters
    from penstock.client._credit_options import Credits
    from penstock.client._credits import CreditHandle, SubscriptionCredits
    from penstock.client._groups import (
        GroupControl,
        GroupState,
        LogCuts,
        LogMark,
        LogMarks,
        LogRange,
        LogTimes,
    )
    from penstock.client._image import Image
    from penstock.client._message import Header, Message, MessageBatch
    from penstock.client._no_credit import PublicationCredits, route
    from penstock.client._offer import Action, Offer
    from penstock.client._pressure import Pressure
    from penstock.client._publication import Publication
    from penstock.client._publication_facts import (
        BatchResult,
        PublicationStatistics,
        RemoteRejection,
    )
    from penstock.client._registration import Registration
    from penstock.client._relay import Relay, RelayStatistics, relay
    from penstock.client._requester import Requester
    from penstock.client._restart import Gap, LostSession
    from penstock.client._service import Service, ServiceStatistics
    from penstock.client._subscription import Subscription, SubscriptionStatistics
    from penstock.client._typed import TypedBatch, TypedPublication, TypedSubscription
    from penstock.client._typed_groups import TypedConsumerGroup, TypedGroupBatch
    from penstock.client._withhold import OpenBatch, Outstanding
    from penstock.config.protocol.keys import CurveKeys
    from penstock.errors import (
        AssignmentLost,
        CreditReleased,
        DaemonUnreachable,
        GroupError,
        GroupOwned,
        GroupRefused,
        NotAuthorised,
        RangeNotRetained,
        RemoteError,
        SchemaMismatch,
        UnknownGroup,
        UnreliableStream,
        WithholdTimeout,
    )

#: Module to the public names in it.
_NAMES: Final = {
    "penstock.client._claim": ("Claim",),
    "penstock.client._client": ("Client",),
    "penstock.client._connect": ("connect",),
    "penstock.client._consumer": ("ConsumerGroup", "GroupBatch"),
    "penstock.client._counters": ("Counter", "Counters"),
    "penstock.client._credit_options": ("Credits",),
    "penstock.client._credits": ("CreditHandle", "SubscriptionCredits"),
    "penstock.errors": (
        "AssignmentLost", "DaemonUnreachable", "GroupError", "GroupOwned", "GroupRefused",
        "CreditReleased", "NotAuthorised", "RangeNotRetained", "RemoteError", "SchemaMismatch",
        "UnknownGroup", "UnreliableStream", "WithholdTimeout",
    ),
    "penstock.client._groups": (
        "GroupControl", "GroupState", "LogCuts", "LogMark", "LogMarks", "LogRange", "LogTimes",
    ),
    "penstock.client._image": ("Image",),
    "penstock.client._message": ("Header", "Message", "MessageBatch"),
    "penstock.client._offer": ("Action", "Offer"),
    "penstock.client._pressure": ("Pressure",),
    "penstock.client._no_credit": ("PublicationCredits", "route"),
    "penstock.client._publication": ("Publication",),
    "penstock.client._publication_facts": (
        "BatchResult", "PublicationStatistics", "RemoteRejection",
    ),
    "penstock.client._asking": ("RequesterStatistics",),
    "penstock.client._registration": ("Registration",),
    "penstock.client._relay": ("Relay", "RelayStatistics", "relay"),
    "penstock.client._requester": ("Requester",),
    "penstock.client._restart": ("Gap", "LostSession"),
    "penstock.client._service": ("Service", "ServiceStatistics"),
    "penstock.client._subscription": ("Subscription", "SubscriptionStatistics"),
    "penstock.client._typed": ("TypedBatch", "TypedPublication", "TypedSubscription"),
    "penstock.client._typed_groups": ("TypedConsumerGroup", "TypedGroupBatch"),
    "penstock.client._withhold": ("OpenBatch", "Outstanding"),
    "penstock.config.protocol.keys": ("CurveKeys",),
}
_HOME: Final = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "Action",
    "AssignmentLost",
    "BatchResult",
    "Claim",
    "Client",
    "ConsumerGroup",
    "Counter",
    "Counters",
    "CreditHandle",
    "CreditReleased",
    "Credits",
    "CurveKeys",
    "DaemonUnreachable",
    "Gap",
    "GroupBatch",
    "GroupControl",
    "GroupError",
    "GroupOwned",
    "GroupRefused",
    "GroupState",
    "Header",
    "Image",
    "LogCuts",
    "LogMark",
    "LogMarks",
    "LogRange",
    "LogTimes",
    "LostSession",
    "Message",
    "MessageBatch",
    "NotAuthorised",
    "Offer",
    "OpenBatch",
    "Outstanding",
    "Pressure",
    "Publication",
    "PublicationCredits",
    "PublicationStatistics",
    "RangeNotRetained",
    "Registration",
    "Relay",
    "RelayStatistics",
    "RemoteError",
    "RemoteRejection",
    "Requester",
    "RequesterStatistics",
    "SchemaMismatch",
    "Service",
    "ServiceStatistics",
    "Subscription",
    "SubscriptionCredits",
    "SubscriptionStatistics",
    "TypedBatch",
    "TypedConsumerGroup",
    "TypedGroupBatch",
    "TypedPublication",
    "TypedSubscription",
    "UnknownGroup",
    "UnreliableStream",
    "WithholdTimeout",
    "connect",
    "relay",
    "route",
]


def __getattr__(name: str) -> Any:
    """Load a public name on first use, so that importing one module does not load the others."""
    if name not in _HOME:
        raise AttributeError(f"module 'penstock.client' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
