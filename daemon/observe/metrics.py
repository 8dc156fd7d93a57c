# SPDX-License-Identifier: Apache-2.0
"""Serve several pages over HTTP: metrics for Prometheus, the list of flows, the scheduler's state,
and a health page.

The import of the module ``metrics`` takes a fifth of the time that a daemon needs to start. To
start faster, the daemon imports the module ``metrics`` only when the first HTTP connection arrives.
"""

from __future__ import annotations

import json
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
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from penstock.core.admin import Cnc
from penstock.daemon.groups.status import GroupStatus
from penstock.daemon.observe.exposition import Family, labels, makers, text
from penstock.daemon.observe.flows import flows, scheduler_of
from penstock.daemon.observe.reader import StatusReader
from penstock.daemon.observe.status import (
    ClientStatus,
    DaemonStatus,
    ImageStatus,
    PublicationStatus,
    SchedulerStatus,
    SubscriptionStatus,
    to_dict,
)

_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_JSON: Final = "application/json"
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
    (36, "penstock_retransmitted_bytes", "Bytes retransmitted."),
    (12, "penstock_under_runs", "Received datagrams that begin before the position in the "
                                "receiver's last status message; they are late or "
                                "duplicates."),
    (13, "penstock_over_runs", "Datagrams above the window."),
    (14, "penstock_invalid_packets", "Malformed datagrams."),
    (15, "penstock_errors", "Errors recorded in the error log; a repeated error counts each "
                            "time."),
    (16, "penstock_short_sends", "Send system calls in which the socket did not accept all "
    "datagrams."),
    (18, "penstock_back_pressure_events",
        "Number of times that the sender stopped because a stream had reached its flow-control "
        "limit."),
    (19, "penstock_unblocked_publications",
        "Claims that a dead or stopped client never committed and that the daemon replaced by "
        "padding."),
    (23, "penstock_loss_gap_fills", "Gaps filled on unreliable streams."),
    (38, "penstock_error_frames_received", "Rejections received."),
    (39, "penstock_error_frames_sent", "Rejections sent."),
)


def text_of(status: DaemonStatus, counter: Callable[[int], int]) -> bytes:
    """Return the metrics in Prometheus' text format.  Any thread."""
    registry = CollectorRegistry()
    registry.register(_DaemonMetrics(status, counter))
    return generate_latest(registry) + text(_families(status)).encode()


def _families(status: DaemonStatus) -> tuple[Family, ...]:
    """Return the metrics that have a row for each stream."""
    return (
        *_publications(status.publications), *_turns(status.publications), *_images(status.images),
        *_subscriptions(status.subscriptions), *_skips(status.subscriptions, status.clients),
        *_groups(status.groups),
    )


def families(status: DaemonStatus) -> list[Metric | Family]:
    """Return all metrics for tools that list only the metrics' names. The values of system counters
    are 0."""
    return [*_DaemonMetrics(status, lambda counter_id: 0).collect(), *_families(status)]


class _DaemonMetrics(Collector):
    """The metrics of the whole daemon, without a row for each stream."""

    def __init__(self, status: DaemonStatus, counter: Callable[[int], int]) -> None:
        self._status = status
        self._counter = counter

    def collect(self) -> Iterator[Metric]:
        for counter_id, name, words in _SYSTEM:
            yield CounterMetricFamily(name, words, value=self._counter(counter_id))
        status = self._status
        yield GaugeMetricFamily("penstock_clients", "Clients.", value=len(status.clients))
        yield GaugeMetricFamily(
            "penstock_storage_budget_bytes", "Largest total size that all log buffers together may "
            "have.",
            value=status.storage_budget_bytes,
        )
        yield GaugeMetricFamily(
            "penstock_storage_used_bytes", "Total size of all log buffers now.",
            value=status.storage_used_bytes,
        )
        yield CounterMetricFamily(
            "penstock_malformed_messages",
            "Malformed messages that the daemon received on the control socket.",
            value=status.malformed_messages,
        )
        yield from _scheduler(status.scheduler)
        cycles = CounterMetricFamily(
            "penstock_duty_cycles", "Duty cycles of the daemon's sender and receiver threads.",
            labels=["agent"],
        )
        for agent, count in status.duty_cycles.items():
            cycles.add_metric([agent], count)
        yield cycles
        yield CounterMetricFamily(
            "penstock_groups_expired", "Consumer groups that expired.", value=status.groups_expired
        )


def _scheduler(row: SchedulerStatus) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "penstock_scheduler_pressure_ratio",
        "Pressure of the sender, 0 to 1: the degree of overload that the governor measured.",
        value=row.pressure,
    )
    signals = GaugeMetricFamily(
        "penstock_scheduler_signal_ratio",
        "Measured signals from which the governor computes the sender's pressure, each 0 to 1.",
        labels=["signal"],
    )
    for signal, value in row.signals.items():
        signals.add_metric([signal], value)
    yield signals
    ready = GaugeMetricFamily(
        "penstock_scheduler_ready_streams",
        "Number of streams that have data and wait for their turn to send, by priority band.",
        labels=["band"],
    )
    for band, count in row.ready.items():
        ready.add_metric([band], count)
    yield ready
    yield CounterMetricFamily(
        "penstock_scheduler_waits",
        "Number of times that a stream with data waited for its turn to send.",
        value=row.waits,
    )
    yield CounterMetricFamily(
        "penstock_scheduler_wait_seconds",
        "Total time for which streams with data waited for their turn to send.",
        value=row.waited_ns * _NS,
    )
    yield CounterMetricFamily(
        "penstock_scheduler_deferrals",
        "Number of times that the governor delayed data that a stream could have sent.",
        value=row.deferrals,
    )


def _queue_families(
    counter: Callable[..., Family], gauge: Callable[..., Family]
) -> tuple[Family, ...]:
    """Return the empty metrics of publications about policies, queues and credits."""
    dropped = counter(
        "penstock_publication_dropped_messages",
        "Messages that the publication's ps-policy dropped, by reason: log_full, storage (memory "
        "was missing), rate.", "policy", "reason",
    )
    dropped_bytes = counter(
        "penstock_publication_dropped_bytes",
        "Payload bytes of messages that the publication's ps-policy dropped.", "policy",
    )
    events = counter(
        "penstock_backpressure_events",
        "Number of times that publishers reached the configured depth (ps-depth).",
    )
    duration = counter(
        "penstock_backpressure_duration_seconds",
        "Total time under pressure: from the moment at which unsent data reached ps-depth until it "
        "had fallen to the low watermark.",
    )
    peak = gauge("penstock_queue_peak_bytes", "Largest value of penstock_queue_depth_bytes so far.")
    granted = counter(
        "penstock_publication_credits_granted",
        "Credits that receivers have granted to the stream, in messages.",
    )
    spent = counter(
        "penstock_publication_credits_spent",
        "Granted credits that the stream's publishers have used, in messages.",
    )
    depth = gauge(
        "penstock_queue_depth_bytes", "Bytes that publishers have written and the sender has "
                                      "not sent; on IPC, bytes that the slowest subscriber has "
                                      "not read."
    )
    return (dropped, dropped_bytes, depth, peak, events, duration, granted, spent)


def _publications(rows: list[PublicationStatus]) -> tuple[Family, ...]:
    counter, gauge = makers("publication", "channel", "stream", "session")
    position = counter(
        "penstock_publication_position_bytes", "Position up to which messages were published."
    )
    consumed = counter(
        "penstock_publication_consumed_bytes",
        "Position up to which the sender has sent data; on IPC, position up to which the "
        "slowest subscriber has read.",
    )
    limit = gauge(
        "penstock_publication_limit_bytes", "Position up to which publishers may publish now."
    )
    receivers = gauge("penstock_publication_receivers", "Live receivers.")
    blocked = counter(
        "penstock_publication_blocked_seconds",
        "Time for which publishers were blocked at their limit, for each cause.", "cause",
    )
    blocked_by = counter(
        "penstock_publication_blocked_by_seconds",
        "Time for which publishers were blocked at their limit, for each receiver or client that "
        "limited them.", "culprit",
    )
    rate = gauge(
        "penstock_publication_rate_limit_bytes",
        "Rate limit of the stream, in bytes a second; 0: no limit.",
    )
    signals = counter(
        "penstock_publication_pressure_signals", "PRESSURE frames received from receivers."
    )
    failures = counter(
        "penstock_publication_strategy_failures",
        "Number of times that a flow control in Python failed or was late, and the sender used a "
        "built-in rule instead.",
    )
    queue = _queue_families(counter, gauge)
    dropped, dropped_bytes, depth, peak, events, duration, granted, spent = queue
    for row in rows:
        of = labels({
            "publication": row.publication_id, "channel": row.channel, "stream": row.stream_id,
            "session": row.session_id,
        })
        if row.policy:
            by_policy = f'{of},policy="{row.policy}"'
            for reason, messages in (row.dropped_by or {"log_full": 0}).items():
                dropped.add(f'{by_policy},reason="{reason}"', messages)
            dropped_bytes.add(by_policy, row.dropped_bytes)
        if row.credits_granted >= 0:
            granted.add(of, row.credits_granted)
            spent.add(of, row.credits_spent)
        for culprit, held_ns in row.blocked_by_ns.items():
            blocked_by.add(f"{of},{labels({'culprit': culprit})}", held_ns * _NS)
        for cause, held_ns in row.blocked_ns.items():
            blocked.add(f'{of},cause="{cause}"', held_ns * _NS)
        rate.add(of, row.rate_bytes_per_s)
        signals.add(of, row.pressure_signals)
        failures.add(of, row.strategy_failures)
        position.add(of, row.position)
        consumed.add(of, row.consumer_position)
        limit.add(of, row.limit)
        receivers.add(of, row.receivers)
        depth.add(of, row.queue_depth_bytes)
        peak.add(of, row.queue_peak_bytes)
        events.add(of, row.pressure_events)
        duration.add(of, row.pressure_ns * _NS)
    return (
        position, consumed, limit, receivers, blocked, blocked_by, rate, signals, failures, *queue,
    )


def _turns(rows: list[PublicationStatus]) -> tuple[Family, ...]:
    counter, _ = makers("publication", "channel", "stream", "session")
    throttled = counter("penstock_publication_throttled", "Offers that were answered THROTTLED.")
    deferrals = counter(
        "penstock_publication_deferrals",
        "Number of times that the governor delayed data that the stream could have sent.",
    )
    waits = counter(
        "penstock_publication_waits",
        "Number of times that the stream had data and waited for its turn to send.",
    )
    waited = counter(
        "penstock_publication_wait_seconds",
        "Total time for which the stream had data to send and waited for its turn."
    )
    for row in rows:
        of = labels({
            "publication": row.publication_id, "channel": row.channel, "stream": row.stream_id,
            "session": row.session_id,
        })
        throttled.add(of, row.throttled)
        deferrals.add(of, row.deferrals)
        waits.add(of, row.waits)
        waited.add(of, row.waited_ns * _NS)
    return (throttled, deferrals, waits, waited)


def _images(rows: list[ImageStatus]) -> tuple[Family, ...]:
    counter, gauge = makers("image", "channel", "stream", "session", "source")
    position = counter(
        "penstock_image_position_bytes", "Position up to which data was received without a gap."
    )
    behind = gauge(
        "penstock_image_backlog_bytes",
        "Bytes that the receiver has received and the slowest subscriber has not released yet.",
    )
    gaps = gauge("penstock_image_gaps", "Gaps open now.")
    lost = counter(
        "penstock_image_lost_bytes", "Bytes of all gaps since the image began, including gaps "
                                     "that retransmits have filled."
    )
    window = gauge("penstock_image_window_bytes", "Receiver window.")
    buffer = gauge(
        "penstock_image_receive_buffer_bytes",
        "Size of the receive buffer of the image's socket. If this size is smaller than the "
        "receiver window, the kernel may drop datagrams.",
    )
    failures = counter(
        "penstock_image_congestion_failures",
        "Calls of a congestion control in Python that failed, were late, or returned no window.",
    )
    for row in rows:
        of = labels({
            "image": row.image_id, "channel": row.channel, "stream": row.stream_id,
            "session": row.session_id, "source": row.source,
        })
        position.add(of, row.position)
        behind.add(of, max(row.position - row.slowest_subscriber, 0))
        gaps.add(of, row.gaps)
        lost.add(of, row.lost_bytes)
        window.add(of, row.window_bytes)
        buffer.add(of, row.rcvbuf_bytes)
        failures.add(of, row.congestion_failures)
    return (position, behind, gaps, lost, window, buffer, failures)


def _skips(
    rows: list[SubscriptionStatus], clients: list[ClientStatus]
) -> tuple[Family, ...]:
    """Return what readers skipped. A reader is a subscription to one session; its series
    ends with it, so no counter falls."""
    counter, _ = makers(
        "subscription", "channel", "stream", "reader", "client", "name", "reason")
    messages = counter(
        "penstock_subscription_skipped_messages",
        "Messages that a reader skipped because the reader was too far behind (reason "
        "'behind': see ps-sub-policy) or because the messages were too old (reason 'retention': "
        "see ps-retention). "
        "Messages of Aeron's senders are not counted.",
    )
    skipped = counter(
        "penstock_subscription_skipped_bytes",
        "Bytes that a reader skipped, headers included, by reason: 'behind' or 'retention'.",
    )
    names = {client.client_id: client.name for client in clients}
    for row in rows:
        for skip in row.skipped:
            of = labels({
                "subscription": row.subscription_id, "channel": row.channel,
                "stream": row.stream_id, "reader": skip.reader, "client": row.client_id,
                "name": names.get(row.client_id, ""), "reason": skip.reason,
            })
            messages.add(of, skip.messages)
            skipped.add(of, skip.bytes)
    return (messages, skipped)


def _subscriptions(rows: list[SubscriptionStatus]) -> tuple[Family, ...]:
    """Return the credits of the subscriptions that grant some."""
    _, gauge = makers("subscription", "channel", "stream")
    credits = gauge(
        "penstock_subscription_credits",
        "Credits that the subscription grants to each publisher; with ps-credit-policy, to all "
        "publishers together.",
    )
    outstanding = gauge(
        "penstock_subscription_credits_outstanding",
        "Number of messages that publishers may still send, plus number of messages that they "
        "have sent and the application has not released."
    )
    leaked = gauge(
        "penstock_subscription_credits_leaked",
        "Credits whose handles were garbage-collected without a release.",
    )
    withheld = gauge(
        "penstock_subscription_withheld", "1 while the subscription withholds its credits, else 0."
    )
    for row in rows:
        if row.credits:
            of = labels({
                "subscription": row.subscription_id, "channel": row.channel,
                "stream": row.stream_id,
            })
            credits.add(of, row.credits)
            outstanding.add(of, row.credits_outstanding)
            leaked.add(of, row.credits_leaked)
            withheld.add(of, int(row.withheld))
    return (credits, outstanding, leaked, withheld)


def _groups(rows: list[GroupStatus]) -> tuple[Family, ...]:
    _, gauge = makers("group", "name", "channel", "stream")
    lag = gauge("penstock_group_lag_bytes",
        "Bytes that were received and that no reader of the group has acknowledged.")
    left = gauge(
        "penstock_group_window_left_bytes",
        "Bytes that a sender may still send before it must wait for the group. Each stream of the "
        "group has its own value; this metric is the smallest of them.",
    )
    expires = gauge(
        "penstock_group_expires_seconds",
        "Time after which the daemon ends the group, if no reader sends a request for the group "
        "in this time.",
    )
    for row in rows:
        of = labels({
            "group": row.group_id, "name": row.name, "channel": row.channel,
            "stream": row.stream_id,
        })
        lag.add(of, row.lag_bytes)
        expires.add(of, row.expires_s)
        if row.window_left_bytes >= 0:
            left.add(of, row.window_left_bytes)
    return (lag, left, expires)


def make_app(reader: StatusReader, cnc: Cnc, healthy: Callable[[], bool]) -> Starlette:
    """Return the web application that serves /metrics, /flows, /flows/ID, /scheduler and
    /healthz."""

    async def metrics(request: Request) -> Response:
        found = await reader.read(lambda status: text_of(status, cnc.counter), peers=False)
        return Response(found, media_type=_CONTENT_TYPE)

    async def all_flows(request: Request) -> Response:
        def page(status: DaemonStatus) -> bytes:
            return json.dumps(flows(to_dict(status))).encode()

        return Response(await reader.read(page, peers=False), media_type=_JSON)

    async def one_flow(request: Request) -> Response:
        publication_id: int = request.path_params["publication_id"]
        found = await reader.publication(publication_id)
        if found is None:
            why = f"no publication has the id {publication_id}; GET /flows lists all"
            return JSONResponse({"error": why}, status_code=404)
        return JSONResponse(found)

    async def scheduler(request: Request) -> Response:
        def page(status: DaemonStatus) -> bytes:
            return json.dumps(scheduler_of(to_dict(status))).encode()

        return Response(await reader.read(page, peers=False), media_type=_JSON)

    async def health(request: Request) -> Response:
        if healthy():
            return PlainTextResponse("ok\n")
        return PlainTextResponse("the data plane stands still\n", status_code=503)

    return Starlette(routes=[
        Route("/metrics", metrics), Route("/flows", all_flows),
        Route("/flows/{publication_id:int}", one_flow), Route("/scheduler", scheduler),
        Route("/healthz", health),
    ])


async def serve_metrics(app: Starlette, listener: socket.socket) -> None:
    """Serve HTTP on a listening socket until the task is cancelled. Takes the socket over."""
    config = Config()
    config.bind = [f"fd://{listener.detach()}"]
    config.graceful_timeout = 0.5
    config.loglevel = "WARNING"
    quiet = logging.getLogger("penstock.daemon.http")
    quiet.setLevel(logging.WARNING)
    config.errorlog = quiet
    config.accesslog = None
    await serve(app, config, shutdown_trigger=trio.sleep_forever)  # type: ignore[arg-type]
