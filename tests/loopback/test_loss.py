# SPDX-License-Identifier: Apache-2.0
"""Loss as users meet it: a stream with reliable=false tells what is missing, a reliable one under
cubic is complete, and operators read where bytes were lost."""

from __future__ import annotations

import json
from collections.abc import Callable

from support.hosts import PenstockHost

import penstock
from loopback.streams import TIMEOUT_S, connected, eventually
from penstock.client import Gap

Port = Callable[[], int]
NewHost = Callable[..., PenstockHost]
STREAM = 1001
MESSAGES = 400
PAYLOAD = 600
_FRAME = 640    # with its header, aligned


def test_an_unreliable_stream_tells_its_gaps(new_host: NewHost, port: Port) -> None:
    host = new_host("--impair", "recv-loss=10%,seed=5")
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=1m"
    seen: list[tuple[int, int]] = []
    gaps: list[Gap] = []

    def on_gap(gap: Gap) -> None:
        assert gap.to_position is not None
        gaps.append(gap)
        seen.append((gap.from_position, gap.to_position))

    def on_message(_message: memoryview, header: penstock.Header) -> None:
        seen.append((header.position - _FRAME, header.position))

    with (
        penstock.connect(host.directory) as client,
        client.add_subscription(f"{channel}|reliable=false", STREAM, on_gap=on_gap) as subscription,
        client.add_publication(channel, STREAM) as publication,
    ):
        connected(publication, subscription)
        for number in range(MESSAGES):
            publication.send(number.to_bytes(4, "little") * (PAYLOAD // 4), timeout_s=TIMEOUT_S)
        end = publication.position

        def poll() -> bool:
            subscription.poll(on_message)
            return bool(seen) and seen[-1][1] == end

        eventually(poll, "the end of the stream")
    assert gaps, "nothing was lost: the test proves nothing"
    assert all(gap.messages is None for gap in gaps)    # nobody can know
    at = seen[0][0]
    for begin, stop in seen:                            # messages and gaps cover the stream once
        assert begin == at
        at = stop
    messages = len(seen) - len(gaps)
    missing = sum(stop - begin for begin, stop in ((g.from_position, g.to_position) for g in gaps)
                  if stop is not None)
    assert messages * _FRAME + missing == end - seen[0][0]
    assert messages < MESSAGES


def test_cubic_is_complete_and_loss_is_reported(new_host: NewHost, port: Port) -> None:
    host = new_host("--impair", "recv-loss=5%,seed=6")
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=1m"
    got: list[int] = []
    with (
        penstock.connect(host.directory) as client,
        client.add_subscription(f"{channel}|cc=cubic", STREAM) as subscription,
        client.add_publication(channel, STREAM) as publication,
    ):
        connected(publication, subscription)

        def poll() -> bool:
            subscription.poll(lambda message, _: got.append(int.from_bytes(message[:4], "little")))
            return len(got) == MESSAGES

        for number in range(MESSAGES):
            publication.send(number.to_bytes(4, "little") * (PAYLOAD // 4), timeout_s=TIMEOUT_S)
            poll()
        eventually(poll, "all messages")
        assert got == list(range(MESSAGES))
        report = json.loads(_loss(host))
    streams = {row["session_id"]: row for row in report["live"]}
    row = streams[publication.session_id]
    assert row["naks_sent"] > 0
    assert row["congestion_window"] >= 2 * 1408
    assert any(entry["session_id"] == publication.session_id and entry["bytes"] > 0
               for entry in report["history"])


def _loss(host: PenstockHost) -> str:
    with host.command("loss", "--json", f"--dir={host.directory}") as command:
        return command.output()
