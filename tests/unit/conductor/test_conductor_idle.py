# SPDX-License-Identifier: Apache-2.0
"""Idle terms: when the conductor requests them, what it does with the answer, and what a new daemon
takes for memory."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from conductor_rig import MIB, Rig
from test_adoption import new_daemon, registered

from penstock.core.driver_types import ALL_TERMS, EventType, ObjectKind
from penstock.daemon.conductor import actions as a
from penstock.daemon.conductor.sagas.linking import link_publication
from penstock.daemon.conductor.state.model import Image, Joins, Publication
from penstock.daemon.restart import journal

UNICAST = "aeron:udp?endpoint=10.0.0.2:40456"
RECEIVE = "aeron:udp?endpoint=10.0.0.1:0"
PUB, IMAGE = ObjectKind.PUBLICATION, ObjectKind.IMAGE
TERM = 16 * MIB
PAGE = 4096
IDLE_S = 4.0
OLDEST, CONSUMED = 512, 1024    # what the rig answers


def rig_with(kind: ObjectKind, terms: int = 3, **settings: Any) -> tuple[Rig, Publication | Image]:
    """A stream whose log has got so many terms."""
    rig = Rig(journal=True, **{"idle_term_timeout_ns": int(IDLE_S * 10**9), **settings})
    owner: Publication | Image
    if kind is PUB:
        owner = rig.state.publications[rig.pub(rig.client(), UNICAST).original_id]
    else:
        rig.sub(rig.client(), RECEIVE)
        rig.setup(next(iter(rig.state.recv_endpoints)), term_length=TERM)
        owner = next(iter(rig.state.images.values()))
    for have in range(0 if kind is IMAGE else 1, terms):
        rig.event(EventType.TERM_NEEDED, kind=kind, id=owner.id, reserved=have * TERM)
    assert owner.log.reserved_terms == terms
    return rig, owner


def move(rig: Rig, owner: Publication | Image, position: int) -> None:
    counter = owner.params.position_counter_id if isinstance(owner, Image) \
        else owner.params.publisher_position_counter_id
    rig.counters[counter] = attrs.evolve(rig.counters[counter], value=position)


def requested(rig: Rig) -> list[Any]:
    return [*rig.all(a.ReleasePublicationTerms), *rig.all(a.ReleaseImageTerms)]


def answer(rig: Rig, owner: Publication | Image, kept_from: int, kept_to: int) -> None:
    kind = IMAGE if isinstance(owner, Image) else PUB
    rig.event(
        EventType.TERMS_RELEASED, kind=kind, id=owner.id, kept_to=kept_to, kept_from=kept_from
    )


def given_up(kind: ObjectKind) -> tuple[Rig, Publication | Image]:
    """One that has given up two of three."""
    rig, owner = rig_with(kind)
    rig.advance(2 * IDLE_S)
    answer(rig, owner, 2 * TERM, 3 * TERM)
    return rig, owner


# ---- asking --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [PUB, IMAGE])
def test_a_stream_that_stands_still_is_asked_after_its_time(kind: ObjectKind) -> None:
    rig, owner = rig_with(kind)
    rig.advance(IDLE_S)
    assert not requested(rig)
    rig.advance(IDLE_S / 2 + 0.1)
    (question,) = requested(rig)
    assert question.least_terms == 1
    assert owner.id in (getattr(question, "publication_id", 0), getattr(question, "image_id", 0))


def test_a_stream_that_moves_is_not_asked() -> None:
    rig, owner = rig_with(PUB)
    for step in range(1, 20):
        move(rig, owner, 64 * step)
        rig.advance(IDLE_S / 2)
    assert not requested(rig)


def test_it_is_asked_again_when_it_could_give_nothing() -> None:
    rig, owner = rig_with(PUB)
    rig.advance(2 * IDLE_S)
    rig.event(EventType.TERMS_RELEASED, kind=PUB, id=owner.id, kept_to=-1, kept_from=0)
    rig.advance(2 * IDLE_S)
    assert len(requested(rig)) > 1
    assert not rig.all(a.ReleaseLog)
    assert owner.log.reserved_terms == 3


def test_refusals_become_rare() -> None:
    """Seed 3601: answers of three idle streams kept all else out of a ring of two events."""
    rig, owner = rig_with(PUB, idle_term_timeout_ns=5_000_000)
    for _ in range(2000):
        before = len(requested(rig))
        rig.advance(0.005)
        if len(requested(rig)) > before:
            answer(rig, owner, 0, -1)
    assert 40 <= len(requested(rig)) <= 50      # 10 s, four a second after the first six
    move(rig, owner, 64)
    before = len(requested(rig))
    rig.advance(0.02)
    assert len(requested(rig)) == before + 1    # it moved: asked as soon as the first time


def test_one_question_waits_for_its_answer() -> None:
    rig, _owner = rig_with(PUB)
    rig.advance(10 * IDLE_S)
    assert len(requested(rig)) == 1


def test_without_a_timeout_nobody_is_asked_and_nothing_is_timed() -> None:
    rig, _owner = rig_with(PUB, idle_term_timeout_ns=0)
    before = len(rig.state.timers)
    rig.advance(1000)
    assert not requested(rig)
    assert len(rig.state.timers) <= before


def test_a_log_that_has_what_it_needs_is_not_watched() -> None:
    rig, _owner = rig_with(PUB, terms=1)
    rig.advance(10 * IDLE_S)
    assert not requested(rig)
    assert not rig.state.watched


def test_two_small_terms_stay() -> None:
    rig = Rig(idle_term_timeout_ns=10**9)
    ready = rig.pub(rig.client(), UNICAST + "|term-length=64k")
    rig.advance(10)
    assert not requested(rig)
    rig.event(EventType.TERM_NEEDED, kind=PUB, id=ready.original_id, reserved=128 * 1024)
    rig.advance(10)
    assert rig.last(a.ReleasePublicationTerms).least_terms == 2


def test_a_stream_that_ends_is_not_asked() -> None:
    rig, owner = rig_with(IMAGE)
    rig.event(EventType.IMAGE_INACTIVE, kind=IMAGE, id=owner.id, reason=1)
    rig.advance(10 * IDLE_S)
    assert not requested(rig)


# ---- giving back ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [PUB, IMAGE])
def test_what_is_given_up_goes_to_the_file_system_and_the_budget(kind: ObjectKind) -> None:
    rig, owner = given_up(kind)
    assert rig.last(a.ReleaseLog) == a.ReleaseLog(
        path=owner.log.path, term_length=TERM, kept_from=2 * TERM, kept_to=3 * TERM
    )
    assert rig.state.storage.used_bytes == TERM + PAGE
    assert owner.log.reserved_bytes == TERM + PAGE
    fields = rig.last(a.PublishEvent)
    assert (fields.name, fields.fields["bytes"]) == ("terms_given_back", 2 * TERM)
    rig.advance(10 * IDLE_S)
    assert not rig.state.watched


@pytest.mark.parametrize("kind", [PUB, IMAGE])
def test_the_registry_forgets_a_term_before_it_goes(kind: ObjectKind) -> None:
    rig, owner = rig_with(kind)
    rig.advance(2 * IDLE_S)
    rig.hold(a.ReleaseLog)
    answer(rig, owner, 2 * TERM, 3 * TERM)
    what = "image" if kind is IMAGE else "publication"
    log = journal.decode(registered(rig))[what, (owner.id,)]["log"]
    assert (log.reserved_terms, log.reserved_position) == (1, 3 * TERM)
    assert rig.state.storage.used_bytes == 3 * TERM + PAGE     # not before it is gone
    rig.resume()
    assert rig.state.storage.used_bytes == TERM + PAGE


def test_a_stream_that_goes_on_gets_its_terms_again() -> None:
    rig, owner = given_up(PUB)
    for end, notified in ((3 * TERM, 4 * TERM), (4 * TERM, ALL_TERMS)):
        rig.event(EventType.TERM_NEEDED, kind=PUB, id=owner.id, reserved=end)
        assert rig.last(a.ReserveTerm).position == end
        assert rig.last(a.PublicationReserved).position == notified
    assert rig.state.storage.used_bytes == 3 * TERM + PAGE
    rig.advance(2 * IDLE_S)
    assert len(requested(rig)) == 2


def test_a_term_requested_while_others_go_comes_after_that() -> None:
    """Or what was just reserved would be released again."""
    rig, owner = rig_with(PUB)
    rig.advance(2 * IDLE_S)
    rig.hold(a.ReleaseLog)
    answer(rig, owner, 2 * TERM, 3 * TERM)
    reserved = len(rig.all(a.ReserveTerm))
    rig.event(EventType.TERM_NEEDED, kind=PUB, id=owner.id, reserved=3 * TERM)
    assert len(rig.all(a.ReserveTerm)) == reserved
    rig.resume()
    assert rig.last(a.PublicationReserved).position == 4 * TERM
    assert rig.state.storage.used_bytes == 2 * TERM + PAGE


def test_a_wish_from_before_the_question_is_forgotten_by_both() -> None:
    rig, owner = rig_with(PUB, terms=2)
    rig.advance(2 * IDLE_S)
    assert requested(rig)
    rig.event(EventType.TERM_NEEDED, kind=PUB, id=owner.id, reserved=2 * TERM)
    assert owner.log.reserved_terms == 2


def test_terms_that_cannot_be_given_back_are_tried_again() -> None:
    rig, owner = rig_with(PUB)
    rig.advance(2 * IDLE_S)
    rig.fail(a.ReleaseLog, message="input/output error")
    answer(rig, owner, 2 * TERM, 3 * TERM)
    assert "input/output error" in rig.last(a.LogError).text
    assert rig.state.storage.used_bytes == 3 * TERM + PAGE
    rig.advance(0.2)
    assert rig.state.storage.used_bytes == TERM + PAGE


def test_a_stream_that_ends_meanwhile_leaves_nothing_in_the_account() -> None:
    rig, owner = rig_with(PUB)
    rig.advance(2 * IDLE_S)
    rig.hold(a.ReleaseLog)
    answer(rig, owner, 2 * TERM, 3 * TERM)
    rig.lose(next(iter(rig.state.clients)))
    rig.event(EventType.PUB_DRAINED, kind=PUB, id=owner.id)
    rig.advance(20)
    rig.release_all()
    rig.resume()
    rig.release_all()
    rig.advance(20)
    rig.assert_nothing_left()


# ---- readers that come ---------------------------------------------------------------------------


def test_nobody_begins_in_a_term_that_was_given_up() -> None:
    rig, owner = given_up(PUB)
    assert join_oldest(rig, owner) == 2 * TERM


def test_while_an_answer_is_awaited_one_begins_beside_the_others() -> None:
    rig, owner = rig_with(PUB)
    assert join_oldest(rig, owner) == OLDEST
    rig.advance(2 * IDLE_S)
    assert requested(rig)
    assert join_oldest(rig, owner) == CONSUMED


def join_oldest(rig: Rig, owner: Publication | Image) -> int:
    """Where a spy begins that wants all there is."""
    rig.sub(rig.client(), "aeron-spy:" + UNICAST)
    subscription = list(rig.state.subscriptions.values())[-1]
    subscription.joins = Joins.OLDEST
    assert isinstance(owner, Publication)
    rig.state.runner.start(
        link_publication(rig.state, subscription, owner), lambda value, error: None
    )
    rig._run(rig.state.runner.take())
    return owner.subscribers[subscription.id].join_position


# ---- a new daemon --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [PUB, IMAGE])
def test_a_new_daemon_knows_which_terms_are_there(kind: ObjectKind) -> None:
    dead, owner = given_up(kind)
    rig = new_daemon(dead, idle_term_timeout_ns=10**9)
    made = rig.last(a.AddPublicationObject if kind is PUB else a.AddImageObject).params
    assert made.reserved_position == 3 * TERM
    if kind is PUB:
        assert made.kept_position == 2 * TERM
    # It may have died before they were gone.
    order = [type(action) for action in rig.done]
    assert rig.last(a.ReleaseLog).kept_from == 2 * TERM
    assert order.index(a.ReleaseLog) < order.index(type(dead.last(
        a.AddPublicationObject if kind is PUB else a.AddImageObject)))
    assert rig.state.storage.used_bytes == TERM + PAGE
    rig.event(EventType.TERM_NEEDED, kind=kind, id=owner.id, reserved=3 * TERM)
    assert rig.last(a.ReserveTerm).position == 3 * TERM


def test_a_death_before_the_answer_leaves_all_terms() -> None:
    dead, owner = rig_with(PUB)
    dead.advance(2 * IDLE_S)
    assert requested(dead)
    rig = new_daemon(dead, idle_term_timeout_ns=10**9)
    made = rig.last(a.AddPublicationObject).params
    assert (made.reserved_position, made.kept_position) == (ALL_TERMS, 0)
    assert not rig.all(a.ReleaseLog)
    rig.advance(3)
    assert rig.last(a.ReleasePublicationTerms).publication_id == owner.id
