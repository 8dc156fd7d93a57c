# SPDX-License-Identifier: Apache-2.0
"""Choose the congestion control of an image; if this congestion control is a Python class, call the
class.

If a channel states a congestion control, its images use this congestion control. If the channel
states none, the first ``[[stream]]`` rule that matches the stream, its session and its term length
determines the congestion control. If no rule matches, the image uses the value of
``congestion_control`` in the configuration.

The conductor calls the Python class of an image once in each round-trip time; the interval between
two calls is at least ``STEP_NS`` and at most ``LONGEST_NS``. A returned congestion window applies
until the class returns the next window. If a Python class needs longer than ``DEADLINE_NS`` for an
answer, the answer is late. The conductor counts the late answers, and logs only the first. If a
Python class gives no answer for ``SILENT_NS``, only the receiver window limits the sender until the
class answers. The daemon reports such a silent class in its log and in the event feed."""

from __future__ import annotations

from typing import Final

from penstock.config import uri
from penstock.core.congestion import CongestionView
from penstock.core.driver_types import CongestionControl
from penstock.daemon.conductor.actions import (
    MakeStrategy,
    StrategyAnswer,
    StrategyKind,
)
from penstock.daemon.conductor.actions.congestion import (
    ReadCongestion,
    RunCongestion,
    SetCongestionWindow,
)
from penstock.daemon.conductor.channel.plans import SubscriptionPlan, congestion_plan, parse
from penstock.daemon.conductor.channel.rules import concerns
from penstock.daemon.conductor.saga import Refused, Saga
from penstock.daemon.conductor.sagas.custom import DEADLINE_NS, SILENT_NS, Watch
from penstock.daemon.conductor.settings import ConductorSettings
from penstock.daemon.conductor.state.machines import ImageState
from penstock.daemon.conductor.state.model import Image
from penstock.daemon.conductor.state.state import State

STEP_NS: Final = 10_000_000
LONGEST_NS: Final = 1_000_000_000
_LIVE: Final = (ImageState.ACTIVE, ImageState.DRAINING)


def choose(
    plan: SubscriptionPlan, stream_id: int, settings: ConductorSettings, *, session_id: int,
    term_length: int,
) -> uri.CongestionControl:
    """Return the congestion control for an image with the given session and term length (bytes)."""
    stated = parse(plan.channel)
    given = stated.cc
    if given is None:
        for rule in settings.rules:
            if (
                concerns(rule, stated, stream_id)
                and rule.session_id in (None, session_id)
                and rule.term_length_bytes in (0, term_length)
            ):
                given = _of_rule(rule.congestion_control)
                break
    return congestion_plan(given, settings)


def _of_rule(text: str) -> uri.CongestionControl | None:
    return uri.read_congestion_control("congestion_control", text) if text else None


def names(
    plan: SubscriptionPlan, stream_id: int, settings: ConductorSettings
) -> tuple[str, ...]:
    """Return the congestion-control classes (in Python) that a subscription's images may use."""
    stated = parse(plan.channel)
    if stated.cc is not None:
        choices = [stated.cc]
    else:
        choices = [
            chosen for rule in settings.rules if concerns(rule, stated, stream_id)
            if (chosen := _of_rule(rule.congestion_control)) is not None
        ]
        choices.append(congestion_plan(None, settings))
    return tuple(dict.fromkeys(chosen.control for chosen in choices if chosen.is_custom))


def check(plan: SubscriptionPlan, stream_id: int, settings: ConductorSettings) -> Saga[None]:
    """Check each Python class that an image may use: create one object of the class and discard the
    object. The user's code may never return, so the saga checks the classes before it requests the
    exclusive right.

    :raises Refused: a class cannot be found, or the creation of its object fails.
    """
    for name in names(plan, stream_id, settings):
        yield MakeStrategy(kind=StrategyKind.CONGESTION, name=name)


def start(state: State, image: Image) -> None:
    """If the congestion control of an image is a Python class, begin to call the class at
    intervals."""
    if image.params.congestion_control == CongestionControl.CUSTOM:
        _again(state, image, state.now_ns + STEP_NS)
        _watch_silence(state, image)


def _is_asked(state: State, image: Image) -> bool:
    return state.images.get(image.id) is image and image.state in _LIVE and not image.released


def _again(state: State, image: Image, at_ns: int) -> None:
    def due() -> None:
        if _is_asked(state, image):
            state.runner.start(_step(state, image), lambda value, error: None)

    state.timers.at(at_ns, due)


def _step(state: State, image: Image) -> Saga[None]:
    requested_ns = state.now_ns
    if image.unanswered_ns is None:
        image.unanswered_ns = requested_ns
    try:
        view: CongestionView = yield ReadCongestion(
            image_id=image.id, session_id=image.session_id, stream_id=image.stream_id,
            term_length=image.log.term_length, mtu=image.mtu,
        )
        interval_ns = min(max(STEP_NS, view.rtt_ns), LONGEST_NS)
        watch = Watch(state, image, image.endpoint.channel, f"{describe(image)}: no answer within "
                      f"{DEADLINE_NS / 1e6:.0f} ms; while it is late, its last window holds")
        state.timers.at(requested_ns + DEADLINE_NS + 1, watch.check)
        answer: StrategyAnswer = yield RunCongestion(
            image_id=image.id, view=view, now_ns=requested_ns
        )
        if state.now_ns - requested_ns > DEADLINE_NS:
            watch.check()
        watch.answered = True
        if answer.complaint:
            state.error(
                "congestion class", image.endpoint.channel,     # strangers choose sessions
                f"{describe(image)}: {answer.complaint}",
            )
        if answer.limit is not None and _is_asked(state, image):
            _note_answer(state, image)
            state.emit(SetCongestionWindow(image_id=image.id, window=answer.limit))
    except Refused:
        return                          # the image has ended meanwhile
    next_ns = requested_ns + interval_ns
    _again(state, image, next_ns if next_ns > state.now_ns else state.now_ns + interval_ns)


def describe(image: Image) -> str:
    """Return a text that names an image and the class of its congestion control, for logs."""
    return (
        f"{image.endpoint.channel}: session {image.session_id} of stream {image.stream_id}: "
        f"cc={image.params.congestion_name}"
    )


def _note_answer(state: State, image: Image) -> None:
    image.unanswered_ns = None
    if image.silence_told:
        image.silence_told = False
        state.event("congestion_answers", image_id=image.id, session_id=image.session_id,
                    stream_id=image.stream_id, congestion=image.params.congestion_name)


def _watch_silence(state: State, image: Image) -> None:
    """Report once that a class gives no answer. One timer for each image."""
    def look() -> None:
        if not _is_asked(state, image):
            return
        since_ns = image.unanswered_ns
        silent = since_ns is not None and state.now_ns - since_ns >= SILENT_NS
        if silent and not image.silence_told:
            image.silence_told = True
            state.event("congestion_silent", image_id=image.id, session_id=image.session_id,
                        stream_id=image.stream_id, congestion=image.params.congestion_name)
            state.error(
                "congestion silent", image.endpoint.channel,
                f"{describe(image)}: no answer for {SILENT_NS / 1e9:.0f} s; only the receiver "
                "window applies until the class answers: correct the class and restart the daemon",
            )
        _watch_silence(state, image)

    state.timers.at(state.now_ns + SILENT_NS // 5, look)
