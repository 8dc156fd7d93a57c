# SPDX-License-Identifier: Apache-2.0
"""Compute the parameters of a new image: the parameters of its log, and the parameters that the
receiver needs."""

from __future__ import annotations

import attrs

from penstock.core.driver_events import Setup
from penstock.core.driver_types import NO_COUNTER, CongestionControl, ImageParams, LogParams
from penstock.daemon.conductor.channel.credits import room_for
from penstock.daemon.conductor.channel.plans import CONGESTION_CONTROL, SubscriptionPlan
from penstock.daemon.conductor.state.model import LogFile, RecvEndpoint, Subscription
from penstock.daemon.conductor.state.state import State


def granting(params: ImageParams, subscriptions: list[Subscription]) -> ImageParams:
    """Add the credits of a new image to its parameters. Until a reader joins, the image grants as
    many credits as the subscription that grants the fewest credits."""
    granting = [s for s in subscriptions if s.plan.credits > 0]
    if not granting:
        return params
    least = min((s.plan for s in granting), key=lambda p: max(p.credits, p.credit_burst))
    return attrs.evolve(
        params, credits=least.credits, credit_burst=least.credit_burst,
        # A pool has no credit for an image before its reader joins.
        frozen=any(s.withheld or s.plan.credit_policy for s in granting),
    )


def receiver_window_of(subscriptions: list[Subscription], term_length: int, mtu: int) -> int:
    """Return the receiver window of a new image: the largest candidate, but at most half a term. If
    consumer groups read the image, their windows are candidates. Otherwise the window of the first
    subscription is a candidate. A window that a subscription needs for its credits is always a
    candidate."""
    plans = [s.plan for s in subscriptions if s.client.group_id] or [subscriptions[0].plan]
    plans += [s.plan for s in subscriptions if s.plan.credits and not s.plan.window_stated]
    windows = [
        max(plan.receiver_window, room_for(plan, mtu))
        if plan.credits and not plan.window_stated else plan.receiver_window for plan in plans
    ]
    return min(max(windows), term_length // 2)


def log_params(
    state: State, endpoint: RecvEndpoint, event: Setup, plan: SubscriptionPlan, log: LogFile,
    image_id: int, *, group: bool,
) -> LogParams:
    return LogParams(
        path=log.path,
        correlation_id=image_id,
        session_id=event.session_id,
        stream_id=event.stream_id,
        initial_term_id=event.initial_term_id,
        term_id=event.active_term_id,
        term_offset=event.term_offset,
        term_length=event.term_length,
        mtu=event.mtu,
        page_size=state.settings.page_size,
        receiver_window_bytes=plan.receiver_window,
        sndbuf_bytes=endpoint.buffers[0],
        rcvbuf_bytes=endpoint.buffer_bytes,
        untethered_window_limit_timeout_ns=plan.tethering.window_limit_timeout_ns,
        untethered_linger_timeout_ns=plan.tethering.linger_timeout_ns,
        untethered_resting_timeout_ns=plan.tethering.resting_timeout_ns,
        group=group,
        rejoin=plan.rejoin,
        reliable=plan.reliable,
        sparse=plan.sparse,
        tether=plan.tether,
        type=2,
        file_mode=state.settings.file_mode,
        reserve_terms=0,
        reserve_from=log.last_end - log.reserved_terms * log.term_length + log.low_missing,
        reserve_to=log.reserved_position,
    )


def image_params(
    endpoint: RecvEndpoint, event: Setup, plan: SubscriptionPlan, image_id: int, path: str,
    slot: int, counters: list[int], *, reserved: int, group: bool,
) -> ImageParams:
    assert event.source is not None
    chosen = plan.congestion_control
    return ImageParams(
        id=image_id,
        log_path=path,
        endpoint_id=endpoint.id,
        slot=slot,
        high_water_counter_id=counters[0],
        position_counter_id=counters[1],
        naks_counter_id=counters[2],
        congestion_rtt_counter_id=counters[3] if len(counters) > 3 else NO_COUNTER,
        congestion_window_counter_id=counters[4] if len(counters) > 4 else NO_COUNTER,
        congestion_control=CONGESTION_CONTROL.get(chosen.control, CongestionControl.CUSTOM),
        congestion_name=str(chosen),
        cubic_only=chosen.reno is False,
        session_id=event.session_id,
        stream_id=event.stream_id,
        initial_term_id=event.initial_term_id,
        active_term_id=event.active_term_id,
        term_offset=event.term_offset,
        window_bytes=plan.receiver_window,
        destination=event.destination,
        source=event.source,
        nak_delay_ns=plan.nak_delay_ns,
        reserved_position=reserved,
        join_ordinal=event.peer_ordinal,
        retention_bytes=event.retention_bytes,
        retention_ns=event.retention_ns,
        peer_capabilities=event.peer_capabilities,
        untethered_window_limit_timeout_ns=plan.tethering.window_limit_timeout_ns,
        untethered_linger_timeout_ns=plan.tethering.linger_timeout_ns,
        untethered_resting_timeout_ns=plan.tethering.resting_timeout_ns,
        group=group,
        reliable=plan.reliable,
        rejoin=plan.rejoin,
    )
