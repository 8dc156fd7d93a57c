# SPDX-License-Identifier: Apache-2.0
"""Receive buffers follow the windows of the images of an endpoint."""

from __future__ import annotations

import pytest
from conductor_rig import MIB, Rig

from penstock.config.protocol import control
from penstock.core.driver_types import ObjectKind
from penstock.daemon.conductor import actions as a
from penstock.daemon.conductor.sagas.recv_buffers import LARGEST_BYTES, wanted_bytes

KIB = 1 << 10
UDP = "aeron:udp?endpoint=10.0.0.1:4000"


def sizes(rig: Rig) -> list[int]:
    return [action.size_bytes for action in rig.all(a.FitRecvBuffer)]


def lines(rig: Rig) -> list[str]:
    return [error.text for error in rig.all(a.LogError)]


def add(rig: Rig, client: int, subscription: int, port: int) -> None:
    channel = f"aeron:udp?endpoint=10.0.0.1:{port}"
    rig.request(client, control.AddDestination(registration_id=subscription, channel=channel))


def endpoint_id(rig: Rig) -> int:
    return next(iter(rig.state.recv_endpoints))


@pytest.mark.parametrize("window", [256, 4096, 128 * KIB, MIB, 8 * MIB, 100 * MIB, 512 * MIB])
def test_twice_the_window_is_wanted(window: int) -> None:
    assert wanted_bytes(window) == min(2 * window, LARGEST_BYTES)
    rig = Rig(storage_budget_bytes=8 << 30)
    rig.sub(rig.client(), f"{UDP}|rcv-wnd={window}")
    rig.setup(endpoint_id(rig), term_length=1 << 30, mtu=256)
    assert sizes(rig) == [wanted_bytes(window)]
    assert not lines(rig)


def test_the_window_of_the_image_counts() -> None:
    """At most half a term, whatever the subscription would take."""
    rig = Rig()
    rig.sub(rig.client(), f"{UDP}|rcv-wnd=64m")
    rig.setup(endpoint_id(rig), term_length=MIB)
    assert sizes(rig) == [MIB]


def test_of_several_images_the_largest_counts() -> None:
    rig = Rig()
    client = rig.client()
    for stream, window in ((7, "256k"), (8, "1m"), (9, "128k")):
        rig.sub(client, f"{UDP}|rcv-wnd={window}", stream)
    for session, stream in enumerate((7, 8, 9, 8)):
        rig.setup(endpoint_id(rig), stream_id=stream, session_id=session, term_length=16 * MIB)
    assert sizes(rig) == [512 * KIB, 2 * MIB]


def test_a_buffer_that_is_stated_is_left_alone() -> None:
    rig = Rig()
    rig.sub(rig.client(), f"{UDP}|rcv-wnd=1m|so-rcvbuf=2m")
    rig.setup(endpoint_id(rig), term_length=16 * MIB)
    assert not sizes(rig)
    assert not lines(rig)


@pytest.mark.parametrize(("stated", "advice"), [("", "net.core.rmem_max=4194304"),
                                              ("|so-rcvbuf=256k", "raise so-rcvbuf to 4194304")])
def test_a_window_that_does_not_fit_is_logged_once(stated: str, advice: str) -> None:
    rig = Rig()
    rig.kernel_buffer = 208 * KIB
    rig.sub(rig.client(), f"{UDP}|rcv-wnd=2m{stated}")
    for session in range(5):
        rig.setup(endpoint_id(rig), session_id=session, term_length=16 * MIB)
    assert len(lines(rig)) == 1
    (event,) = [e for e in rig.all(a.PublishEvent) if e.name == "receive_buffer_short"]
    assert event.fields["window_bytes"] == 2 * MIB
    assert event.fields["buffer_bytes"] == (256 if stated else 208) * KIB
    assert advice in lines(rig)[0]
    assert "2097152" in lines(rig)[0]


@pytest.mark.parametrize("window", [64 * KIB, 128 * KIB, 208 * KIB])
def test_windows_that_just_fit_are_not_logged(window: int) -> None:
    """The default of 128 KiB fits into what kernels grant to everybody: 208 KiB."""
    rig = Rig()
    rig.kernel_buffer = 208 * KIB
    rig.sub(rig.client(), f"{UDP}|rcv-wnd={window}")
    rig.setup(endpoint_id(rig), term_length=16 * MIB)
    assert not lines(rig)


def test_all_sockets_of_an_endpoint_follow() -> None:
    rig = Rig()
    client = rig.client()
    ready = rig.sub(client, "aeron:udp?control-mode=manual|rcv-wnd=1m")
    for port in (4001, 4002):
        add(rig, client, ready.registration_id, port)
    assert not sizes(rig)
    rig.setup(endpoint_id(rig), term_length=16 * MIB, destination=0)
    assert sizes(rig) == [2 * MIB] * 2
    add(rig, client, ready.registration_id, 4003)
    assert sizes(rig) == [2 * MIB] * 3


def test_a_manual_subscription_states_the_buffers_of_its_destinations() -> None:
    rig = Rig()
    client = rig.client()
    ready = rig.sub(client, "aeron:udp?control-mode=manual|so-rcvbuf=3m|so-sndbuf=1m")
    add(rig, client, ready.registration_id, 4000)
    socket = rig.last(a.AddRecvDestination).params.socket
    assert (socket.rcvbuf_bytes, socket.sndbuf_bytes) == (3 * MIB, MIB)


def test_a_destination_that_leaves_meanwhile_costs_no_image() -> None:
    rig = Rig()
    client = rig.client()
    ready = rig.sub(client, "aeron:udp?control-mode=manual|rcv-wnd=1m")
    for port in (4001, 4002):
        add(rig, client, ready.registration_id, port)
    endpoint = rig.state.recv_endpoints[endpoint_id(rig)]
    rig.hold(a.FitRecvBuffer)
    rig.setup(endpoint.id, term_length=16 * MIB, established=False)
    endpoint.destinations.pop(next(iter(endpoint.destinations)))
    rig.fail(a.FitRecvBuffer, "invalid", "destination does not exist")
    rig.resume()
    rig.resume()
    assert [kind for kind, _ in rig.native].count(ObjectKind.IMAGE) == 1
