# SPDX-License-Identifier: Apache-2.0
"""Credits of consumer groups: their options, and a function that waits for the members' commits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from penstock.client._credit_options import Credits, CreditsGiven, credits_given
from penstock.client._members import Shares
from penstock.client._withhold import OpenBatch, Outstanding
from penstock.config import uri
from penstock.core.credits import CreditState
from penstock.core.errors import ChannelRefused, InvalidArgument, WithholdTimeout

if TYPE_CHECKING:
    from penstock.client._consumer import ConsumerGroup, GroupBatch
    from penstock.config.protocol.control import CreditReport

#: Called with each batch that this member receives during a withhold.
BatchHandler = Callable[["GroupBatch"], None]
_BATCH: Final = 4096
_BYTES: Final = 4 << 20


def group_channel(
    value: CreditsGiven, of_client: Credits | None, name: str, channel: str
) -> str:
    """Return the channel of a group, to which the options ``credits=`` are added as parameters.

    :raises InvalidArgument: a group cannot have these credits, or the client was connected with
        credits and the group states none of its own.
    """
    given = credits_given(value)
    if given is None:
        if of_client is not None and not _states_credits(channel):
            raise InvalidArgument(
                f"group {name} on {channel}: connect(credits=...) is a pool of the client's "
                "subscriptions, and a consumer group is not one of them; state credits of the "
                "group itself, or connect a second client without credits"
            )
        return channel
    if given.handles or given.leak != "keep" or given.pool == "client":
        option = "handles" if given.handles else "leak" if given.leak != "keep" else "pool"
        raise InvalidArgument(
            f"group {name} on {channel}: Credits({option}=...) is not for a consumer group, "
            "because the commit of a batch returns its credits"
        )
    return given.in_channel(channel)


def _states_credits(channel: str) -> bool:
    try:
        return "ps-credits" in uri.parse(channel).given()
    except uri.ChannelError:
        return False                            # the daemon refuses it, with the reason


class GroupWithholding:
    """One call of :meth:`penstock.ConsumerGroup.withhold`. The call requests the daemon to withhold
    the credits of the group. Then it waits until the members have committed every published
    message."""

    def __init__(self, group: ConsumerGroup, handler: BatchHandler | None) -> None:
        self._group = group
        self._handler = handler

    def request(self) -> None:
        """Request it from the daemon.  Blocks for one exchange."""
        self._group._ask_credits("withhold")

    def is_done(self) -> bool:
        """Process the batches that are free, if there is a handler. Return True if the members have
        now committed every published message.

        :raises ChannelRefused: a sender does not support credits.
        """
        group = self._group
        if self._handler is not None:
            while (batch := group._claim(_BATCH, _BYTES)) is not None:
                self._handler(batch)
                batch.commit()
        report = group._ask_credits("report")
        for reader in report.readers.values():
            if reader["state"] == CreditState.UNSUPPORTED.name.lower():
                raise ChannelRefused(
                    f"group {group.name}: session {reader['session_id']} from {reader['source']} "
                    f"on {group.channel} stream {group.stream_id}: its sender supports no credits, "
                    "so its messages cannot be withheld",
                    code="not_supported",
                )
        return report.complete

    def failure(self, timeout_s: float) -> WithholdTimeout:
        """Return the exception for a time-out. Its text lists each session that has uncommitted
        messages, and the members that have open batches of this session."""
        group = self._group
        report = group._ask_credits("report")
        with group._shares() as held:
            held.release_dead()
            found = outstanding(report, held)
        return WithholdTimeout(
            f"group {group.name} on {group.channel} stream {group.stream_id} was not drained "
            f"within {timeout_s:g} s, and its publishers continue: "
            + ("; ".join(map(str, found)) or "the daemon has not applied it"),
            outstanding=found,
        )


def outstanding(report: CreditReport, held: Shares) -> tuple[Outstanding, ...]:
    """Return those sessions of a report that have uncommitted messages."""
    return tuple(
        _outstanding(reader, held) for reader in report.readers.values() if not reader["complete"]
    )


def _outstanding(reader: dict[str, Any], held: Shares) -> Outstanding:
    clients = {joined.member: joined for joined in held.members}
    batches = [
        OpenBatch(
            client=clients[claim.member].client if claim.member in clients else "",
            pid=int(claim.member.split("/")[0]),
            start_position=claim.start, position=claim.end,
        )
        for session, log in held.logs.items() if session[0] == reader["session_id"]
        for claim in log.claims
    ]
    return Outstanding(
        session_id=reader["session_id"], source=reader["source"], state=reader["state"],
        final=reader["final"], delivered=reader["passed"],
        returned=reader["returned"] + reader["leaked"], batches=tuple(batches),
    )
