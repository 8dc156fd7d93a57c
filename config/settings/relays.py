# SPDX-License-Identifier: Apache-2.0
"""Relays that a configuration file describes; ``penstock relay --config FILE --name NAME`` runs one
of them."""

from __future__ import annotations

from typing import Final

import attrs

from penstock.config.settings._fields import duration, optional_integer, text

NAME: Final = r"[A-Za-z0-9._-]{1,64}"
"""Name of a relay; it is a part of file names."""
_MINUTE_NS: Final = 60 * 10**9


@attrs.frozen(kw_only=True)
class RelayRule:
    """One `[[relay]]`: a source stream and a target stream. `penstock relay --config FILE --name
    NAME` publishes the messages of the source on the target. The daemon ignores it."""

    name: str = text(
        "relay", NAME, "1 to 64 letters, digits, dots, dashes and underscores",
        "Name of the relay; a new process with this name continues the relay where the "
        "previous process ended.",
        "Always.")
    source: str = text("", r"[^\0]*", "a channel", "Channel to read.", "Always.")
    source_stream: int | None = optional_integer(
        -(2**31), 2**31 - 1, "Stream to read.", "Always.")
    target: str = text("", r"[^\0]*", "a channel", "Channel to publish on.", "Always.")
    target_stream: int | None = optional_integer(
        -(2**31), 2**31 - 1, "Stream id on which the relay publishes; not set: the value of "
                             "source_stream.",
        "Set this key if the target stream has another stream id than the source.")
    linger_ns: int = duration(
        _MINUTE_NS, "After a relay process has died, the daemon keeps the relay's source and "
                    "target streams for this time, for the next process of the relay.",
                    "Raise this value if a restart of the relay process takes longer.", low=1)
