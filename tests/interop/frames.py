# SPDX-License-Identifier: Apache-2.0
"""Reads Aeron's frames out of datagrams, for people: what docs/capture.md is made of.

Written from the frame layouts, apart from the C core, so that it can disagree with it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import attrs

PAD, DATA, NAK, SM, ERR, SETUP, RTTM = range(7)
NAMES: Final = {PAD: "PAD", DATA: "DATA", NAK: "NAK", SM: "SM", ERR: "ERR", SETUP: "SETUP",
                RTTM: "RTTM"}  # fmt: skip
BASE_LENGTHS: Final = {NAK: 28, SM: 36, ERR: 40, SETUP: 40, RTTM: 40}

_TRAILER: Final = struct.Struct("<IHH")
_TRAILER_MAGIC: Final = b"PSTK"
_TLV_NAMES: Final = {
    1: "capabilities",
    2: "daemon",
    3: "ordinal",
    4: "credit limit",
    5: "released ordinal",
    6: "fill",
    7: "reason",
    9: "strategy",
    17: "congestion",
}


@attrs.frozen(kw_only=True)
class Frame:
    """One frame.  ``what`` is its name with its state, ``facts`` its fields in words."""

    type: int
    what: str
    facts: str
    term_id: int = 0
    term_offset: int = 0
    length: int = 0


def decode(datagram: bytes) -> list[Frame]:
    """The frames of a datagram."""
    (kind,) = struct.unpack_from("<H", datagram, 6)
    return list(_data(datagram)) if kind in (PAD, DATA) else [_control(datagram, kind)]


def _data(datagram: bytes) -> Iterator[Frame]:
    offset = 0
    while offset < len(datagram):
        length, _version, flags, kind, term_offset, _session, _stream, term_id, _reserved = (
            struct.unpack_from("<iBBHiiiiq", datagram, offset)
        )
        at = f"term {term_id} offset {term_offset}"
        if length == 0:
            end = ", end of stream" if flags & 0x20 else ""
            yield Frame(
                type=DATA, what=f"heartbeat{end}", facts=f"{at}; flags {flags:#04x}",
                term_id=term_id, term_offset=term_offset,
            )  # fmt: skip
            return
        part = {0xC0: "", 0x80: ", first fragment", 0x00: ", middle fragment",
                0x40: ", last fragment"}.get(flags & 0xC0, "")  # fmt: skip
        yield Frame(
            type=kind,
            what=NAMES[kind] + part,
            facts=f"{at}; {length - 32} bytes of payload; flags {flags:#04x}",
            term_id=term_id,
            term_offset=term_offset,
            length=length,
        )
        offset += (length + 31) & ~31


def _control(datagram: bytes, kind: int) -> Frame:
    (length,) = struct.unpack_from("<i", datagram, 0)
    flags = datagram[5]
    what, facts = NAMES.get(kind, f"type {kind:#06x}"), ""
    if kind == SETUP:
        offset, _, _, initial, active, term, mtu, ttl = struct.unpack_from("<8i", datagram, 8)
        facts = (
            f"initial term {initial}, active term {active} offset {offset}; term length {term}, "
            f"MTU {mtu}, TTL {ttl}; flags {flags:#04x}"
        )
    elif kind == SM:
        term_id, offset, window, receiver = struct.unpack_from("<iiiq", datagram, 16)
        what += ", requests SETUP" if flags & 0x80 else ", end of stream" if flags & 0x40 else ""
        facts = (
            f"consumed to term {term_id} offset {offset}; window {window}; "
            f"receiver {receiver & (2**64 - 1):#018x}; flags {flags:#04x}"
        )
    elif kind == NAK:
        term_id, offset, missing = struct.unpack_from("<iii", datagram, 16)
        facts = f"missing {missing} bytes from term {term_id} offset {offset}"
    elif kind == RTTM:
        what += ", request" if flags & 0x80 else ", reply"
        facts = f"time stamp {struct.unpack_from('<q', datagram, 16)[0]}"
    trailer = _trailer(datagram[length:])
    return Frame(type=kind, what=what, facts=facts + (f"; {trailer}" if trailer else ""))


def _trailer(tail: bytes) -> str:
    if not tail:
        return ""
    if len(tail) < _TRAILER.size or tail[:4] != _TRAILER_MAGIC:
        return f"{len(tail)} bytes behind the frame"
    _magic, version, length = _TRAILER.unpack_from(tail)
    words, offset = [], _TRAILER.size
    while offset + 4 <= length:
        kind, size = struct.unpack_from("<HH", tail, offset)
        words.append(_TLV_NAMES.get(kind, f"type {kind}"))
        offset += 4 + size
    return f"penstock trailer version {version}, {length} bytes: {', '.join(words)}"
