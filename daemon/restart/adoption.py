# SPDX-License-Identifier: Apache-2.0
"""Read the directory of a daemon that has ended, and decide whether a new daemon can adopt it
(continue its streams).

A new daemon can adopt a directory under three conditions. The first condition is a complete journal
in the format of this version. The second condition is that ``cnc.dat`` and ``penstock.dat`` are
valid. The third condition is that the streams are still needed. A client with a live process, or a
consumer group, needs its streams. A receiver needs a publication whose end it has not confirmed. If
a condition is not met, the new daemon deletes the directory's content. Clients of the old daemon
that connect again then add their publications and subscriptions again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from penstock.core import admin
from penstock.core.driver_types import SlotKind
from penstock.core.errors import PenstockError
from penstock.daemon.conductor import Conductor
from penstock.daemon.processes import process_started
from penstock.daemon.restart import journal

_LOG = logging.getLogger("penstock.daemon")
_SYSTEM_COUNTER: Final = 0


@attrs.frozen(kw_only=True)
class Adopted:
    """A dead daemon's directory, opened."""

    records: Mapping[journal.Key, Mapping[str, Any]]
    daemon_id: int
    dead: frozenset[int]                # clients whose processes have ended
    cnc: admin.Cnc
    shared: admin.Shared


def _has_ended(fields: Mapping[str, Any]) -> bool:
    """Return whether a client's process is known to have ended; unknown in another PID
    namespace."""
    pid, started = int(fields["pid"]), int(fields["started"])
    return pid > 0 and started > 0 and process_started(pid) != started


def _is_owed(fields: Mapping[str, Any]) -> bool:
    """Return whether receivers may miss accepted data. A client that ended while no daemon ran left
    its publication active."""
    unfinished = fields["state"] in ("active", "draining", "linger") and not fields["end_confirmed"]
    return bool(unfinished and fields["endpoint_id"] != 0)


def adopt(directory: Path) -> Adopted | None:
    """Open the directory for adoption. Return None, and log the reason, if there is nothing to
    adopt."""
    try:
        records = journal.read(directory)
        if not records:
            return None
        dead = frozenset(
            key[0] for (kind, key), fields in records.items()
            if kind == "client" and _has_ended(fields)
        )
        living = any(kind == "client" and key[0] not in dead for kind, key in records)
        owed = any(kind == "publication" and _is_owed(f) for (kind, _), f in records.items())
        grouped = any(kind == "group" for kind, _ in records)
        if not living and not owed and not grouped:
            return None
        daemon_id = records["daemon", (0,)]["daemon_id"]
        cnc = admin.Cnc.open(str(directory), read_only=False)
        try:
            shared = admin.Shared.open(str(directory), read_only=False)
        except PenstockError:
            cnc.close()
            raise
    except (PenstockError, OSError, KeyError, TypeError) as error:
        _LOG.warning(
            "%s: cannot adopt the streams of the last daemon; clients begin new sessions: %s",
            directory, error,
        )
        return None
    return Adopted(records=records, daemon_id=daemon_id, dead=dead, cnc=cnc, shared=shared)


def sweep(directory: Path, cnc: admin.Cnc, shared: admin.Shared, conductor: Conductor) -> None:
    """Delete the logs that no adopted object uses. After a delay, free the counters and slots that
    no adopted object uses. A client may write to a counter or slot until it has read the notice
    that its object has ended, so the delay is necessary."""
    used = conductor.in_use()
    for folder in ("publications", "images"):
        for entry in os.scandir(directory / folder):
            if entry.path not in used.logs:
                os.unlink(entry.path)
    conductor.sweep_later(
        [
            info.counter_id for info in cnc.counters()
            if info.type_id != _SYSTEM_COUNTER and info.counter_id not in used.counters
        ],
        [
            (kind, index, object_id)
            for kind in SlotKind
            for index in range(shared.slot_count(kind))
            if (object_id := shared.slot_id(kind, index)) and (kind, index) not in used.slots
        ],
    )
