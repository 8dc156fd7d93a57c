# SPDX-License-Identifier: Apache-2.0
"""Withheld credits in the conductor: readers that are there, and readers that join later."""

from __future__ import annotations

import pytest
from conductor_rig import Rig

from penstock.config.protocol import control
from penstock.core.driver_types import EventType, ObjectKind
from penstock.daemon.conductor import actions as a
from penstock.daemon.conductor.actions.credits import SetImageCredits, SetPublicationCredits

UDP = "aeron:udp?endpoint=10.0.0.1:4000"


def test_a_withheld_subscription_freezes_its_images_and_those_that_join() -> None:
    rig = Rig()
    client = rig.client("operator")
    ready = rig.sub(client, f"{UDP}|ps-credits=5|ps-credit-burst=9")
    endpoint = rig.last(a.OpenRecvEndpoint).params.id
    rig.setup(endpoint)
    first = rig.last(a.AddImageSubscriber).params
    assert (first.credits, first.credit_burst, first.frozen) == (5, 9, False)
    request = control.WithholdCredits(registration_id=ready.registration_id, withheld=True)
    assert isinstance(rig.request(client, request), control.Done)
    frozen = rig.last(SetImageCredits)
    assert (frozen.position_counter_id, frozen.credits, frozen.burst, frozen.frozen) == (
        first.position_counter_id, 5, 9, True
    )
    rig.setup(endpoint, session_id=78)
    assert rig.last(a.AddImageObject).params.frozen
    assert rig.last(a.AddImageSubscriber).params.frozen
    request = control.WithholdCredits(registration_id=ready.registration_id, withheld=False)
    rig.request(client, request)
    assert [each.frozen for each in rig.all(SetImageCredits)[-2:]] == [False, False]


@pytest.mark.parametrize("established", [True, False])
def test_an_image_that_ends_meanwhile_does_not_fail_a_withhold(*, established: bool) -> None:
    """The receiver has removed the first image, and the conductor has not unlinked it yet."""
    rig = Rig()
    client = rig.client()
    ready = rig.sub(client, f"{UDP}|ps-credits=5")
    endpoint = rig.last(a.OpenRecvEndpoint).params.id
    for session_id in (42, 43):
        rig.setup(endpoint, session_id=session_id, established=established)
    request = control.WithholdCredits(registration_id=ready.registration_id, withheld=True)
    rig.fail(SetImageCredits, "unknown_registration", "SetImageCredits: 6 has gone")
    assert isinstance(rig.request(client, request), control.Done)
    assert [each.frozen for each in rig.all(SetImageCredits)] == [True]        # of the second image
    rig.fail(SetImageCredits, "storage", "another failure is told to the client")
    assert rig.request(client, request).code == "storage"


def test_an_image_without_reader_is_withheld_by_its_own_grant() -> None:
    rig = Rig()
    client = rig.client()
    ready = rig.sub(client, f"{UDP}|ps-credits=5")
    rig.setup(rig.last(a.OpenRecvEndpoint).params.id, established=False)
    assert (rig.last(a.AddImageObject).params.credits, rig.all(a.AddImageSubscriber)) == (5, [])
    rig.request(
        client, control.WithholdCredits(registration_id=ready.registration_id, withheld=True)
    )
    told = rig.last(SetImageCredits)
    assert (told.position_counter_id, told.frozen) == (-1, True)


def test_a_withhold_names_the_images_without_a_frame_and_reports_their_end() -> None:
    rig = Rig()
    client = rig.client()
    ready = rig.sub(client, f"{UDP}|ps-credits=5")
    endpoint = rig.last(a.OpenRecvEndpoint).params.id
    for session_id in (42, 43):
        rig.setup(endpoint, session_id=session_id, established=False)
    first, second = rig.state.images
    request = control.WithholdCredits(registration_id=ready.registration_id, withheld=True)
    done = rig.request(client, request)
    source = str(rig.state.images[first].source)
    assert done.coming == {str(first): [42, source], str(second): [43, source]}
    rig.event(EventType.IMAGE_ESTABLISHED, kind=ObjectKind.IMAGE, id=first)
    assert rig.request(client, request).coming == {str(second): [43, source]}
    assert rig.notices(control.ImageUnavailable) == []
    rig.event(EventType.IMAGE_INACTIVE, kind=ObjectKind.IMAGE, id=second, reason=0, position=0)
    assert [n.correlation_id for n in rig.notices(control.ImageUnavailable)] == [second]
    assert rig.request(client, request).coming == {}


def test_a_local_reader_is_withheld_through_its_publication() -> None:
    rig = Rig()
    client = rig.client()
    ready = rig.sub(client, "aeron:ipc?ps-credits=3")
    rig.pub(client, "aeron:ipc")
    rig.request(
        client, control.WithholdCredits(registration_id=ready.registration_id, withheld=True)
    )
    assert rig.last(SetPublicationCredits).frozen


@pytest.mark.parametrize("channel", [UDP, "aeron:ipc"])
def test_a_subscription_without_credits_cannot_be_withheld(channel: str) -> None:
    rig = Rig()
    client = rig.client()
    ready = rig.sub(client, channel)
    answer = rig.request(
        client, control.WithholdCredits(registration_id=ready.registration_id, withheld=True)
    )
    assert (answer.code, "grants no credits" in answer.message) == ("not_supported", True)


def test_another_client_cannot_withhold_it() -> None:
    rig = Rig()
    ready = rig.sub(rig.client(), f"{UDP}|ps-credits=5")
    answer = rig.request(
        rig.client(),
        control.WithholdCredits(registration_id=ready.registration_id, withheld=True),
    )
    assert answer.code == "unknown_registration"


@pytest.mark.parametrize("channel", [UDP, "aeron:ipc"])
def test_lost_credits_are_an_event_that_names_client_and_stream(channel: str) -> None:
    rig = Rig()
    client = rig.client("worker")
    ready = rig.sub(client, f"{channel}?ps-credits=5" if channel == "aeron:ipc" else
                    f"{channel}|ps-credits=5")
    if channel == UDP:
        rig.setup(rig.last(a.OpenRecvEndpoint).params.id)
        slot = rig.last(a.AddImageSubscriber).params.slot
    else:
        rig.pub(client, channel)
        slot = rig.last(a.AddPublicationSubscriber).params.slot

    def told() -> list[tuple[int, int]]:
        rig.advance(1.0)
        events = [e.fields for e in rig.all(a.PublishEvent) if e.name == "credits_lost"]
        assert all((e["client_id"], e["name"]) == (client, "worker") for e in events)
        assert {e["stream_id"] for e in events} <= {ready.stream_id}
        return [(e["credits"], e["leaked"]) for e in events]

    assert told() == []
    rig.leaked[slot] = 3
    assert told() == told() == [(3, 3)]
    rig.leaked[slot] = 1                # two were reclaimed
    assert told() == [(3, 3)]
    rig.leaked[slot] = 2
    assert told() == [(3, 3), (1, 2)]
    rig.request(client, control.RemoveSubscription(registration_id=ready.registration_id))
    rig.leaked[slot] = 9
    assert told() == [(3, 3), (1, 2)]
    rig.advance(10.0)
    assert "lost 3 credits" in rig.all(a.Warn)[0].text
