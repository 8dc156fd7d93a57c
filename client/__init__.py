# SPDX-License-Identifier: Apache-2.0
"""The client side of penstock: connect, publish, subscribe."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock.client._claim import Claim
    from penstock.client._client import Client, Registration
    from penstock.client._connect import connect
    from penstock.client._counters import Counter, Counters
    from penstock.client._groups import (
        GroupControl,
        GroupState,
        LogCuts,
        LogRange,
        LogTimes,
    )
    from penstock.client._image import Image
    from penstock.client._message import Header, Message, MessageBatch
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
    from penstock.config.protocol.keys import CurveKeys
    from penstock.errors import (
        DaemonUnreachable,
        GroupError,
        GroupOwned,
        GroupRefused,
        NotAuthorised,
        RangeNotRetained,
        UnknownGroup,
        UnreliableStream,
    )

#: Module to the public names in it.
_NAMES: Final = {
    "penstock.client._claim": ("Claim",),
    "penstock.client._client": ("Client", "Registration"),
    "penstock.client._connect": ("connect",),
    "penstock.client._counters": ("Counter", "Counters"),
    "penstock.errors": (
        "DaemonUnreachable", "GroupError", "GroupOwned", "GroupRefused", "NotAuthorised",
        "RangeNotRetained", "UnknownGroup", "UnreliableStream",
    ),
    "penstock.client._groups": ("GroupControl", "GroupState", "LogCuts", "LogRange", "LogTimes"),
    "penstock.client._image": ("Image",),
    "penstock.client._message": ("Header", "Message", "MessageBatch"),
    "penstock.client._offer": ("Action", "Offer"),
    "penstock.client._pressure": ("Pressure",),
    "penstock.client._publication": (
        "BatchResult", "Publication", "PublicationStatistics", "RemoteRejection",
    ),
    "penstock.client._restart": ("Gap", "LostSession"),
    "penstock.client._subscription": ("Subscription", "SubscriptionStatistics"),
    "penstock.config.protocol.keys": ("CurveKeys",),
}
_HOME: Final = {name: module for module, names in _NAMES.items() for name in names}

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
    "GroupOwned",
    "GroupRefused",
    "GroupState",
    "Header",
    "Image",
    "LogCuts",
    "LogRange",
    "LogTimes",
    "LostSession",
    "Message",
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


def __getattr__(name: str) -> Any:
    """Load a public name on first use: a module of this package costs what it needs itself."""
    if name not in _HOME:
        raise AttributeError(f"module 'penstock.client' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
