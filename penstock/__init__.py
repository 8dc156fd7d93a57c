# SPDX-License-Identifier: Apache-2.0
"""penstock: ordered, reliable message streams between processes and hosts.

>>> import penstock
>>> with penstock.connect() as client:                               # doctest: +SKIP
...     publication = client.add_publication("aeron:ipc", 1001)
...     publication.send(b"hello")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.client import (
        Action,
        BatchResult,
        Claim,
        Client,
        ConsumerGroup,
        Counter,
        CreditHandle,
        Credits,
        CurveKeys,
        Gap,
        GroupBatch,
        GroupControl,
        GroupState,
        Header,
        Image,
        LogCuts,
        LogMark,
        LogMarks,
        LogRange,
        LogTimes,
        LostSession,
        Message,
        MessageBatch,
        Offer,
        Publication,
        Relay,
        RelayStatistics,
        Requester,
        Service,
        Subscription,
        TypedBatch,
        TypedConsumerGroup,
        TypedGroupBatch,
        TypedPublication,
        TypedSubscription,
        connect,
        relay,
        route,
    )
    from penstock.client._async import AsyncClient, open_client
    from penstock.client._async_consumer import AsyncConsumerGroup, AsyncGroupBatch
    from penstock.client._async_publication import AsyncPublication
    from penstock.client._async_service import AsyncService
    from penstock.client._async_subscription import AsyncImage, AsyncSubscription
    from penstock.client._async_typed import AsyncTypedPublication, AsyncTypedSubscription
    from penstock.client._requester import AsyncRequester
    from penstock.client._typed_groups import AsyncTypedConsumerGroup, AsyncTypedGroupBatch
    from penstock.errors import (
        AssignmentLost,
        ChannelRefused,
        ClaimLost,
        ClaimRefused,
        ClosedError,
        ConfigurationError,
        CorruptLogError,
        CreditReleased,
        DaemonGone,
        DaemonNotRunning,
        DaemonUnreachable,
        DirectoryInUseError,
        ForkedError,
        GroupError,
        GroupOwned,
        GroupRefused,
        InvalidArgument,
        MessageTooLong,
        NativeError,
        NativeResourceError,
        NotAuthorised,
        NotConnected,
        PenstockError,
        PublicationFailed,
        RangeNotRetained,
        RelayLoop,
        RemoteError,
        SchemaMismatch,
        StorageError,
        TimeoutExpired,
        UnknownGroup,
        UnreliableStream,
        VersionMismatch,
        WithholdTimeout,
    )

__version__ = "0.1.0"

__all__ = [
    "Action",
    "AssignmentLost",
    "AsyncClient",
    "AsyncConsumerGroup",
    "AsyncGroupBatch",
    "AsyncImage",
    "AsyncPublication",
    "AsyncRequester",
    "AsyncService",
    "AsyncSubscription",
    "AsyncTypedConsumerGroup",
    "AsyncTypedGroupBatch",
    "AsyncTypedPublication",
    "AsyncTypedSubscription",
    "BatchResult",
    "ChannelRefused",
    "Claim",
    "ClaimLost",
    "ClaimRefused",
    "Client",
    "ClosedError",
    "ConfigurationError",
    "ConsumerGroup",
    "CorruptLogError",
    "Counter",
    "CreditHandle",
    "CreditReleased",
    "Credits",
    "CurveKeys",
    "DaemonGone",
    "DaemonNotRunning",
    "DaemonUnreachable",
    "DirectoryInUseError",
    "ForkedError",
    "Gap",
    "GroupBatch",
    "GroupControl",
    "GroupError",
    "GroupOwned",
    "GroupRefused",
    "GroupState",
    "Header",
    "Image",
    "InvalidArgument",
    "LogCuts",
    "LogMark",
    "LogMarks",
    "LogRange",
    "LogTimes",
    "LostSession",
    "Message",
    "MessageBatch",
    "MessageTooLong",
    "NativeError",
    "NativeResourceError",
    "NotAuthorised",
    "NotConnected",
    "Offer",
    "PenstockError",
    "Publication",
    "PublicationFailed",
    "RangeNotRetained",
    "Relay",
    "RelayLoop",
    "RelayStatistics",
    "RemoteError",
    "Requester",
    "SchemaMismatch",
    "Service",
    "StorageError",
    "Subscription",
    "TimeoutExpired",
    "TypedBatch",
    "TypedConsumerGroup",
    "TypedGroupBatch",
    "TypedPublication",
    "TypedSubscription",
    "UnknownGroup",
    "UnreliableStream",
    "VersionMismatch",
    "WithholdTimeout",
    "__version__",
    "connect",
    "open_client",
    "relay",
    "route",
]

_ASYNC = {
    "AsyncClient": "_async",
    "AsyncConsumerGroup": "_async_consumer",
    "AsyncGroupBatch": "_async_consumer",
    "AsyncImage": "_async_subscription",
    "AsyncPublication": "_async_publication",
    "AsyncRequester": "_requester",
    "AsyncService": "_async_service",
    "AsyncSubscription": "_async_subscription",
    "AsyncTypedConsumerGroup": "_typed_groups",
    "AsyncTypedGroupBatch": "_typed_groups",
    "AsyncTypedPublication": "_async_typed",
    "AsyncTypedSubscription": "_async_typed",
    "open_client": "_async",
}
_CLIENT = frozenset(
    {
        "Action", "BatchResult", "Claim", "Client", "ConsumerGroup", "Counter", "CreditHandle",
        "Credits", "CurveKeys", "Gap", "GroupBatch", "GroupControl", "GroupState", "Header",
        "Image", "LogCuts", "LogMark", "LogMarks", "LogRange", "LogTimes", "LostSession", "Message",
        "MessageBatch", "Offer", "Publication", "Relay", "RelayStatistics", "Requester", "Service",
        "Subscription", "TypedBatch", "TypedConsumerGroup", "TypedGroupBatch", "TypedPublication",
        "TypedSubscription", "connect", "relay", "route",
    }
)


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that ``import penstock`` loads neither ZeroMQ
    nor anyio."""
    if name not in __all__:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    if name in _ASYNC:
        home = f"penstock.client.{_ASYNC[name]}"
    elif name in _CLIENT:
        home = "penstock.client"
    else:
        home = "penstock.errors"
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
