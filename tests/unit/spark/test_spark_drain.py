# SPDX-License-Identifier: Apache-2.0
"""When a task of the sink may say that its rows are there."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.spark_bridge._outlet import _is_drained

UDP, IPC = "aeron:udp?endpoint=localhost:24001", "aeron:ipc"


def row(channel: str, consumer: int, *taken: int, connected: bool = True) -> dict[str, Any]:
    return {
        "channel": channel, "consumer_position": consumer, "connected": connected,
        "peers": [{"position": position} for position in taken],
    }


@pytest.mark.parametrize(("found", "sent", "consumed"), [
    (row(UDP, 96), False, False),
    (row(UDP, 128, 64), True, False),
    (row(UDP, 128, 128, 64), True, False),
    (row(UDP, 128, 128, 192), True, True),
    (row(UDP, 128), True, False),                       # the receivers died, or left
    (row(UDP, 128, 128, connected=False), True, False),
    (row(IPC, 96), False, False),
    (row(IPC, 128), True, True),                        # readers are what moves it
    (row(IPC, 128, connected=False), True, False),
])
def test_a_drain_ends_when_all_is_sent_or_consumed(
    found: dict[str, Any], sent: bool, consumed: bool
) -> None:
    assert _is_drained(found, 128, "sent") is sent
    assert _is_drained(found, 128, "consumed") is consumed
