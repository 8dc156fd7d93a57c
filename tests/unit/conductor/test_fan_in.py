# SPDX-License-Identifier: Apache-2.0
"""How the conductor divides a receiver window among the images of a subscription."""

from __future__ import annotations

import pytest
from conductor_rig import Rig

from penstock.config.protocol import control
from penstock.core.driver_events import EventType
from penstock.core.driver_types import ImageEnd, ObjectKind
from penstock.daemon.conductor import actions as a
from penstock.daemon.conductor.actions.congestion import SetWindowShare

KIB = 1024
UDP = "aeron:udp?endpoint=127.0.0.1:40500|rcv-wnd=128k"


def joined(rig: Rig, options: str, *priorities: int) -> dict[int, int]:
    """Add a subscription, and a publisher for each priority; return the window of each session."""
    rig.sub(rig.client("reader"), f"{UDP}{options}")
    endpoint = rig.last(a.OpenRecvEndpoint).params.id
    for session_id, priority in enumerate(priorities, 1):
        rig.setup(endpoint, session_id=session_id, peer_priority=priority)
    return windows(rig)


def windows(rig: Rig) -> dict[int, int]:
    """Return the window in KiB that the receiver has for each session."""
    told = {action.image_id: action.window for action in rig.all(SetWindowShare)}
    return {
        image.session_id: (told.get(image.id, 0) or image.params.window_bytes) // KIB
        for image in rig.state.images.values()
    }


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", {1: 128, 2: 128, 3: 128}),
        ("|ps-fanin=equal", {1: 42, 2: 42, 3: 42}),
        ("|ps-fanin=priority", {1: 93, 2: 23, 3: 11}),
        ("|ps-fanin=equal|ps-credits=10", {1: 128, 2: 128, 3: 128}),
    ],
)
def test_images_divide_one_window(options: str, expected: dict[int, int]) -> None:
    assert joined(Rig(), options, 1000, 250, -1000) == expected


def test_priorities_weigh() -> None:
    """The weights are those of the bands: 8, 4, 2, 1 and 1."""
    for priority, weight in ((750, 8), (749, 4), (500, 4), (250, 2), (249, 1), (0, 1), (-1000, 1)):
        share = 128 * KIB * weight // (weight + 1) // 32 * 32
        assert joined(Rig(), "|ps-fanin=priority", priority, 0)[1] == share // KIB


def test_a_share_has_room_for_two_datagrams() -> None:
    rig = Rig(stream_session_limit=1000)
    joined(rig, "|ps-fanin=equal", *[0] * 100)
    assert rig.last(SetWindowShare).window == 2 * 1408


def test_an_image_that_leaves_gives_its_part_to_the_others() -> None:
    rig = Rig()
    joined(rig, "|ps-fanin=equal", 0, 0, 0, 0)
    ended = next(iter(rig.state.images.values()))
    rig.event(
        EventType.IMAGE_INACTIVE, kind=ObjectKind.IMAGE, id=ended.id, position=0, messages=0,
        reason=ImageEnd.TIMEOUT,
    )
    left = windows(rig)
    assert {left[session_id] for session_id in (2, 3, 4)} == {42}


def test_the_least_share_of_two_subscriptions_counts() -> None:
    """One that leaves the fan-in out widens no window; when the other closes, no share is left."""
    rig = Rig()
    client = rig.client("reader")
    rig.sub(client, UDP)
    ready = rig.sub(client, f"{UDP}|ps-fanin=equal")
    endpoint = rig.last(a.OpenRecvEndpoint).params.id
    for session_id in (1, 2):
        rig.setup(endpoint, session_id=session_id)
    assert windows(rig) == {1: 64, 2: 64}
    rig.request(client, control.RemoveSubscription(registration_id=ready.registration_id))
    assert windows(rig) == {1: 128, 2: 128}


def test_links_state_the_weight_to_clients() -> None:
    rig = Rig()
    joined(rig, "|ps-fanin=priority", 500, 0)
    notices = [
        action.notice for action in rig.all(a.Notify)
        if isinstance(action.notice, control.ImageAvailable)
    ]
    assert [notice.fan_in_weight for notice in notices] == [4, 1]
