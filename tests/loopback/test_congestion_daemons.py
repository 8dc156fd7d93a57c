# SPDX-License-Identifier: Apache-2.0
"""Congestion controls in Python between real daemons."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.hosts import PenstockHost
from support.patience import Patience

import penstock
from loopback.conftest import NewHost
from loopback.streams import TIMEOUT_S, connected, eventually, messages, pump
from penstock import Client
from penstock.core.errors import ChannelRefused

Port = Callable[[], int]
TERM = "term-length=256k"


def image_of(client: Client, stream_id: int) -> dict[str, Any]:
    (row,) = (row for row in client.status()["images"] if row["stream_id"] == stream_id)
    return dict(row)


def errors(host: PenstockHost, words: str) -> dict[str, int]:
    """The lines of the error log with these words, and how often each was counted."""
    stat = host.command("stat", "--once", "--json", f"--dir={host.directory}")
    lines = json.loads(stat.output())["errors"]
    return {line["text"]: line["count"] for line in lines if words in line["text"]}


def assert_answers(
    host: PenstockHost, client: Client, stream_id: int, patience: Patience
) -> None:
    """The class of the image has returned windows only.  On a busy machine an answer may be late:
    the daemon says so, and counts it as a failure; else there is no failure."""
    failures = image_of(client, stream_id)["congestion_failures"]
    told = errors(host, f"of stream {stream_id}: cc=")
    assert all("no answer within 20 ms" in text for text in told), told
    assert failures == 0 or (told and patience.is_busy), failures


def test_a_class_sets_the_window_by_channel_and_by_rule(
    new_host: NewHost, port: Port, tmp_path: Path
) -> None:
    config = tmp_path / "penstock.toml"
    config.write_text(
        '[[stream]]\nstream_id = 13\ncongestion_control = "py:support.congestion:Fixed"\n'
    )
    host = new_host(f"--config={config}")
    patience = Patience(TIMEOUT_S, exact=True)
    with penstock.connect(host.directory) as client:
        for stream_id, cc in ((12, "|cc=py:support.congestion:Fixed"), (13, "")):
            channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|{TERM}"
            with (
                client.add_subscription(f"{channel}{cc}", stream_id) as subscription,
                client.add_publication(channel, stream_id) as publication,
            ):
                connected(publication, subscription)
                sent = messages(2000)
                assert pump(publication, sent, [subscription]) == [sent]
                row = image_of(client, stream_id)
                assert row["congestion"] == "py:support.congestion:Fixed"
                assert_answers(host, client, stream_id, patience)


@pytest.mark.parametrize("name", ["Loops", "Sleeps", "Raises"])
def test_a_class_that_blocks_or_raises_holds_nobody_else(
    new_host: NewHost, port: Port, name: str
) -> None:
    """The daemon serves others, other classes are asked, the stream itself goes on, and the daemon
    ends in good order."""
    host = new_host()
    bad, good = (f"aeron:udp?endpoint=127.0.0.1:{port()}|{TERM}" for _ in range(2))
    with (
        penstock.connect(host.directory) as client,
        client.add_subscription(f"{bad}|cc=py:support.congestion:{name}", 12) as subscription,
        client.add_publication(bad, 12) as publication,
        client.add_subscription(f"{good}|cc=py:support.congestion:Fixed", 14) as other,
        client.add_publication(good, 14) as neighbour,
    ):
        connected(publication, subscription)
        connected(neighbour, other)
        eventually(lambda: image_of(client, 12)["congestion_failures"] >= 1, "it was not missed")
        sent = messages(2000)                       # more than a term: the window moves
        assert pump(publication, sent, [subscription]) == [sent]
        assert pump(neighbour, sent, [other]) == [sent]
        with client.add_publication("aeron:ipc?term-length=64k", 13) as third:
            assert third.session_id
        assert image_of(client, 14)["congestion"].endswith("Fixed")
        words = "raised ValueError('mine')" if name == "Raises" else "no answer within"
        told = errors(host, f"cc=py:support.congestion:{name}: {words}")
        assert list(told.values()) == [1]
    assert host.end() == 0


@pytest.mark.parametrize(("cc", "why"), [
    ("py:nowhere:X", "cc=py:nowhere:X: cannot be loaded: .*No module named 'nowhere'"),
    ("py:support.congestion:Missing", "no attribute 'Missing'"),
    ("py:support.strategies:Sleeps", r"the class has no method on_interval\(view, now_ns\)"),
    ("py:missing", "no entry point missing in the group penstock.congestion_control"),
    ("bbr", "no such congestion control"),
    ("static,reno:false", "static has no options"),
    ("cubic,reno:maybe", "reno:maybe is neither true nor false"),
])
def test_what_makes_no_sense_is_refused_when_the_subscription_is_added(
    client: Client, port: Port, cc: str, why: str
) -> None:
    with pytest.raises(ChannelRefused, match=why):
        client.add_subscription(f"aeron:udp?endpoint=127.0.0.1:{port()}|cc={cc}", 10)


def test_a_class_that_cannot_be_made_in_time_is_refused_and_holds_up_nobody(
    new_host: NewHost, port: Port
) -> None:
    host = new_host()
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|{TERM}"
    with (
        penstock.connect(host.directory) as client,
        penstock.connect(host.directory) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        waiting = pool.submit(
            client.add_subscription, f"{channel}|cc=py:support.congestion:NeverMade", 12
        )
        with other.add_subscription(channel, 14) as subscription:
            assert subscription.registration_id
            assert not waiting.done()
        with pytest.raises(ChannelRefused, match=r"cc=.*NeverMade: not made within 5 s"):
            waiting.result(30)
    assert host.end() == 0


def test_the_example_runs_in_a_daemon(new_host: NewHost, port: Port) -> None:
    host = new_host()
    patience = Patience(TIMEOUT_S, exact=True)
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|{TERM}"
    with (
        penstock.connect(host.directory) as client,
        client.add_subscription(f"{channel}|cc=py:delay_target:DelayTarget", 12) as subscription,
        client.add_publication(channel, 12) as publication,
    ):
        connected(publication, subscription)
        sent = messages(4000)
        assert pump(publication, sent, [subscription]) == [sent]
        assert_answers(host, client, 12, patience)
    assert host.end() == 0
