# SPDX-License-Identifier: Apache-2.0
"""The client from its opening to its end: waiting, closing, forking, the daemon's death."""

from __future__ import annotations

import os

import pytest
from local_port import CHANNEL, FAR, STREAM, LocalPort, collect

from penstock.client import Client, Offer, Publication, Subscription
from penstock.config.protocol import control
from penstock.core import errors


@pytest.fixture(params=["fast", "plain"], autouse=True)
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Everything holds with the per-message part in C and without."""
    chosen: str = request.param
    monkeypatch.setenv("PENSTOCK_FAST", "1" if chosen == "fast" else "0")
    return chosen


# ---- waiting -------------------------------------------------------------------------------------


def test_send_waits_for_a_receiver_and_for_room(port: LocalPort, client: Client) -> None:
    publication = client.add_publication(CHANNEL, STREAM)
    identity = publication.registration_id
    with pytest.raises(errors.NotConnected):
        publication.send(b"x", 0, wait_connected=False)
    with pytest.raises(errors.TimeoutExpired, match="NOT_CONNECTED"):
        publication.send(b"x", 0)
    port.open_up(identity, limit=0)
    with pytest.raises(errors.TimeoutExpired, match="BACK_PRESSURED"):
        publication.send(b"x", 0.001)
    pressure = publication.pressure()
    assert pressure.refused_episodes == 0       # the refusals of this one go on
    assert set(pressure.refused) == {"no_receiver"}
    port.soon(port.move_limit, identity, FAR)
    assert publication.send(b"x", 30) == 64
    pressure = publication.pressure()
    assert (pressure.refused_episodes, pressure.cause) == (1, "none")
    assert pressure.refused["none"] > 0         # no thread looks at the log here
    assert pressure.refused_ns > 0


def test_send_batch_sends_all(port: LocalPort, client: Client) -> None:
    publication = client.add_publication(CHANNEL, STREAM)
    port.open_up(publication.registration_id, limit=64)
    subscription = client.add_subscription(CHANNEL, STREAM)
    port.soon(port.move_limit, publication.registration_id, FAR)
    assert publication.send_batch([b"%d" % i for i in range(9)], 30) == 9 * 64
    assert collect(subscription) == [b"%d" % i for i in range(9)]


def test_waiting_ends_when_the_daemon_dies(port: LocalPort, client: Client) -> None:
    publication = client.add_publication(CHANNEL, STREAM)
    subscription = client.add_subscription(CHANNEL, STREAM)
    port.soon(port.die)
    for wait in (
        lambda: subscription.wait(30),
        lambda: publication.send(b"x", 30),
        lambda: publication.wait_connected(30),
        lambda: client.add_publication(CHANNEL, STREAM),
    ):
        with pytest.raises(errors.DaemonGone):
            wait()
    publication.close()  # what is here can still be closed
    subscription.close()


def test_what_is_in_the_log_can_be_read_after_the_daemon_died(
    port: LocalPort, stream: tuple[Publication, Subscription]
) -> None:
    publication, subscription = stream
    assert subscription.is_connected
    publication.offer(b"before")
    port.die()
    assert subscription.wait(0) is True
    assert collect(subscription) == [b"before"]
    with pytest.raises(errors.DaemonGone):
        subscription.wait(30)


# ---- life ----------------------------------------------------------------------------------------


def test_a_closed_client_is_of_no_use(port: LocalPort) -> None:
    client = port.client()
    publication = client.add_publication(CHANNEL, STREAM)
    subscription = client.add_subscription(CHANNEL, STREAM)
    counter = client.add_counter("requests")
    client.close()
    client.close()
    assert publication.offer(b"x") is Offer.CLOSED
    for use in (
        lambda: client.add_publication(CHANNEL, STREAM),
        lambda: client.counters,
        lambda: subscription.poll(lambda _m, _h: None),
        lambda: subscription.wait(0),
        lambda: counter.get(),
    ):
        with pytest.raises(errors.ClosedError):
            use()


def test_registrations_are_kept_as_data(port: LocalPort, client: Client) -> None:
    publication = client.add_publication("aeron:udp?control-mode=manual", STREAM)
    subscription = client.add_subscription(CHANNEL, STREAM + 1)
    publication.add_destination("aeron:udp?endpoint=localhost:7001")
    publication.add_destination("aeron:udp?endpoint=localhost:7002")
    publication.remove_destination("aeron:udp?endpoint=localhost:7001")
    with pytest.raises(errors.ChannelRefused):
        publication.add_destination("bad")
    first, second = client.registrations
    assert first.request == control.AddPublication(
        channel="aeron:udp?control-mode=manual", stream_id=STREAM
    )
    assert first.destinations == ("aeron:udp?endpoint=localhost:7002",)
    assert second.request == control.AddSubscription(channel=CHANNEL, stream_id=STREAM + 1)
    subscription.close()
    publication.close()
    assert client.registrations == ()
    assert isinstance(port.requests[-1], control.RemovePublication)


def test_a_forked_child_is_refused(
    port: LocalPort, stream: tuple[Publication, Subscription], client: Client
) -> None:
    publication, subscription = stream
    assert subscription.is_connected
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        refused = 0
        for use in (
            lambda: publication.offer(b"x"),
            lambda: publication.try_claim(1),
            lambda: subscription.poll(lambda _m, _h: None),
            lambda: subscription.wait(0),
            lambda: client.add_counter("c"),
            lambda: publication.position,
        ):
            try:
                use()
            except errors.ForkedError:
                refused += 1
            except BaseException:
                refused -= 100
        os.write(writer, b"%d" % refused)
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    answer = os.read(reader, 16)
    os.close(reader)
    assert answer == b"6"
    assert publication.offer(b"still here") > 0


def test_counters_count(port: LocalPort, client: Client) -> None:
    with client.add_counter("requests", value=5) as counter:
        assert counter.increment() == 6
        assert counter.add(-10) == -4
        counter.set(2**62)
        assert client.counters[counter.id] == counter.get() == 2**62
        with pytest.raises(errors.InvalidArgument):
            counter.set(2**63)
        with pytest.raises(IndexError):
            _ = client.counters[len(client.counters)]
    with pytest.raises(errors.ClosedError):
        counter.get()
    with pytest.raises(errors.InvalidArgument, match="380"):
        client.add_counter("x" * 381)


def test_rejections_are_listed(
    port: LocalPort, client: Client, stream: tuple[Publication, Subscription]
) -> None:
    publication, _ = stream
    assert publication.rejections == ()
    port.notices(publication.registration_id)
    port.notify(
        control.PublicationError(
            registration_id=publication.registration_id, receiver_id=3, source="10.0.0.1:40456",
            code=1, message="not wanted",
        )
    )
    (rejection,) = publication.rejections
    assert (rejection.source, rejection.message) == ("10.0.0.1:40456", "not wanted")
    for receiver, count in ((3, 6), (4, 1), (3, 11)):
        port.notify(
            control.PublicationError(
                registration_id=publication.registration_id, receiver_id=receiver,
                source="10.0.0.1:40456", code=1, message="not wanted", count=count,
            )
        )
    assert [(r.receiver_id, r.count) for r in publication.rejections] == [(4, 1), (3, 11)]
    assert publication.rejections == publication.rejections


def test_statistics_are_frozen(stream: tuple[Publication, Subscription]) -> None:
    publication, subscription = stream
    publication.offer(b"x")
    collect(subscription)
    now = publication.statistics()
    assert (now.position, now.is_connected, now.session_id) == (64, True, publication.session_id)
    assert subscription.statistics().positions == ((publication.session_id, 64),)
    with pytest.raises(AttributeError):
        now.position = 0  # type: ignore[misc]


def test_arguments_are_checked_here(client: Client) -> None:
    for use in (
        lambda: client.add_publication("", STREAM),
        lambda: client.add_subscription("x" * 5000, STREAM),
        lambda: client.add_publication(CHANNEL, 2**31),
    ):
        with pytest.raises(errors.InvalidArgument):
            use()
