# SPDX-License-Identifier: Apache-2.0
"""Metrics for Prometheus, and a health page, over HTTP.

Importing this module costs a fifth of a daemon's start, so
:mod:`penstock.daemon.observe.metrics_socket` loads it when somebody connects.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from typing import Final

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from penstock.core.admin import Cnc
from penstock.daemon.groups.status import GroupStatus
from penstock.daemon.observe.status import DaemonStatus, ImageStatus, PublicationStatus

_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_NS: Final = 1e-9

# System counters: id, metric, help.
_SYSTEM: Final = (
    (0, "penstock_sent_bytes", "Bytes of datagrams sent."),
    (1, "penstock_received_bytes", "Bytes of datagrams received."),
    (5, "penstock_naks_sent", "Requests for retransmission sent."),
    (6, "penstock_naks_received", "Requests for retransmission received."),
    (7, "penstock_status_messages_sent", "Status messages sent."),
    (8, "penstock_status_messages_received", "Status messages received."),
    (9, "penstock_heartbeats_sent", "Heartbeats sent."),
    (10, "penstock_heartbeats_received", "Heartbeats received."),
    (11, "penstock_retransmits_sent", "Retransmits sent."),
    (36, "penstock_retransmitted_bytes", "Bytes sent again."),
    (12, "penstock_under_runs", "Datagrams below the window: duplicates and late ones."),
    (13, "penstock_over_runs", "Datagrams above the window."),
    (14, "penstock_invalid_packets", "Malformed datagrams."),
    (15, "penstock_errors", "Entries of the error log, repeats included."),
    (16, "penstock_short_sends", "Sends that the socket did not take whole."),
    (18, "penstock_back_pressure_events", "Times a sender met its limit."),
    (19, "penstock_unblocked_publications", "Dead or late claims padded over."),
    (23, "penstock_loss_gap_fills", "Gaps filled on unreliable streams."),
    (38, "penstock_error_frames_received", "Rejections received."),
    (39, "penstock_error_frames_sent", "Rejections sent."),
)


class DaemonCollector(Collector):
    """Reads counters and status at each scrape; keeps nothing."""

    def __init__(self, cnc: Cnc, status: Callable[[], DaemonStatus]) -> None:
        self._cnc = cnc
        self._status = status

    def collect(self) -> Iterator[Metric]:
        for counter_id, name, words in _SYSTEM:
            yield CounterMetricFamily(name, words, value=self._cnc.counter(counter_id))
        status = self._status()
        yield GaugeMetricFamily("penstock_clients", "Clients.", value=len(status.clients))
        yield GaugeMetricFamily(
            "penstock_storage_budget_bytes", "Memory that log buffers may take.",
            value=status.storage_budget_bytes,
        )
        yield GaugeMetricFamily(
            "penstock_storage_used_bytes", "Memory that log buffers have taken.",
            value=status.storage_used_bytes,
        )
        yield CounterMetricFamily(
            "penstock_malformed_messages", "Control messages that were not understood.",
            value=status.malformed_messages,
        )
        cycles = CounterMetricFamily(
            "penstock_duty_cycles", "Duty cycles of the data plane's agents.", labels=["agent"]
        )
        for agent, count in status.duty_cycles.items():
            cycles.add_metric([agent], count)
        yield cycles
        yield from _publications(status.publications)
        yield from _images(status.images)
        yield CounterMetricFamily(
            "penstock_groups_expired", "Consumer groups that expired.", value=status.groups_expired
        )
        yield from _groups(status.groups)


def _publications(rows: list[PublicationStatus]) -> Iterator[Metric]:
    labels = ["publication", "channel", "stream", "session"]
    position = CounterMetricFamily(
        "penstock_publication_position_bytes", "Published so far.", labels=labels
    )
    consumed = CounterMetricFamily(
        "penstock_publication_consumed_bytes", "Sent, or read by the slowest local subscriber.",
        labels=labels,
    )
    limit = GaugeMetricFamily(
        "penstock_publication_limit_bytes", "Position up to which publishers may go.",
        labels=labels,
    )
    receivers = GaugeMetricFamily(
        "penstock_publication_receivers", "Live receivers.", labels=labels
    )
    blocked = CounterMetricFamily(
        "penstock_publication_blocked_seconds", "Time held, by cause.", labels=[*labels, "cause"]
    )
    blocked_by = CounterMetricFamily(
        "penstock_publication_blocked_by_seconds", "Time held, by culprit.",
        labels=[*labels, "culprit"],
    )
    rate = GaugeMetricFamily(
        "penstock_publication_rate_limit_bytes", "Bytes a second it is held to; 0: no limit.",
        labels=labels,
    )
    signals = CounterMetricFamily(
        "penstock_publication_pressure_signals", "PRESSURE frames heard.", labels=labels
    )
    failures = CounterMetricFamily(
        "penstock_publication_strategy_failures",
        "Answers of a strategy in Python that the built-in rule replaced.", labels=labels,
    )
    for row in rows:
        values = [
            str(row.publication_id), row.channel, str(row.stream_id), str(row.session_id)
        ]
        for culprit, held_ns in row.blocked_by_ns.items():
            blocked_by.add_metric([*values, culprit], held_ns * _NS)
        rate.add_metric(values, row.rate_bytes_per_s)
        signals.add_metric(values, row.pressure_signals)
        failures.add_metric(values, row.strategy_failures)
        position.add_metric(values, row.position)
        consumed.add_metric(values, row.consumer_position)
        limit.add_metric(values, row.limit)
        receivers.add_metric(values, row.receivers)
        for cause, held_ns in row.blocked_ns.items():
            blocked.add_metric([*values, cause], held_ns * _NS)
    yield from (
        position, consumed, limit, receivers, blocked, blocked_by, rate, signals, failures,
    )


def _images(rows: list[ImageStatus]) -> Iterator[Metric]:
    labels = ["image", "channel", "stream", "session", "source"]
    position = CounterMetricFamily(
        "penstock_image_position_bytes", "Received without a gap so far.", labels=labels
    )
    behind = GaugeMetricFamily(
        "penstock_image_backlog_bytes", "Received and not yet released by the slowest subscriber.",
        labels=labels,
    )
    gaps = GaugeMetricFamily("penstock_image_gaps", "Gaps open now.", labels=labels)
    lost = CounterMetricFamily(
        "penstock_image_lost_bytes", "Bytes that were missing at first.", labels=labels
    )
    window = GaugeMetricFamily(
        "penstock_image_window_bytes", "Receiver window.", labels=labels
    )
    buffer = GaugeMetricFamily(
        "penstock_image_receive_buffer_bytes",
        "Receive buffer of its socket; less than the window invites loss.", labels=labels,
    )
    failures = CounterMetricFamily(
        "penstock_image_congestion_failures",
        "Calls of a congestion control in Python that raised, were late, or answered no window.",
        labels=labels,
    )
    for row in rows:
        values = [
            str(row.image_id), row.channel, str(row.stream_id), str(row.session_id), row.source
        ]
        position.add_metric(values, row.position)
        behind.add_metric(values, max(row.position - row.slowest_subscriber, 0))
        gaps.add_metric(values, row.gaps)
        lost.add_metric(values, row.lost_bytes)
        window.add_metric(values, row.window_bytes)
        buffer.add_metric(values, row.rcvbuf_bytes)
        failures.add_metric(values, row.congestion_failures)
    yield from (position, behind, gaps, lost, window, buffer, failures)


def _groups(rows: list[GroupStatus]) -> Iterator[Metric]:
    labels = ["group", "name", "channel", "stream"]
    lag = GaugeMetricFamily(
        "penstock_group_lag_bytes", "Received and not yet acknowledged.", labels=labels
    )
    credit = GaugeMetricFamily(
        "penstock_group_credit_bytes",
        "What senders may still send before the group holds them: the least of its streams.",
        labels=labels,
    )
    expires = GaugeMetricFamily(
        "penstock_group_expires_seconds", "Time to its expiry, unless it is heard of.",
        labels=labels,
    )
    for row in rows:
        values = [str(row.group_id), row.name, row.channel, str(row.stream_id)]
        lag.add_metric(values, row.lag_bytes)
        expires.add_metric(values, row.expires_s)
        if row.credit_bytes >= 0:
            credit.add_metric(values, row.credit_bytes)
    yield from (lag, credit, expires)


def make_app(collector: DaemonCollector, healthy: Callable[[], bool]) -> Starlette:
    """/metrics and /healthz."""
    registry = CollectorRegistry()
    registry.register(collector)

    async def metrics(request: Request) -> Response:
        return Response(generate_latest(registry), media_type=_CONTENT_TYPE)

    async def health(request: Request) -> Response:
        if healthy():
            return PlainTextResponse("ok\n")
        return PlainTextResponse("the data plane stands still\n", status_code=503)

    return Starlette(routes=[Route("/metrics", metrics), Route("/healthz", health)])


async def serve_metrics(app: Starlette, listener: socket.socket) -> None:
    """Serve on a listening socket, which is taken over, until cancelled."""
    config = Config()
    config.bind = [f"fd://{listener.detach()}"]
    config.graceful_timeout = 0.5
    config.loglevel = "WARNING"
    quiet = logging.getLogger("penstock.daemon.http")
    quiet.setLevel(logging.WARNING)
    config.errorlog = quiet
    config.accesslog = None
    await serve(app, config, shutdown_trigger=trio.sleep_forever)  # type: ignore[arg-type]
