# SPDX-License-Identifier: Apache-2.0
"""Streams between penstock and Aeron's C driver, whose clients are Aeron's in Java."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.hosts import penstock_host

from interop import aeron_c
from interop.test_streams import BOTH_WAYS, Pair, transfer

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("aeron_built", "aeron_c_built")]


@pytest.mark.parametrize("way", BOTH_WAYS)
@pytest.mark.parametrize("impair", ["loss=0%", "loss=3%,seed=5"])
def test_messages_of_every_size_over_many_terms(
    directories: Callable[[str], Path], ports: Callable[[], int], way: str, impair: str
) -> None:
    with (
        aeron_c.aeron_c_host(directories("aeron")) as theirs,
        penstock_host(directories("penstock"), "--impair", impair) as ours,
    ):
        pair = Pair(way, ours, theirs)
        channel = f"aeron:udp?endpoint=127.0.0.1:{ports()}"
        transfer(pair.sender, pair.receiver, channel, sizes="0-8192", count=400)
