# SPDX-License-Identifier: Apache-2.0
"""Counters of streams and endpoints: type ids, keys and labels as Aeron's tools expect them."""

from __future__ import annotations

import enum
import struct
from typing import Final

from penstock.core.driver_types import Address
from penstock.daemon.conductor.actions import AllocateCounter

_STREAM_CHANNEL_BYTES: Final = 92
_CHANNEL_BYTES: Final = 108
_ADDRESS_BYTES: Final = 104


class CounterType(enum.IntEnum):
    PUBLISHER_LIMIT = 1
    SENDER_POSITION = 2
    RECEIVER_HIGH_WATER = 3
    SUBSCRIBER_POSITION = 4
    RECEIVER_POSITION = 5
    SEND_CHANNEL = 6
    RECEIVE_CHANNEL = 7
    SENDER_LIMIT = 9
    CONGESTION = 10
    PUBLISHER_POSITION = 12
    BACK_PRESSURE_EVENTS = 13
    LOCAL_ADDRESS = 14
    FLOW_CONTROL_RECEIVERS = 17
    MDC_DESTINATIONS = 18
    NAKS_RECEIVED = 19
    NAKS_SENT = 20
    MDC_REFUSED = 1018                  # penstock's own: beyond the driver's, as mdc-num-dest is 18


class ChannelStatus(enum.IntEnum):
    """Values of channel status counters."""

    ERRORED = -1
    INITIALISING = 0
    ACTIVE = 1
    CLOSING = 2


NAMES: Final[dict[CounterType, str]] = {
    CounterType.PUBLISHER_LIMIT: "pub-lmt",
    CounterType.SENDER_POSITION: "snd-pos",
    CounterType.RECEIVER_HIGH_WATER: "rcv-hwm",
    CounterType.SUBSCRIBER_POSITION: "sub-pos",
    CounterType.RECEIVER_POSITION: "rcv-pos",
    CounterType.SENDER_LIMIT: "snd-lmt",
    CounterType.BACK_PRESSURE_EVENTS: "snd-bpe",
    CounterType.FLOW_CONTROL_RECEIVERS: "fc-receivers",
    CounterType.NAKS_RECEIVED: "snd-naks-received",
    CounterType.NAKS_SENT: "rcv-naks-sent",
}


def _cut(text: str, limit: int) -> bytes:
    return text.encode("ascii", "replace")[:limit]


def stream_counter(
    type_id: CounterType, *, key_id: int, owner_id: int, session_id: int, stream_id: int,
    channel: str, value: int = 0, reference_id: int = 0, suffix: str = "", name: str = "",
) -> AllocateCounter:
    """Return the action that allocates a counter of one stream; ``key_id`` is the id of the
    publication, image or subscription."""
    cut = _cut(channel, _STREAM_CHANNEL_BYTES)
    label = f"{name or NAMES[type_id]}: {key_id} {session_id} {stream_id} {channel}{suffix}"
    return AllocateCounter(
        type_id=int(type_id),
        key=struct.pack("<qiii", key_id, session_id, stream_id, len(cut)) + cut,
        label=label,
        registration_id=key_id,
        owner_id=owner_id,
        reference_id=reference_id,
        value=value,
    )


def channel_counter(
    type_id: CounterType, *, name: str, registration_id: int, channel: str
) -> AllocateCounter:
    """Return the action that allocates a counter of a channel. The counter types of a channel are:
    channel status (6, 7), number of destinations (18), number of refused destinations (1018)."""
    cut = _cut(channel, _CHANNEL_BYTES)
    return AllocateCounter(
        type_id=int(type_id),
        key=struct.pack("<i", len(cut)) + cut,
        label=f"{name}: {channel}",
        registration_id=registration_id,
    )


def local_address_counter(
    *, name: str, registration_id: int, status_counter_id: int, address: Address
) -> AllocateCounter:
    """Return the action that allocates a counter whose label is the bound address of a channel. The
    key of the address counter contains the id of the channel's status counter. Tools that know the
    id of the status counter can therefore find the address of the channel."""
    text = _cut(str(address), _ADDRESS_BYTES)
    return AllocateCounter(
        type_id=int(CounterType.LOCAL_ADDRESS),
        key=struct.pack("<ii", status_counter_id, len(text)) + text,
        label=f"{name}: {status_counter_id} {address}",
        registration_id=registration_id,
        value=int(ChannelStatus.ACTIVE),
    )
