# SPDX-License-Identifier: Apache-2.0
"""Handles of credits: their release, the loops that release them, and handles that are dropped."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Callable, Iterator

import pytest
from support.hosts import PenstockHost

import penstock
from loopback.credit_pairs import MEDIA, STREAM, Pair, offered, opened
from loopback.streams import TIMEOUT_S, eventually
from penstock import Credits, Offer, Subscription


@pytest.fixture(params=MEDIA)
def pair(
    request: pytest.FixtureRequest, host: PenstockHost, peer: PenstockHost,
    port: Callable[[], int],
) -> Iterator[Pair]:
    with opened(request.param, host, peer, port) as made:
        yield made


def test_handles_return_in_any_order(pair: Pair) -> None:
    publication, subscription = pair.open(Credits(4, handles=True))
    assert offered(publication, 100) == 4
    held = [subscription.recv(10) for _ in range(4)]
    assert publication.offer(b"x") == Offer.NO_CREDIT
    assert subscription.credits.held == 4
    for message in (held[2], held[0]):
        message.credit.release()
        with pytest.raises(penstock.CreditReleased, match="was already released"):
            message.credit.release()
    eventually(lambda: publication.credits.granted == 6, "no credit")
    assert offered(publication, 100) == 2
    with held[3].credit, held[1].credit:
        assert held[3].credit.count == 1
    eventually(lambda: publication.credits.granted == 8, "no credit")


def test_a_batch_returns_a_part_of_its_credits(pair: Pair) -> None:
    publication, subscription = pair.open(Credits(4, handles=True))
    assert offered(publication, 100) == 4
    eventually(lambda: subscription.credits.granted == 4, "no credit")
    batches = []
    while sum(map(len, batches)) < 4:
        batches.append(subscription.recv_batch(4, 10))
    credit = batches[-1].credit
    for wrong in (5, 0, -1, 2**70):
        with pytest.raises(penstock.InvalidArgument, match=r"takes 1 to"):
            credit.release(wrong)
    credit.release(1)
    eventually(lambda: publication.credits.granted == 5, "no credit")
    for batch in batches:
        if batch.credit.count:
            batch.credit.release()
    eventually(lambda: publication.credits.granted == 8, "no credit")


def test_a_forked_child_returns_no_credit(pair: Pair) -> None:
    publication, subscription = pair.open(Credits(1, handles=True))
    publication.send(b"one", timeout_s=TIMEOUT_S)
    message = subscription.recv(TIMEOUT_S)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            message.credit.release()  # the child has no images: this handle is its copy
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert publication.offer(b"two") == Offer.NO_CREDIT
    message.credit.release()
    eventually(lambda: publication.offer(b"two") > 0, "the parent returns its credit")
    subscription.recv(TIMEOUT_S).credit.release()


def test_poll_releases_handled_messages_and_keeps_aborted_ones(pair: Pair) -> None:
    publication, subscription = pair.open(Credits(4, handles=True))
    assert offered(publication, 100) == 4
    actions = iter([penstock.Action.CONTINUE, penstock.Action.ABORT])
    handled = 0

    def once() -> bool:
        nonlocal handled
        handled += subscription.controlled_poll(lambda _m, _h: next(actions))
        return handled == 1

    eventually(once, "no message")
    assert subscription.credits.returned == 1
    rest: list[bytes] = []

    def all_came() -> bool:
        subscription.poll(lambda m, _h: rest.append(bytes(m)))
        return len(rest) == 3

    eventually(all_came, "not all messages came again")
    assert rest == [b"1", b"2", b"3"]
    assert subscription.credits.returned == 4


def test_an_exception_in_a_loop_voids_the_handle(pair: Pair) -> None:
    """The message is delivered again, with a handle of its own, and nothing is reported."""
    publication, subscription = pair.open(Credits(1, handles=True))
    publication.send(b"again", 10)

    def fail() -> None:
        for message in subscription.messages(10):
            assert message == b"again"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    gc.collect()
    for message in subscription.messages(10):
        assert message == b"again"
        message.credit.release()
        break
    publication.send(b"next", 10)
    assert subscription.credits.leaked == 0


def returned(subscription: Subscription, count: int) -> bool:
    return subscription.credits.returned == count


def test_a_loop_returns_the_credit_of_a_message_whose_handle_was_not_read(pair: Pair) -> None:
    publication, subscription = pair.open(Credits(3, handles=True))
    assert offered(publication, 100) == 3
    loop = subscription.messages(TIMEOUT_S)
    first = next(loop)
    assert returned(subscription, 0)        # the body may still read the handle
    second = next(loop)
    assert returned(subscription, 1)
    credit = second.credit
    third = next(loop)
    assert returned(subscription, 1)        # the second message waits for its handle
    with pytest.raises(penstock.CreditReleased, match="read it in the body"):
        _ = first.credit
    del loop                                # as break
    assert returned(subscription, 2)
    with pytest.raises(penstock.CreditReleased, match="read it in the body"):
        third.credit.release()
    credit.release()
    assert returned(subscription, 3)
    assert second.credit.count == 0
    del first, second, third, credit
    gc.collect()
    assert subscription.credits.leaked == 0


def test_a_loop_over_batches_returns_the_credits_of_unread_handles(pair: Pair) -> None:
    publication, subscription = pair.open(Credits(4, handles=True))
    assert offered(publication, 100) == 4
    loop = subscription.batches(1, TIMEOUT_S)
    first, second = next(loop), next(loop)
    assert returned(subscription, 1)
    with pytest.raises(penstock.CreditReleased, match="read it in the body"):
        _ = first.credit
    credit = second.credit
    subscription.poll(lambda _m, _h: None)  # ends the loop's hold, and returns two credits
    assert returned(subscription, 3)
    del loop
    credit.release()
    assert returned(subscription, 4)


def test_recv_keeps_the_credit_for_the_handle(pair: Pair) -> None:
    publication, subscription = pair.open(Credits(2, handles=True))
    assert offered(publication, 100) == 2
    first, second = subscription.recv(TIMEOUT_S), subscription.recv_batch(1, TIMEOUT_S)
    subscription.poll(lambda _m, _h: None)
    assert returned(subscription, 0)
    first.credit.release()
    second.credit.release()
    assert returned(subscription, 2)


@pytest.mark.parametrize("leak", ["keep", "reclaim"])
def test_a_dropped_handle_is_reported_with_client_and_stream(
    pair: Pair, leak: penstock.client._credits.CreditLeak, caplog: pytest.LogCaptureFixture
) -> None:
    publication, subscription = pair.open(Credits(2, handles=True, leak=leak))
    assert offered(publication, 100) == 2
    kept = subscription.recv(10)
    lost = subscription.recv(10)
    del lost
    gc.collect()
    with caplog.at_level(logging.ERROR, "penstock.client"), \
            pytest.warns(ResourceWarning, match=f"stream {STREAM}.*'receiver'.*leaked"):
        subscription.poll(lambda _m, _h: None)
    assert f"stream {STREAM}" in caplog.text
    assert "'receiver'" in caplog.text
    if leak == "reclaim":
        eventually(lambda: publication.offer(b"x") > 0, "no credit")
    else:
        assert subscription.credits.leaked == 1
        kept.credit.release()
        eventually(lambda: publication.offer(b"x") > 0, "no credit")
    assert publication.offer(b"y") == Offer.NO_CREDIT


def test_a_handle_without_handles_is_refused(pair: Pair) -> None:
    publication, subscription = pair.open(5)
    publication.send(b"a", 10)
    message = subscription.recv(10)
    with pytest.raises(penstock.InvalidArgument, match="handles=True"):
        _ = message.credit
