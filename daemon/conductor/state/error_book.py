# SPDX-License-Identifier: Apache-2.0
"""Choose the text of an error in the distinct error log.

The error log keeps one entry for each text permanently. Because entries are permanent, an attacker
who causes errors with ever new texts could fill the error log. To keep the error log small, all
errors of the same kind and source use the text of the first such error. Each pair of a kind and a
source has an entry of its own until a limit is reached. After this limit, all new sources of one
kind of error share one entry. Errors that datagrams cause, and local errors, have separate limits,
so an attacker cannot use up the entries for local errors.
"""

from __future__ import annotations

from typing import Final

import attrs

STRANGERS: Final = 64           # entries that datagrams cause, of all kinds together
LOCALS: Final = 512             # entries with a local source
STRANGER_TEXT: Final = 256      # characters of an entry that a datagram causes


@attrs.define
class ErrorBook:
    """Contains the texts of recorded errors, by kind and source of the error. Only one thread may
    use the error book. Its memory, and the time of each call, are bounded."""

    _texts: dict[tuple[str, str], str] = attrs.field(factory=dict)
    _strangers: int = 0
    _locals: int = 0

    def stranger(self, kind: str, ip: str, text: str) -> str:
        """Return the text to record for an error that a datagram from ``ip`` caused.

        :param kind: kind of the error, one of a fixed set of names; it never contains a value from
            the wire.
        """
        known = self._texts.get((kind, ip))
        if known is not None:
            return known
        if self._strangers >= STRANGERS:
            return f"{kind}: from more addresses than are listed one by one"
        self._strangers += 1
        self._texts[(kind, ip)] = text[:STRANGER_TEXT]
        return self._texts[(kind, ip)]

    def local(self, kind: str, source: str, text: str) -> str:
        """Return the text to record for an error of this daemon's object ``source``."""
        key = (kind, f"local {source}")
        known = self._texts.get(key)
        if known is not None:
            return known
        if self._locals >= LOCALS:
            return f"{kind}: of more objects than are listed one by one"
        self._locals += 1
        self._texts[key] = text
        return text
