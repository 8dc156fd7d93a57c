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
        Counter,
        CurveKeys,
        Gap,
        GroupControl,
        GroupState,
        Header,
        Image,
        LogCuts,
        LogRange,
        LogTimes,
        LostSession,
        Message,
        MessageBatch,
        Offer,
        Publication,
        Subscription,
        connect,
    )
    from penstock.client._async import AsyncClient, open_client
    from penstock.client._async_publication import AsyncPublication
    from penstock.client._async_subscription import AsyncImage, AsyncSubscription
    from penstock.errors import (
        ChannelRefused,
        ClaimLost,
        ClaimRefused,
        ClosedError,
        ConfigurationError,
        CorruptLogError,
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
        StorageError,
        TimeoutExpired,
        UnknownGroup,
        UnreliableStream,
        VersionMismatch,
    )

__version__ = "0.1.0"

__all__ = [
    "Action",
    "AsyncClient",
    "AsyncImage",
    "AsyncPublication",
    "AsyncSubscription",
    "BatchResult",
    "ChannelRefused",
    "Claim",
    "ClaimLost",
    "ClaimRefused",
    "Client",
    "ClosedError",
    "ConfigurationError",
    "CorruptLogError",
    "Counter",
    "CurveKeys",
    "DaemonGone",
    "DaemonNotRunning",
    "DaemonUnreachable",
    "DirectoryInUseError",
    "ForkedError",
    "Gap",
    "GroupControl",
    "GroupError",
    "GroupOwned",
    "GroupRefused",
    "GroupState",
    "Header",
    "Image",
    "InvalidArgument",
    "LogCuts",
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
    "StorageError",
    "Subscription",
    "TimeoutExpired",
    "UnknownGroup",
    "UnreliableStream",
    "VersionMismatch",
    "__version__",
    "connect",
    "open_client",
]

_ASYNC = {
    "AsyncClient": "_async",
    "AsyncImage": "_async_subscription",
    "AsyncPublication": "_async_publication",
    "AsyncSubscription": "_async_subscription",
    "open_client": "_async",
}
_CLIENT = frozenset(
    {
        "Action", "BatchResult", "Claim", "Client", "Counter", "CurveKeys", "Gap",
        "GroupControl", "GroupState", "Header", "Image", "LogCuts", "LogRange", "LogTimes",
        "LostSession", "Message", "MessageBatch", "Offer", "Publication", "Subscription",
        "connect",
    }
)


def __getattr__(name: str) -> Any:
    """Public names load on first use: importing penstock loads neither ZeroMQ nor anyio."""
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
