# SPDX-License-Identifier: Apache-2.0
"""Allocate the terms of log buffers one at a time, before writers need them, and release terms
while a stream is idle (docs/decisions/0033).

If a term cannot be allocated, the conductor tries again at intervals. Until the needed term is
allocated, the stream is blocked with the cause ``storage``, and no data is lost. The daemon
releases terms of an idle stream in four steps. In the first step, the sender or receiver states
which terms of the stream it still needs. In the second step, the daemon writes a journal record
that lists only the needed terms. In the third step, the daemon returns the memory of the other
terms to the file system. In the last step, the daemon adds the returned memory to the free part of
the storage budget. The daemon adds a term to the journal after it has allocated the term's memory.
Before the daemon releases the memory of a term, it removes the term from the journal. Every term
that the journal lists therefore has memory, even if the daemon dies between two steps.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from penstock.core.driver_events import TermsReleased
from penstock.core.driver_types import ObjectKind
from penstock.daemon.conductor.actions import (
    ImageReserved,
    PublicationReserved,
    ReadCounter,
    ReleaseImageTerms,
    ReleaseLog,
    ReleasePublicationTerms,
    ReserveTerm,
)
from penstock.daemon.conductor.saga import EXCLUSIVE, Refused, Saga
from penstock.daemon.conductor.sagas.linking import report_refusal
from penstock.daemon.conductor.state.machines import ImageState, PublicationState
from penstock.daemon.conductor.state.model import TERMS, Image, LogFile, Publication
from penstock.daemon.conductor.state.registry import note_log
from penstock.daemon.conductor.state.state import PAGE, State

_MOST_DOUBLINGS: Final = 6
_PATIENCE_NS: Final = 250_000_000


def _owner(state: State, kind: ObjectKind, object_id: int) -> Image | Publication | None:
    if kind is ObjectKind.IMAGE:
        return state.images.get(object_id)
    return state.publications.get(object_id)


def on_term_needed(
    state: State, kind: ObjectKind, object_id: int, wanted: int = 0
) -> Saga[None]:
    """Allocate memory for the next positions of a log, and notify the sender or receiver that
    writes to the log. If the allocation fails, try again later.

    :param wanted: position up to which the log needs memory; 0: up to the end of the next term.
    """
    owner = _owner(state, kind, object_id)
    # While a release is requested from the agent, the agent drops its own request.
    if owner is None or owner.log.reserving or owner.log.giving_up:
        return
    log = owner.log
    if log.punching:
        log.wanted = True
        return
    if log.is_whole:
        _notify(state, kind, object_id, log.notified_position)
        return
    log.reserving = True
    start, end = _next_range(log, wanted)
    try:
        yield from _reserve(state, log, start, end)
    except Refused as refused:
        report_refusal(state, f"stream {owner.stream_id}", refused)
        log.reserving = False
        state.timers.at(
            state.now_ns + state.settings.storage_retry_ns,
            lambda: _again(state, kind, object_id, wanted),
        )
        return
    log.reserving = False
    if _owner(state, kind, object_id) is not owner:
        state.storage.release(end - start)        # the log was freed meanwhile, without this part
        return
    if end <= log.reserved_position:                # the low part of the first term
        log.low_missing = 0
    else:
        log.reserved_terms += start == log.last_end
        log.reserved_position = end
    note_log(state, owner)
    _notify(state, kind, object_id, log.notified_position)
    watch(state, owner)


def _next_range(log: LogFile, wanted: int) -> tuple[int, int]:
    """Return the positions to allocate next, up to the wanted position: the rest of a partly
    allocated term, or the next term. The part of the first term before the stream's start comes
    last."""
    start, term = log.reserved_position, log.term_length
    if log.reserved_terms >= TERMS and start == log.last_end:
        first = start - TERMS * term
        return first, first + log.low_missing
    term_end = (start // term + 1) * term
    wanted = -(-wanted // PAGE) * PAGE
    return start, term_end if wanted <= start else min(wanted, term_end)


def _reserve(state: State, log: LogFile, start: int, end: int) -> Saga[None]:
    state.storage.take(end - start, f"the next part of {log.path}")
    try:
        yield ReserveTerm(path=log.path, term_length=log.term_length, position=start, end=end)
    except Refused:
        state.storage.release(end - start)
        raise


def _again(state: State, kind: ObjectKind, object_id: int, wanted: int = 0) -> None:
    state.runner.start(
        on_term_needed(state, kind, object_id, wanted), lambda value, error: None
    )


def _notify(state: State, kind: ObjectKind, object_id: int, position: int) -> None:
    if kind is ObjectKind.IMAGE:
        state.emit(ImageReserved(image_id=object_id, position=position))
    else:
        state.emit(PublicationReserved(publication_id=object_id, position=position))


# ---- idle terms ----------------------------------------------------------------------------------


@attrs.define(eq=False)
class _Watch:
    """Position and time of a stream's last movement."""

    owner: Image | Publication
    position: int = -1
    since_ns: int = 0
    terms: int = 0                      # when a release was last requested
    refusals: int = 0                   # requests without effect since it moved


def _least_terms(state: State, log: LogFile) -> int:
    """Return the number of terms to keep from the one in use on: small terms are used up before the
    next can be allocated."""
    return 2 if log.term_length <= state.settings.small_term_bytes else 1


def watch(state: State, owner: Image | Publication) -> None:
    """As long as a log has terms that could be released, check at intervals whether the stream is
    idle."""
    if state.settings.idle_term_timeout_ns <= 0 or owner.id in state.watched:
        return
    if owner.log.reserved_terms > _least_terms(state, owner.log):
        state.watched.add(owner.id)
        _check_later(state, _Watch(owner))


def _check_later(state: State, watched: _Watch) -> None:
    def check() -> None:
        state.runner.start(_check(state, watched), lambda value, error: None)

    state.timers.at(state.now_ns + max(state.settings.idle_term_timeout_ns // 2, 1), check)


def _is_live(state: State, owner: Image | Publication) -> bool:
    if isinstance(owner, Image):
        return state.images.get(owner.id) is owner and owner.state is ImageState.ACTIVE
    return state.publications.get(owner.id) is owner and owner.state is PublicationState.ACTIVE


def _check(state: State, watched: _Watch) -> Saga[None]:
    """Request the agent of an idle stream to release terms."""
    owner, log = watched.owner, watched.owner.log
    if not _is_live(state, owner) or log.reserved_terms <= _least_terms(state, log):
        state.watched.discard(owner.id)
        return
    if isinstance(owner, Image):
        counter_id = owner.params.position_counter_id
    else:
        counter_id = owner.params.publisher_position_counter_id
    try:
        position: int = yield ReadCounter(counter_id=counter_id)
        if position != watched.position:
            watched.position, watched.since_ns, watched.refusals = position, state.now_ns, 0
        elif state.now_ns - watched.since_ns >= _patience_ns(state, watched):
            yield EXCLUSIVE             # no reader is about to join at the old position
            watched.since_ns = state.now_ns     # the agent may refuse; requested again later
            watched.refusals = watched.refusals + 1 if log.reserved_terms == watched.terms else 1
            watched.terms = log.reserved_terms
            _request(state, owner)
    finally:
        _check_later(state, watched)


def _patience_ns(state: State, watched: _Watch) -> int:
    """Return the idle time before the next request: each refusal doubles it, up to 250 ms. Answers
    of many idle streams must not keep other events out of an agent's ring."""
    timeout_ns = state.settings.idle_term_timeout_ns
    return max(timeout_ns, min(timeout_ns << min(watched.refusals, _MOST_DOUBLINGS), _PATIENCE_NS))


def _request(state: State, owner: Image | Publication) -> None:
    log = owner.log
    if not _is_live(state, owner) or log.reserving or log.giving_up or log.punching:
        return
    log.giving_up = True
    least = _least_terms(state, log)
    if isinstance(owner, Image):
        state.emit(ReleaseImageTerms(image_id=owner.id, least_terms=least))
    else:
        state.emit(ReleasePublicationTerms(publication_id=owner.id, least_terms=least))


def on_terms_released(state: State, event: TermsReleased) -> None:
    """Process the sender's or receiver's answer to a request to release terms. The sender or
    receiver still needs the terms with the positions from ``event.kept_from`` to ``event.kept_to``.
    If ``event.kept_to`` is -1, all terms are needed."""
    owner = _owner(state, event.kind, event.id)
    if owner is None:
        return
    log = owner.log
    log.giving_up = False
    kept = (event.kept_to - event.kept_from) // log.term_length
    if event.kept_to < 0 or kept >= log.reserved_terms:
        return
    before = log.reserved_bytes
    if event.kept_from != log.last_end - log.reserved_terms * log.term_length:
        log.low_missing = 0                     # the first term is released
    log.reserved_terms, log.reserved_position = kept, event.kept_to
    freed = before - log.reserved_bytes
    log.punching = True
    note_log(state, owner)
    _start_release(state, event, owner, freed)


def _start_release(
    state: State, event: TermsReleased, owner: Image | Publication, freed: int
) -> None:
    state.runner.start(_release(state, event, owner, freed), lambda value, error: None)


def _release(
    state: State, event: TermsReleased, owner: Image | Publication, freed: int
) -> Saga[None]:
    log = owner.log
    try:
        yield ReleaseLog(
            path=log.path, term_length=log.term_length, kept_from=event.kept_from,
            kept_to=event.kept_to,
        )
    except Refused as refused:
        if _owner(state, event.kind, event.id) is owner:
            # The memory of its terms is not released yet: the stream waits as for a missing term.
            report_refusal(state, f"stream {owner.stream_id}", refused)
            state.timers.at(
                state.now_ns + state.settings.storage_retry_ns,
                partial(_start_release, state, event, owner, freed),
            )
            return
    state.storage.release(freed)
    log.punching = False
    state.event(
        "terms_given_back", stream_id=owner.stream_id, session_id=owner.session_id,
        object_id=owner.id, bytes=freed,
    )
    if log.wanted:
        log.wanted = False
        _again(state, event.kind, event.id)
