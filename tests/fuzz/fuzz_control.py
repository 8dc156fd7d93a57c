# SPDX-License-Identifier: Apache-2.0
"""Fuzz target: any bytes are a control message or a ControlError, and a message encodes again; a
refusal finds the correlation id, or none."""

from __future__ import annotations

import sys

import msgpack

from penstock.config.protocol import codec, control
from penstock.daemon.control_socket import correlation_of

FIELDS = sorted({
    attribute.name for kind in control.MESSAGE_TYPES.values() for attribute in kind.__attrs_attrs__
})
WORDS = [
    *(msgpack.packb(name) for name in (*control.MESSAGE_TYPES, *FIELDS)),
    *(msgpack.packb(value) for value in (
        0, 1, -1, 2**31, 2**63, 2**64 - 1, -(2**63), True, None, 1.5, float("nan"), "", b"", [], {},
    )),
    b"\x94\x01", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff",
    b"\xdb\x7f\xff\xff\xff", b"\xc1", b"\xd4\x01\x00", b"\x91" * 40, b"\x81\xa1a" * 20,
]


def target(data: bytes) -> None:
    found = correlation_of(data)
    assert 0 <= found < 2**63
    try:
        correlation, message = codec.decode(data)
    except control.ControlError as error:
        assert "\n" not in str(error)
        return
    assert found in (0, correlation)    # 0: with a longer list than a refusal looks through
    again = codec.encode(message, correlation)
    # By text: a NaN in a status does not equal itself.
    assert repr(codec.decode(again)) == repr((correlation, message))


if __name__ == "__main__":
    from _mutate import main

    sys.exit(main(target, "control", WORDS))
