# SPDX-License-Identifier: Apache-2.0
"""Count the receivers of a publication, with the daemon's counters."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from penstock.config import uri
from penstock.core.errors import InvalidArgument, PenstockError

if TYPE_CHECKING:
    from penstock.client._publication import Publication
    from penstock.core.driver_types import CounterInfo

_SUBSCRIBER_POSITION: Final = 4
_FLOW_CONTROL_RECEIVERS: Final = 17
_STREAM_KEY: Final = struct.Struct("<qii")      # id, session and stream


def _of_publication(found: CounterInfo, publication: Publication, *, ipc: bool) -> int:
    if ipc:
        mine = found.type_id == _SUBSCRIBER_POSITION and _STREAM_KEY.unpack_from(found.key)[1:] == (
            publication.session_id, publication.stream_id,
        )
        return int(mine)
    mine = found.type_id == _FLOW_CONTROL_RECEIVERS and \
        _STREAM_KEY.unpack_from(found.key)[0] == publication.original_id
    return found.value if mine else 0


def count(publication: Publication) -> int:
    """Return the number of receivers; 0 if the daemon's counters cannot be read."""
    from penstock.core import admin  # imports the driver's types, which few clients need

    ipc = uri.parse(publication.channel).is_ipc
    try:
        cnc = admin.Cnc.open(str(publication._client.directory))
    except PenstockError:
        return 0
    try:
        return sum(_of_publication(found, publication, ipc=ipc) for found in cnc.counters())
    finally:
        cnc.close()


def condition(publication: Publication, receivers: int) -> Callable[[], bool]:
    """Return a function without arguments that ``wait_connected`` calls repeatedly. The function
    returns True as soon as the stream has enough receivers."""
    if receivers < 1:
        raise InvalidArgument(f"receivers={receivers}: wait for at least one receiver")

    def connected() -> bool:
        publication._want_room()
        return publication.is_connected and (receivers == 1 or count(publication) >= receivers)

    return connected


def why_not_connected(publication: Publication) -> str:
    """Return a clause that explains why a publication is NOT_CONNECTED: credits are missing, or the
    receiver group has too few receivers. Return an empty text if the reason is not known."""
    if publication._diverted.ever_granted:
        return ": the receivers that granted it credits have left"
    chosen = uri.parse(publication.channel).fc
    required = 0 if chosen is None else chosen.group_min_size or 0
    if required == 0 or (there := count(publication)) >= required:
        return ""
    return (
        f": fc={chosen} requires {required} receivers, and {there} "
        f"{'is' if there == 1 else 'are'} connected (a receiver is a daemon, not a subscription)"
    )


class Receivers:
    """Base class of publications: its methods count the connected receivers, and wait for them."""

    @property
    def receivers(self: Any) -> int:
        """Number of receivers that are connected. On UDP a receiver is a daemon: all subscriptions
        of one daemon count as one. Under ``fc=tagged``, receivers without the tag do not count. On
        IPC each subscription is a receiver. This method reads all of the daemon's counters, so it
        takes longer than other methods."""
        return count(self)

    def wait_connected(
        self: Any, timeout_s: float | None = None, *, receivers: int = 1
    ) -> bool:
        """Sleep until the stream has at least ``receivers`` connected receivers. Return False after
        ``timeout_s`` seconds; None, the default, waits without a limit.

        :param receivers: on UDP a receiver is a daemon, and all subscriptions of one daemon are one
            receiver; on IPC each subscription is one (:attr:`receivers`).
        """
        found: bool = self._client._parking().until(condition(self, receivers), timeout_s)
        return found
