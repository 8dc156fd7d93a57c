# SPDX-License-Identifier: Apache-2.0
"""Call flow-control strategies in Python, and handle late answers.

Every ``STEP_NS`` the conductor calls a publication's strategy with the last status messages of the
publication's receivers. The position limit that the strategy returns is valid for ``VALID_NS``
after the call. When this time has passed without a new limit, ``on_late`` determines the limit
(docs/decisions/0096). If a strategy needs longer than ``DEADLINE_NS`` for an answer, its answer is
late. The conductor counts the late answers of each strategy, and logs the first late answer. The
conductor also uses the limit of a late answer, because an older limit is safer than no limit. If a
strategy gives no answer for ``SILENT_NS``, the sender uses the built-in flow control ``max`` until
the strategy answers. When the sender changes from the strategy to ``max`` or back, the daemon
reports the change in its log and in the event feed."""

from __future__ import annotations

from typing import Any, Final

from penstock.core.driver_types import FlowControl
from penstock.daemon.conductor.actions import (
    MakeStrategy,
    ReadReceivers,
    RunStrategy,
    SetPublicationLimit,
    StrategyAnswer,
    StrategyKind,
)
from penstock.daemon.conductor.channel import rules
from penstock.daemon.conductor.channel.plans import PublicationPlan
from penstock.daemon.conductor.saga import Refused, Saga
from penstock.daemon.conductor.settings import ConductorSettings
from penstock.daemon.conductor.state.machines import PublicationState
from penstock.daemon.conductor.state.model import Image, Publication
from penstock.daemon.conductor.state.state import State

STEP_NS: Final = 10_000_000
DEADLINE_NS: Final = 20_000_000
VALID_NS: Final = 100_000_000
SILENT_NS: Final = 5_000_000_000        # PS_FC_SILENT_NS


def start(state: State, publication: Publication) -> None:
    """If the flow control of a publication is a Python class, begin to call the class at
    intervals."""
    if publication.params.flow_control is FlowControl.CUSTOM:
        _again(state, publication)
        _watch_silence(state, publication)


def _again(state: State, publication: Publication) -> None:
    def due() -> None:
        if (
            state.publications.get(publication.id) is publication
            and publication.state is PublicationState.ACTIVE
        ):
            state.runner.start(_step(state, publication), lambda value, error: None)

    state.timers.at(state.now_ns + STEP_NS, due)


def make(plan: PublicationPlan, settings: ConductorSettings) -> Saga[dict[str, Any]]:
    """Create the Python flow controls that a publication may use; return them in a dict by name.
    The user's code may be slow or never return, so the saga calls this code before it requests the
    exclusive right."""
    made: dict[str, Any] = {}
    if plan.is_ipc:
        return made
    for name in rules.custom_names(plan.flow_control, settings):
        made[name] = yield MakeStrategy(kind=StrategyKind.FLOW, name=name)
    return made


def _step(state: State, publication: Publication) -> Saga[None]:
    try:
        snapshots: tuple[Any, ...] = yield ReadReceivers(publication_id=publication.id)
        if snapshots:
            requested_ns = state.now_ns
            if publication.unanswered_ns is None:
                publication.unanswered_ns = requested_ns
            watch = Watch(
                state, publication, publication.plan.channel,
                f"{publication.plan.channel}: fc={publication.params.strategy}: no answer "
                f"within {DEADLINE_NS / 1e6:.0f} ms; while it is late, "
                f"{publication.params.fc_on_late.name.lower()} applies",
            )
            state.timers.at(requested_ns + DEADLINE_NS + 1, watch.check)
            answer: StrategyAnswer = yield RunStrategy(
                publication_id=publication.id, snapshots=snapshots, now_ns=requested_ns
            )
            if state.now_ns - requested_ns > DEADLINE_NS:
                watch.check()
            watch.answered = True
            if answer.complaint:
                text = f"{publication.plan.channel}: {answer.complaint}"
                state.error("strategy", text, text)
            if answer.limit is not None and publication.id in state.publications:
                _note_answer(state, publication)
                state.emit(SetPublicationLimit(
                    publication_id=publication.id, limit=answer.limit,
                    until_ns=requested_ns + VALID_NS,
                ))
    except Refused:
        return                          # the publication has ended meanwhile
    _again(state, publication)


def _note_answer(state: State, publication: Publication) -> None:
    publication.unanswered_ns = None
    if publication.silence_notified:
        publication.silence_notified = False
        state.event("strategy_answers", publication_id=publication.id,
                    strategy=publication.params.strategy)


def _watch_silence(state: State, publication: Publication) -> None:
    """Report once that a strategy gives no answer. One timer for each publication."""
    def check() -> None:
        if state.publications.get(publication.id) is not publication:
            return
        since_ns = publication.unanswered_ns
        if (
            since_ns is not None and state.now_ns - since_ns >= SILENT_NS
            and not publication.silence_notified
        ):
            publication.silence_notified = True
            name = publication.params.strategy
            state.event("strategy_silent", publication_id=publication.id, strategy=name)
            state.error(
                "strategy silent", publication.plan.channel,
                f"{publication.plan.channel}: fc={name}: no answer for {SILENT_NS / 1e9:.0f} s; "
                "max applies until the strategy answers: correct the strategy and restart the "
                "publication",
            )
        _watch_silence(state, publication)

    state.timers.at(state.now_ns + SILENT_NS // 5, check)


class Watch:
    """Watches one call of the user's Python class for a publication or an image. The watch logs
    only the first late answer for this publication or image."""

    def __init__(
        self, state: State, owner: Publication | Image, channel: str, text: str
    ) -> None:
        self._world = state
        self._owner = owner
        self._channel = channel
        self._text = text
        self.answered = False
        self.late = False

    def check(self) -> None:
        """If the user's class has not answered the call yet, count the answer as late. A timer
        calls this method when ``DEADLINE_NS`` has passed since the call began."""
        if self.answered or self.late:
            return
        self.late = True
        self._owner.late_limits += 1
        if self._owner.late_limits == 1:
            self._world.error("late answer", self._channel, self._text)
