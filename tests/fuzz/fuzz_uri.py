# SPDX-License-Identifier: Apache-2.0
"""Fuzz target: any text is a channel or a ChannelError, and a channel reads as it was written."""

from __future__ import annotations

import contextlib
import sys

from penstock.config import uri

WORDS = [
    *(f"{key}=".encode() for key in (*uri.PARAMETERS, *uri.REFUSED)),
    *(word.encode() for word in (
        "aeron:udp?", "aeron:ipc", "aeron-spy:", "|", "=", ":", ",", "/", "%", "[", "]", "{", "}",
        "tag:", "true", "false", "reserved", "dynamic", "manual", "response", "infer", "64k", "1g",
        "5s", "100ms", "1us", "-1", "0", "2147483648", "9223372036854775808", "127.0.0.1:40456",
        "239.20.0.1:40456", "[::1]:0", "[fe80::1%eth0]:1", "10.0.0.0/8", "{eth0}:1", "max,rrwm:4",
        "min,g:/2,t:1s", "tagged,g:5/1", "²", "\u0661", "\u2028", "\x00",
    )),
]


def target(data: bytes) -> None:
    text = data.decode("utf-8", errors="surrogateescape")
    try:
        channel = uri.parse(text)
    except uri.ChannelError as error:
        assert "\n" not in str(error)
        return
    assert uri.parse(str(channel)) == channel
    with contextlib.suppress(uri.ChannelError):
        uri.check_publication(channel)
    with contextlib.suppress(uri.ChannelError):
        uri.check_subscription(channel)
    for subscription in (True, False):
        with contextlib.suppress(uri.ChannelError):
            uri.check_destination(channel, subscription=subscription)


if __name__ == "__main__":
    from _mutate import main

    sys.exit(main(target, "uri", WORDS))
