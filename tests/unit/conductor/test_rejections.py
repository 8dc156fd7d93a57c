# SPDX-License-Identifier: Apache-2.0
"""Rejected and revoked streams: what publishers hear of them, and what is counted."""

from __future__ import annotations

from conductor_rig import Rig

from penstock.config.protocol import control
from penstock.core.driver_types import Address, EventType, ImageEnd, ObjectKind, SystemCounter
from penstock.daemon.conductor import actions as a

SENDS = "aeron:udp?endpoint=10.0.0.2:40456"
RECEIVES = "aeron:udp?endpoint=10.0.0.1:40456"
SOURCE = Address(ip="10.0.0.2", port=40456)


def rejected(rig: Rig, publication: int, receiver: int) -> None:
    rig.event(
        EventType.REMOTE_ERROR, kind=ObjectKind.PUBLICATION, id=publication, receiver_id=receiver,
        code=13, text="not wanted", source=SOURCE,
    )


def counted(rig: Rig, counter: SystemCounter) -> int:
    return sum(x.delta for x in rig.all(a.AddToSystemCounter) if x.counter_id == counter)


def test_err_frames_of_one_receiver_are_told_once_a_second_with_their_count() -> None:
    rig = Rig()
    ready = rig.pub(rig.client(), SENDS)
    for _ in range(50):                                         # 10 s, 200 ms apart
        rejected(rig, ready.original_id, 7)
        rig.advance(0.2)
    notices = rig.notices(control.PublicationError)
    assert len(notices) == 10
    assert [n.count for n in notices] == list(range(1, 51, 5))
    assert {n.source for n in notices} == {str(SOURCE)}
    assert len({x.text for x in rig.all(a.LogError)}) == 1


def test_rejections_of_many_receivers_are_bounded() -> None:
    rig = Rig()
    ready = rig.pub(rig.client(), SENDS)
    for receiver in range(1000):
        rejected(rig, ready.original_id, receiver)
    assert len(rig.state.publications[ready.original_id].rejections) == 64
    assert len({x.text for x in rig.all(a.LogError)}) == 1


def test_a_revocation_and_a_rejection_are_counted_by_the_data_plane_alone() -> None:
    rig = Rig()
    client = rig.client()
    ready = rig.pub(client, SENDS, exclusive=True)
    rig.request(
        client, control.RemovePublication(registration_id=ready.registration_id, revoke=True)
    )
    assert rig.all(a.RevokePublication)
    rig.sub(client, RECEIVES)
    rig.setup(rig.last(a.OpenRecvEndpoint).params.id)
    image = rig.last(a.AddImageObject).params.id
    rig.request(client, control.RejectImage(correlation_id=image, reason="bad"))
    assert rig.all(a.RejectImageObject)
    rig.event(EventType.IMAGE_INACTIVE, kind=ObjectKind.IMAGE, id=image, reason=ImageEnd.REVOKED)
    for counter in (
        SystemCounter.PUBLICATIONS_REVOKED, SystemCounter.IMAGES_REVOKED,
        SystemCounter.IMAGES_REJECTED,
    ):
        assert counted(rig, counter) == 0
