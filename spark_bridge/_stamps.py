# SPDX-License-Identifier: Apache-2.0
"""Refuse channels whose time stamps overwrite bytes that the source or the sink needs.

With the channel parameters for time stamps, a daemon writes 8 bytes into each message that is long
enough: over the reserved value, or at an offset in the payload. A marker of a sink is recognised by
its reserved value, and its fields end at ``HEAD_BYTES``. An Arrow batch has no unused bytes.
"""

from __future__ import annotations

from typing import Final

from penstock.config import uri
from penstock.core.errors import InvalidArgument
from penstock.spark_bridge.markers import HEAD_BYTES

_RECEIVER: Final = ("media-rcv-ts-offset", "channel-rcv-ts-offset")
_SENDER: Final = "channel-snd-ts-offset"


def check_stamps(channel: str, *, committed: str = "", arrow: bool, sends: bool = False) -> None:
    """Check the offsets of a channel's time stamps.

    :param committed: the option with which the source or the sink needs intact markers; empty: it
        needs none.
    :param arrow: whether the messages are Arrow data.
    :param sends: check only the parameter of the publisher's daemon.
    :raises InvalidArgument: a time stamp would overwrite a marker or Arrow data.
    """
    found = uri.parse(channel)
    offsets = {
        "media-rcv-ts-offset": found.media_rcv_ts_offset,
        "channel-rcv-ts-offset": found.channel_rcv_ts_offset,
        _SENDER: found.channel_snd_ts_offset,
    }
    for name, offset in offsets.items():
        if offset is None or (sends and name in _RECEIVER):
            continue
        reserved = offset == uri.RESERVED_VALUE_OFFSET
        stated = f"{name}={'reserved' if reserved else offset}"
        if arrow and not reserved:
            raise InvalidArgument(
                f"option payload=arrow: {stated} of {channel} overwrites Arrow data: set {name} to "
                "reserved, or leave it out"
            )
        if committed and offset < HEAD_BYTES:
            remedy = "leave it out" if arrow else (
                f"set it to an offset of at least {HEAD_BYTES} in the payload, or leave it out"
            )
            raise InvalidArgument(
                f"option {committed}: {stated} of {channel} overwrites the markers of a sink: "
                f"{remedy}"
            )
