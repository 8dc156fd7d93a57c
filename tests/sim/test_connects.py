# SPDX-License-Identifier: Apache-2.0
"""1 000 streams begin at full speed on a clean link: storage is there before the data."""

from __future__ import annotations

import pytest

from penstock.sim import files
from penstock.sim.world import run

STREAMS = {"64k": 60, "1m": 60, "16m": 15}
#: In a term of 64 KiB the padding behind longer messages passes the window, and is requested.
LARGEST = {"64k": 900, "1m": 30000, "16m": 30000}


def scenario(control: str, term: str, window: int, streams: int) -> str:
    hosts = '[[host]]\nname = "a"\n[[host]]\nname = "b"\n'
    hosts += f"window = {window}\nrcvbuf = 33554432\nconductor_ms = 2\n[network]\ndelay_ms = 1\n"
    return hosts + "".join(
        f"""
[[publisher]]
host = "a"
channel = "aeron:udp?endpoint={{b}}:{40456 + n % 5}|term-length={term}{control}"
stream = {1000 + n}
count = 60
size_low = 100
size_high = {LARGEST[term]}
start_s = {1 + n * 0.02:.2f}
[[subscriber]]
host = "b"
channel = "aeron:udp?endpoint={{b}}:{40456 + n % 5}"
stream = {1000 + n}
"""
        for n in range(streams)
    )


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("term", ["64k", "1m", "16m"])
@pytest.mark.parametrize("window", [16384, 131072, 8388608])
def test_1_200_streams_begin_without_a_nak(term: str, window: int, seed: int) -> None:
    text = scenario("", term, window, STREAMS[term])
    report = run(files.parse(text, "connects"), seed=seed)
    assert report.violations == ()
    assert (report.wire.naks, report.wire.resent) == (0, 0)


@pytest.mark.parametrize("term", ["64k", "1m", "16m"])
def test_streams_that_keep_to_no_window_begin_without_a_nak(term: str) -> None:
    """NAK-strength control: the sender goes half a term ahead, once there is storage for it."""
    report = run(files.parse(scenario("|fc=nak", term, 131072, 8), "connects"), seed=1)
    assert report.violations == ()
    assert (report.wire.naks, report.wire.resent) == (0, 0)
