# SPDX-License-Identifier: Apache-2.0
"""Warn of settings and loads that make back-pressure ineffective, and state the remedy. Each
warning appears once for a publication: in the daemon's log, in the event feed and in the
publication's status."""

from __future__ import annotations

from typing import Final

from penstock.core.driver_events import PressureRelieved, PressureTriggered
from penstock.daemon.conductor.actions import Warn
from penstock.daemon.conductor.settings import SECOND_NS
from penstock.daemon.conductor.state.machines import PublicationState
from penstock.daemon.conductor.state.model import Pressed, Publication
from penstock.daemon.conductor.state.state import State

_MILLION: Final = 1_000_000
_MILLION_BYTES: Final = _MILLION * 64      # a million messages of 32 bytes with their headers
_HIGH_RATIO: Final = 0.95
PERIOD_NS: Final = 60 * SECOND_NS
_LONG_NS: Final = PERIOD_NS // 2
#: On an idle stream, a receiver of penstock sends a status message each second.
_LEAST_TIMEOUT_NS: Final = 2 * SECOND_NS


def check_settings(state: State, publication: Publication) -> None:
    """Warn if the receiver time-out of ``fc`` is shorter than the interval between status messages
    of an idle receiver. If the channel has ``ps-policy``, warn also if ``ps-depth`` has room for a
    million messages, or if the low watermark is close to the depth."""
    plan = publication.plan
    timeout_ns = publication.params.fc_receiver_timeout_ns
    if 0 < timeout_ns < _LEAST_TIMEOUT_NS:
        _warn(
            state, publication, "receiver_timeout",
            f"a receiver time-out of {timeout_ns / SECOND_NS:g} s is shorter than the silence of a "
            "receiver of an idle stream, so such receivers leave and join again: state t:2s or "
            "more in fc",
        )
    if not plan.policy:
        return
    counts = plan.depth_messages > 0
    if plan.depth_messages >= _MILLION or (not counts and plan.window_bytes >= _MILLION_BYTES):
        _warn(
            state, publication, "depth",
            f"a depth of {plan.window_bytes} bytes has room for a million messages, which hide a "
            "slow reader: state ps-depth = tolerable delay x bytes a second",
        )
    if plan.low_watermark_bytes >= int(_HIGH_RATIO * plan.window_bytes):
        _warn(
            state, publication, "low_watermark",
            f"a low watermark of {plan.low_watermark_bytes} of {plan.window_bytes} bytes makes "
            "many short pauses: state ps-low-watermark=0.5",
        )


def follow_pressure(
    state: State, publication: Publication, event: PressureTriggered, culprit: str
) -> None:
    """Add up how long a publication was under pressure: how long its unsent data had reached
    ``ps-depth``. One minute after the first episode, a timer checks whether the sum is so large
    that the daemon must warn.

    The sender reports at most one episode of pressure a second. The report's field ``episodes``
    counts all episodes since the last report. Of these episodes, only the reported one has a known
    duration. The function assumes the same duration for the other episodes."""
    if "sustained" in publication.warnings:
        return
    pressed = publication.pressed
    if isinstance(event, PressureRelieved):
        if pressed is not None and pressed.since_ns is not None:
            pressed.total_ns += event.duration_ns * max(1, event.episodes)
            pressed.since_ns = None
        return
    if pressed is None:
        pressed = publication.pressed = Pressed()
        state.timers.at(state.now_ns + PERIOD_NS, lambda: _look(state, publication))
    pressed.since_ns = state.now_ns
    pressed.culprit = culprit


def _look(state: State, publication: Publication) -> None:
    pressed, publication.pressed = publication.pressed, None
    if pressed is None or publication.state is not PublicationState.ACTIVE:
        return
    total_ns = pressed.total_ns
    if pressed.since_ns is not None:
        total_ns += state.now_ns - pressed.since_ns
    if total_ns >= _LONG_NS:
        by = f" by {pressed.culprit}" if pressed.culprit else ""
        _warn(
            state, publication, "sustained",
            f"publishers were held{by} for {min(total_ns, PERIOD_NS) // SECOND_NS} of the last "
            f"{PERIOD_NS // SECOND_NS} s: the reader is too slow permanently: add readers, slow "
            "the publisher down, or let a policy drop",
        )
    elif pressed.since_ns is not None:
        publication.pressed = Pressed(since_ns=state.now_ns, culprit=pressed.culprit)
        state.timers.at(state.now_ns + PERIOD_NS, lambda: _look(state, publication))


def _warn(state: State, publication: Publication, kind: str, text: str) -> None:
    if kind in publication.warnings:
        return
    publication.warnings[kind] = text
    state.emit(Warn(
        text=f"stream {publication.stream_id}, session {publication.session_id} on "
        f"{publication.plan.channel}: {text}"
    ))
    state.event(
        "backpressure_warning", publication_id=publication.id, stream_id=publication.stream_id,
        session_id=publication.session_id, kind=kind, message=text,
    )
