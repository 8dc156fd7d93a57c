# SPDX-License-Identifier: Apache-2.0
"""Make the sockets' receive buffers as large as the receiver window requires.

A sender may have a whole receiver window of data in flight. While the receiver thread does not run,
all this data may arrive at the socket, so the socket's buffer must have room for the data. The
kernel counts more memory for a datagram than its length: 2304 bytes for a datagram of 1408 bytes,
and twice the length for a datagram of 8192 bytes. The kernel doubles the requested size of a
receive buffer. If the daemon requested only the size of the window, a window of small datagrams
would not fit into the buffer. The daemon requests twice the size of the window, so that the buffer
also has room for a window of 512-byte datagrams. The kernel allocates no memory for the unused part
of a receive buffer.
"""

from __future__ import annotations

from typing import Final

from penstock.daemon.conductor.actions import FitRecvBuffer
from penstock.daemon.conductor.saga import Refused, Saga
from penstock.daemon.conductor.state.model import Destination, RecvEndpoint
from penstock.daemon.conductor.state.state import State

LARGEST_BYTES: Final = 1 << 30          # PS_RECV_BUFFER_MAX


def wanted_bytes(window: int) -> int:
    """Return the size of the receive buffer for a receiver window, in bytes as SO_RCVBUF counts
    them.

    :param window: the receiver window in bytes, 0 or more.
    """
    return min(2 * window, LARGEST_BYTES)


def is_short(buffer: int, window: int) -> bool:
    """Return whether a receive buffer is too small for a whole window of large datagrams."""
    return buffer < min(window, LARGEST_BYTES)


def is_given(endpoint: RecvEndpoint) -> bool:
    """Return whether a channel of the endpoint states ``so-rcvbuf``. If a channel states
    ``so-rcvbuf``, the daemon does not enlarge the endpoint's receive buffers for the receiver
    window."""
    return bool(endpoint.stating_buffer)


def follow_window(state: State, endpoint: RecvEndpoint, window: int) -> Saga[None]:
    """Enlarge the receive buffers of an endpoint for an image with the receiver window ``window``,
    as far as the kernel allows. If the kernel does not allow buffers that are large enough, report
    one error that names the endpoint."""
    endpoint.window = max(endpoint.window, window)
    given = is_given(endpoint)
    if not given:
        for destination in list(endpoint.destinations.values()):
            yield from fit(endpoint, destination)
    buffer = endpoint.buffer_bytes
    if not is_short(buffer, endpoint.window) or endpoint.window_notified >= endpoint.window:
        return
    endpoint.window_notified = endpoint.window
    wanted = wanted_bytes(endpoint.window)
    advice = (
        f"raise so-rcvbuf to {wanted}, or leave it out" if given else
        f"run: sysctl -w net.core.rmem_max={wanted}, or give the daemon CAP_NET_ADMIN"
    )
    state.event(
        "receive_buffer_short", endpoint_id=endpoint.id, channel=endpoint.channel,
        window_bytes=endpoint.window, wanted_bytes=wanted, buffer_bytes=buffer,
    )
    state.error(
        "receive_buffer", endpoint.channel,
        f"{endpoint.channel}: the receiver window of {endpoint.window} bytes needs a receive "
        f"buffer of {wanted}, and the socket has {buffer}: the kernel drops the bytes beyond it, "
        f"which are retransmitted: {advice}",
    )


def fit(endpoint: RecvEndpoint, destination: Destination) -> Saga[None]:
    """Enlarge the receive buffer of one socket for the largest receiver window that the endpoint
    has had."""
    wanted = wanted_bytes(endpoint.window)
    if wanted == 0 or endpoint.buffer_sizes.get(destination.id, 0) >= wanted:
        return
    try:
        endpoint.buffer_sizes[destination.id] = yield FitRecvBuffer(
            endpoint_id=endpoint.id, destination_id=destination.id, size_bytes=wanted
        )
    except Refused:
        if destination.id in endpoint.destinations:
            raise                       # else the destination was removed meanwhile
