# SPDX-License-Identifier: Apache-2.0
"""Stop a query's publishers when a batch is planned, until the batch is committed (option
``withholdOnCheckpoint``). When the batch is committed, no message is in flight: the batch contains
every message that publishers have sent.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from penstock.config import uri
from penstock.core.credits import CreditState
from penstock.core.errors import InvalidArgument, WithholdTimeout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.spark_bridge._options import StreamName
    from penstock.spark_bridge._subscription import Subscription

_SHORTEST_S: Final = 0.002
_LONGEST_S: Final = 0.05
_SETTLED: Final = CreditState.SETTLED.name.lower()
_UNSUPPORTED: Final = CreditState.UNSUPPORTED.name.lower()
#: Options with which a batch may leave out messages that have arrived, or with their values.
_PARTIAL: Final = (
    ("maxBytesPerTrigger", None), ("maxOffsetsPerTrigger", None), ("ackOn", "commit"),
    ("readCommitted", "true"),
)


def check_withhold(given: Mapping[str, str], streams: Sequence[StreamName]) -> None:
    """Check the options of a query with ``withholdOnCheckpoint=true``.

    :raises InvalidArgument: a channel states no credits, or another option contradicts this option.
    """
    for name, value in _PARTIAL:
        stated = given.get(name.lower())
        if stated is not None and value in (None, stated.lower()):
            raise InvalidArgument(
                f"option withholdOnCheckpoint=true contradicts option {name}={stated}: a batch "
                "has to contain all messages that publishers have sent, and its end is its commit; "
                f"leave {name} out, and limit a batch by the number of credits"
            )
    for stream in streams:
        if "ps-credits" not in uri.parse(stream.channel).given():
            raise InvalidArgument(
                f"option withholdOnCheckpoint=true: the channel {stream.channel} states no "
                "credits: add ps-credits=N, the largest number of messages of a session in a batch"
            )


class Checkpoints:
    """Withholds the credits of one query's streams. Publishers without credits wait. New publishers
    get no credits until :meth:`end`.
    """

    def __init__(self, subscription: Subscription, timeout_s: float) -> None:
        self._subscription = subscription
        self._timeout_s = timeout_s
        self._held: bool | None = None          # None: an earlier driver may have withheld

    def begin(self) -> None:
        """Stop the publishers, and wait until all messages that they have sent have arrived.

        :raises WithholdTimeout: a sender did not stop in time; the publishers continue.
        """
        self._held = True
        self._subscription.credits("withhold")
        deadline, pause_s = time.monotonic() + self._timeout_s, _SHORTEST_S
        while missing := [one for one in self._subscription.credits("report") if _is_late(one)]:
            refused = [one for one in missing if one["state"] == _UNSUPPORTED]
            if refused or time.monotonic() > deadline:
                self.end()
                raise _failure(refused or missing, self._timeout_s)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_S)

    def end(self) -> None:
        """Let the publishers continue. Without effect if they do."""
        if self._held is not False:
            self._subscription.credits("resume")
            self._held = False


def _is_late(reader: Mapping[str, Any]) -> bool:
    return bool(reader["state"] != _SETTLED or reader["arrived"] < reader["final"])


def _failure(readers: Sequence[Mapping[str, Any]], timeout_s: float) -> Exception:
    found = "; ".join(
        f"session {one['session_id']} from {one['source']} of {one['channel']} is {one['state']}"
        for one in readers
    )
    if readers[0]["state"] == _UNSUPPORTED:
        return InvalidArgument(
            f"option withholdOnCheckpoint=true: a sender does not support credits: {found}"
        )
    return WithholdTimeout(
        f"option withholdOnCheckpoint=true: senders did not stop within {timeout_s:g} s: {found}"
    )
