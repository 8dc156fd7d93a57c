# SPDX-License-Identifier: Apache-2.0
"""Actions for clients: replies, notices, leases, the event feed and the journal."""

from __future__ import annotations

from typing import Any

import attrs

from penstock.config.protocol.control import Message
from penstock.daemon.conductor.actions.base import Action


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
    """Publish an event in the daemon's event feed."""

    name: str
    fields: dict[str, Any]


@attrs.frozen(kw_only=True)
class Record(Action):
    """Write a change of the registered objects to the journal, which the next daemon reads after a
    restart. If ``fields`` is None, the object with this kind and key has been removed."""

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
    """Delete what the daemon has recorded about an ended client: its ZeroMQ identity, and its
    connection on ``lease.sock``."""

    client_id: int


@attrs.frozen(kw_only=True)
class Answer(Action):
    """Send the reply to a request from a program that is not a registered client."""

    request_id: int
    message: Any                        # a Message, or a Located


@attrs.frozen(kw_only=True)
class DescribeClient(Action):
    slot: int
    pid: int
    uid: int
    name: str
