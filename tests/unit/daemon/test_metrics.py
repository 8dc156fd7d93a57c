# SPDX-License-Identifier: Apache-2.0
"""Metrics: the text of a scrape, and what it costs in CPU time."""

from __future__ import annotations

import time

import attrs
import pytest
from local_port import CHANNEL, STREAM, LocalPort
from prometheus_client.parser import text_string_to_metric_families
from test_pressure_cost import REFERENCE_US, once_us, reference

from penstock.client import Client
from penstock.daemon.observe.metrics import text_of
from penstock.daemon.observe.status import (
    ClientStatus,
    DaemonStatus,
    SkipStatus,
    SubscriptionStatus,
)

STREAMS = 1000
MOST_MS = 40.0                          # prometheus_client alone needs 75
ROUNDS = 7


@pytest.fixture
def status(port: LocalPort, client: Client) -> DaemonStatus:
    """The status of a daemon with a thousand streams, each of which was held."""
    client.add_publication(CHANNEL, STREAM)
    one = port._status()
    row = attrs.evolve(
        one.publications[0], blocked_ns={"receiver_window": 10**9, "no_receiver": 5},
        blocked_by_ns={"receiver 7 at 10.0.0.2:40456": 10**9, "other": 5},
    )
    return attrs.evolve(
        one, publications=[attrs.evolve(row, publication_id=i) for i in range(STREAMS)]
    )


def test_the_text_of_a_thousand_streams_is_cheap(port: LocalPort, status: DaemonStatus) -> None:
    took = []
    for _ in range(ROUNDS):
        before = time.thread_time()
        text = text_of(status, port.cnc.counter)
        took.append((time.thread_time() - before) * 1e3)
    assert text.count(b"penstock_publication_position_bytes_total{") == STREAMS
    slower = max(1.0, min(once_us(reference) for _ in range(ROUNDS)) / REFERENCE_US)
    assert min(took) / slower <= MOST_MS


def test_prometheus_reads_every_row_with_its_labels(port: LocalPort, status: DaemonStatus) -> None:
    strange = 'aeron:udp?alias="a\\b"\nc'
    rows = [attrs.evolve(status.publications[0], channel=strange, position=2**62)]
    text = text_of(attrs.evolve(status, publications=rows), port.cnc.counter).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    (position,) = families["penstock_publication_position_bytes"].samples
    assert (position.labels["channel"], position.value) == (strange, float(2**62))
    assert families["penstock_publication_position_bytes"].type == "counter"
    assert families["penstock_queue_depth_bytes"].type == "gauge"
    causes = families["penstock_publication_blocked_seconds"].samples
    assert {row.labels["cause"]: row.value for row in causes}["receiver_window"] == 1.0
    assert families["penstock_clients"].samples[0].value == 0


def test_a_stream_shows_its_pressure_and_its_queue(port: LocalPort, status: DaemonStatus) -> None:
    rows = [attrs.evolve(
        status.publications[0], pressure_events=3, pressure_ns=1_500_000_000,
        queue_depth_bytes=64, queue_peak_bytes=4096,
    )]
    text = text_of(attrs.evolve(status, publications=rows), port.cnc.counter).decode()
    found = {
        sample.name: (sample.value, sample.labels["stream"])
        for family in text_string_to_metric_families(text) for sample in family.samples
        if "_backpressure_" in sample.name or "_queue_" in sample.name
    }
    stream = str(STREAM)
    assert found == {
        "penstock_backpressure_events_total": (3.0, stream),
        "penstock_backpressure_duration_seconds_total": (1.5, stream),
        "penstock_queue_depth_bytes": (64.0, stream),
        "penstock_queue_peak_bytes": (4096.0, stream),
    }


def test_a_policy_shows_what_it_dropped(port: LocalPort, status: DaemonStatus) -> None:
    rows = [
        attrs.evolve(
            status.publications[0], policy="drop_newest", dropped_messages=7, dropped_bytes=700,
            dropped_by={"log_full": 5, "rate": 2},
        ),
        status.publications[1],
    ]
    text = text_of(attrs.evolve(status, publications=rows), port.cnc.counter).decode()
    lines = [line for line in text.splitlines() if "_dropped_" in line and line[0] != "#"]
    assert [line.rpartition(" ")[2] for line in lines] == ["5.0", "2.0", "700.0"]
    assert ['reason="log_full"' in line for line in lines] == [True, False, False]


def test_a_reader_shows_what_it_skipped(port: LocalPort, status: DaemonStatus) -> None:
    row = SubscriptionStatus(
        subscription_id=3, client_id=1, channel="aeron:ipc", stream_id=7, images=1, credits=0,
        credit_policy="", withheld=False, credits_granted=0, credits_returned=0,
        credits_outstanding=0, credits_leaked=0,
        skipped=[
            SkipStatus(reader=5, messages=11, bytes=1100, reason="behind"),
            SkipStatus(reader=5, messages=3, bytes=300, reason="retention"),
        ],
    )
    clients = [ClientStatus(
        client_id=1, name="slow", pid=10, uid=0, state="active", publications=0, subscriptions=1,
        counters=0,
    )]
    changed = attrs.evolve(status, subscriptions=[row], clients=clients)
    text = text_of(changed, port.cnc.counter).decode()
    lines = [line for line in text.splitlines() if "_skipped_" in line and line[0] != "#"]
    assert [line.rpartition(" ")[2] for line in lines] == ["11.0", "3.0", "1100.0", "300.0"]
    assert ['reason="retention"' in line for line in lines] == [False, True, False, True]
    assert all('client="1"' in line and 'name="slow"' in line for line in lines)
    assert all('subscription="3"' in line and 'reader="5"' in line for line in lines)
