# SPDX-License-Identifier: Apache-2.0
"""Fuzz target: any bytes are the registry of a dead daemon or JournalDamaged, and what was read is
written and reads the same.  Behind a first byte ``W`` stand records without the journal's head;
``R`` has their checksums set right too, so that what is in them is reached."""

from __future__ import annotations

import struct
import sys
import zlib

import msgpack

from penstock.daemon.restart import journal

HEAD = b"PENSTOCK-REGISTRY %d\n" % journal.FORMAT
CLASSES = (
    "Address", "Destination", "ImageParams", "LogFile", "Name", "PublicationParams",
    "RecvDestinationParams", "RecvEndpointParams", "SendEndpointParams", "SocketParams",
)
WORDS = [
    HEAD, b"R", b"W", *(msgpack.packb(name) for name in CLASSES),
    *(msgpack.packb(value) for value in (
        0, -1, 2**31, 2**64 - 1, -(2**63), True, None, 1.5, "", b"", [], {}, [1], {"a": 1}, {1: 2},
        msgpack.ExtType(1, msgpack.packb([1, 2])), msgpack.ExtType(2, msgpack.packb(["Address"])),
        msgpack.ExtType(2, msgpack.packb(["Address", {"ip": "10.0.0.1", "port": 1}])),
        msgpack.ExtType(2, msgpack.packb([[], {}])), msgpack.ExtType(7, b""),
        msgpack.Timestamp(0),
    )),
    b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc9\xff\xff\xff\xff\x02", b"\x91" * 600,
    struct.pack("<III", 1, zlib.crc32(b"\1\0\0\0"), zlib.crc32(b"\xc0")) + b"\xc0",
]


def repaired(data: bytes) -> bytes:
    """The same records with the sums that their bytes have."""
    out = bytearray()
    at = 0
    while len(data) - at >= 12:
        length = min(struct.unpack_from("<I", data, at)[0], len(data) - at - 12)
        body = data[at + 12 : at + 12 + length]
        word = struct.pack("<I", length)
        out += word + struct.pack("<II", zlib.crc32(word), zlib.crc32(body)) + body
        at += 12 + length
    return bytes(out)


def target(data: bytes) -> None:
    content = data
    if data[:1] == b"R":
        content = HEAD + repaired(data[1:])
    elif data[:1] == b"W":
        content = HEAD + data[1:]
    try:
        found = journal.decode(content)
    except journal.JournalDamaged as error:
        assert "\n" not in str(error)
        return
    try:
        again = b"".join(journal.encode(kind, key, row) for (kind, key), row in found.items())
    except (TypeError, ValueError, OverflowError):
        return      # a value that no conductor registers, such as a time stamp
    # By text: a NaN does not equal itself.
    assert repr(journal.decode(HEAD + again)) == repr(found)


if __name__ == "__main__":
    from _mutate import main

    sys.exit(main(target, "journal", WORDS))
