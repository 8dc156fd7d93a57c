# SPDX-License-Identifier: Apache-2.0
"""Choose the text of an error in the distinct error log.

The log keeps one entry for each text permanently, so an attacker who can vary a text could fill the
log. An error is therefore recorded by kind and source: the first text represents all later ones of
the same kind and source. The number of sources of a kind is bounded. If there are more sources, one
entry of the kind represents them. Errors caused by datagrams have a separate bound, so that they
never use the room of local errors.
"""

from __future__ import annotations

from typing import Final

import attrs

STRANGERS: Final = 64           # entries that datagrams cause, of all kinds together
LOCALS: Final = 512             # entries with a local source
STRANGER_TEXT: Final = 256      # characters of an entry that a datagram causes


@attrs.define
class ErrorBook:
    """One owner thread; memory and time are bounded."""

    _texts: dict[tuple[str, str], str] = attrs.field(factory=dict)
    _strangers: int = 0
    _locals: int = 0

    def stranger(self, kind: str, ip: str, text: str) -> str:
        """Return the entry for an error that a datagram from ``ip`` caused.

        :param kind: one of a fixed set of names, never a value from the wire.
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
        """Return the entry for an error of this daemon's object ``source``."""
        key = (kind, f"local {source}")
        known = self._texts.get(key)
        if known is not None:
            return known
        if self._locals >= LOCALS:
            return f"{kind}: of more objects than are listed one by one"
        self._locals += 1
        self._texts[key] = text
        return text
