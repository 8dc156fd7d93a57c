# SPDX-License-Identifier: Apache-2.0
"""Whether a stream waits for a reader: the policies of both ends."""

from __future__ import annotations

import pytest
from conductor_rig import Rig

from penstock.config.protocol import control
from penstock.core.driver_types import FlowControl, Isolation, Policy
from penstock.daemon.conductor import actions as a

KIB = 1024
IPC = "aeron:ipc?term-length=64k"
UDP = "aeron:udp?endpoint=10.0.0.1:4000|rcv-wnd=64k"
SKIPS = "ps-policy=drop_oldest"
OLDEST, GATES = Isolation.DROP_OLDEST, Isolation.GATES
INDEPENDENT = Isolation.INDEPENDENT


def joined(rig: Rig) -> tuple[Isolation, int]:
    """How the client treats its last stream; the agent was told the same."""
    kinds = (a.AddPublicationSubscriber, a.AddImageSubscriber)
    params = [action for action in rig.done if isinstance(action, kinds)][-1].params
    notice = rig.notices(control.ImageAvailable)[-1]
    assert params.isolated == (notice.isolation != GATES)
    assert params.depth_bytes == notice.depth_bytes
    assert params.tether
    return Isolation(notice.isolation), notice.depth_bytes


def messages_of(rig: Rig) -> int:
    """The depth in messages of the last reader, as the agent was told."""
    kinds = (a.AddPublicationSubscriber, a.AddImageSubscriber)
    return [action for action in rig.done if isinstance(action, kinds)][-1].params.depth_messages


def arrive(
    rig: Rig, policy: Policy = Policy.DROP_OLDEST, depth_bytes: int = 0, depth_messages: int = 0
) -> None:
    (endpoint,) = rig.state.recv_endpoints.values()
    rig.setup(endpoint.id, peer_policy=int(policy), peer_depth_bytes=depth_bytes,
              peer_depth_messages=depth_messages)


@pytest.mark.parametrize(("published", "read", "found"), [
    ("", "", (GATES, 0)),
    ("ps-policy=drop_newest", "", (GATES, 0)),
    (SKIPS, "", (OLDEST, 16 * KIB)),                            # a quarter of the window of a term
    (f"{SKIPS}|ps-depth=8k", "", (OLDEST, 8 * KIB)),
    (f"{SKIPS}|ps-depth=60k", "tether=false", (OLDEST, 32 * KIB)),          # half of it at most
    (SKIPS, "ps-sub-policy=independent|ps-sub-depth=4k", (INDEPENDENT, 4 * KIB)),
    ("", "ps-sub-policy=drop_oldest", (OLDEST, 16 * KIB)),
])
@pytest.mark.parametrize("first", ["publication", "subscription"])
def test_the_policy_of_a_local_publication_is_that_of_its_readers(
    published: str, read: str, found: tuple[Isolation, int], first: str
) -> None:
    rig = Rig()
    client = rig.client()
    if first == "publication":
        rig.pub(client, f"{IPC}|{published}".rstrip("|"))
        rig.sub(client, f"{IPC}|{read}".rstrip("|"))
    else:
        rig.sub(client, f"{IPC}|{read}".rstrip("|"))
        rig.pub(client, f"{IPC}|{published}".rstrip("|"))
    assert joined(rig) == found


@pytest.mark.parametrize(("policy", "depth_bytes", "found"), [
    (Policy.NONE, 0, (GATES, 0)),
    (Policy.DROP_NEWEST, 4096, (GATES, 0)),
    (Policy.DROP_OLDEST, 0, (OLDEST, 16 * KIB)),
    (Policy.DROP_OLDEST, 8 * KIB, (OLDEST, 8 * KIB)),
    (Policy.DROP_OLDEST, 1 << 62, (OLDEST, 32 * KIB)),
])
def test_the_policy_of_a_setup_is_that_of_the_images_readers(
    policy: Policy, depth_bytes: int, found: tuple[Isolation, int]
) -> None:
    rig = Rig()
    client = rig.client()
    rig.sub(client, UDP)
    arrive(rig, policy, depth_bytes)
    assert joined(rig) == found
    rig.sub(client, UDP)                                        # one that comes later
    assert joined(rig) == found


@pytest.mark.parametrize(("stated", "read", "found", "messages"), [
    ((0, 20), "", (OLDEST, 32 * KIB), 20),                      # half of the window
    ((8 * KIB, 20), "", (OLDEST, 8 * KIB), 20),
    ((0, 20), "ps-sub-policy=drop_oldest|ps-sub-depth=7msg", (OLDEST, 32 * KIB), 7),
    ((0, 20), "ps-sub-policy=drop_oldest|ps-sub-depth=4k", (OLDEST, 4 * KIB), 0),
    ((0, 20), "ps-sub-policy=independent", (INDEPENDENT, 16 * KIB), 0),
])
@pytest.mark.parametrize("medium", ["ipc", "udp"])
def test_a_depth_in_messages_is_that_of_the_readers(
    medium: str, stated: tuple[int, int], read: str, found: tuple[Isolation, int], messages: int
) -> None:
    rig = Rig()
    client = rig.client()
    rig.sub(client, f"{IPC if medium == 'ipc' else UDP}|{read}".rstrip("|"))
    if medium == "ipc":
        depth = f"{stated[0]},{stated[1]}msg" if stated[0] else f"{stated[1]}msg"
        rig.pub(client, f"{IPC}|{SKIPS}|ps-depth={depth}")
    else:
        arrive(rig, Policy.DROP_OLDEST, *stated)
    assert joined(rig) == found
    assert messages_of(rig) == messages


@pytest.mark.parametrize("stated", ["ps-sub-policy=block", "ps-credits=5"])
def test_a_reader_that_must_not_miss_is_refused_with_both_names(stated: str) -> None:
    words = f"{stated} contradicts ps-policy=drop_oldest"
    rig = Rig()
    client = rig.client()
    rig.pub(client, f"{IPC}|{SKIPS}")
    refused = rig.sub(client, f"{IPC}|{stated}")
    assert refused.code == "not_supported"
    assert words in refused.message

    rig = Rig()
    rig.sub(rig.client(), f"{UDP}|{stated}")
    arrive(rig)
    assert not rig.all(a.AddImageObject)
    assert words in rig.last(a.RefuseSession).reason            # it goes out as ERR
    assert words in rig.last(a.LogError).text


def test_a_reader_that_must_not_miss_costs_the_others_no_stream() -> None:
    rig = Rig()
    client = rig.client()
    rig.sub(client, f"{UDP}|ps-credits=5")
    rig.sub(client, UDP)
    arrive(rig)
    assert joined(rig)[0] is OLDEST
    assert len(rig.all(a.AddImageSubscriber)) == 1
    assert rig.all(a.AddImageObject)[0].params.credits == 0
    assert "ps-credits=5 contradicts" in rig.last(a.LogError).text
    assert "contradicts" in rig.sub(client, f"{UDP}|ps-sub-policy=block").message


@pytest.mark.parametrize(("published", "read", "found"), [
    ("ps-fanout=min", "", (GATES, 0)),
    ("ps-fanout=independent", "", (INDEPENDENT, 16 * KIB)),
    ("ps-fanout=independent", "ps-sub-policy=block", (GATES, 0)),
    ("ps-fanout=independent", "ps-credits=5", (GATES, 0)),
    ("ps-fanout=independent", "ps-sub-policy=drop_oldest|ps-sub-depth=4k", (OLDEST, 4 * KIB)),
    (f"ps-fanout=independent|{SKIPS}", "", (OLDEST, 16 * KIB)),
])
def test_a_fanout_is_that_of_local_readers(
    published: str, read: str, found: tuple[Isolation, int]
) -> None:
    rig = Rig()
    client = rig.client()
    rig.pub(client, f"{IPC}|{published}")
    rig.sub(client, f"{IPC}|{read}".rstrip("|"))
    assert joined(rig) == found


@pytest.mark.parametrize(("options", "kind"), [
    ("", FlowControl.MAX), ("ps-fanout=min", FlowControl.MIN),
    ("ps-fanout=independent", FlowControl.MAX), ("ps-fanout=min|fc=min,t:1s", FlowControl.MIN),
    ("ps-fanout=independent|fc=nak", FlowControl.NAK),
])
def test_a_fanout_is_the_strategy_of_a_group(options: str, kind: FlowControl) -> None:
    rig = Rig()
    group = "aeron:udp?endpoint=239.20.0.1:4001|interface=10.0.0.0/24"
    rig.pub(rig.client(), f"{group}|{options}".rstrip("|"))
    assert rig.last(a.AddPublicationObject).params.flow_control is kind
    rig.pub(rig.client(), f"{UDP}|{options.partition('|')[0]}".rstrip("|"))
    assert rig.last(a.AddPublicationObject).params.flow_control is FlowControl.UNICAST


def test_a_second_publisher_states_the_same_fanout() -> None:
    rig = Rig()
    client = rig.client()
    rig.pub(client, f"{IPC}|ps-fanout=independent")
    assert "ps-fanout=min" in rig.pub(client, f"{IPC}|ps-fanout=min").message


RETAINS = "ps-retention=64k|ps-retention-time=5s"


@pytest.mark.parametrize("first", ["publication", "subscription"])
def test_a_reader_that_states_block_contradicts_a_retention(first: str) -> None:
    rig = Rig()
    client = rig.client()
    refusal = "ps-sub-policy=block contradicts ps-retention=64k of the publication"
    if first == "publication":
        rig.pub(client, f"{IPC}|{RETAINS}")
        assert refusal in rig.sub(client, f"{IPC}|ps-sub-policy=block").message
        words = "ps-credits=5 contradicts ps-retention=64k"
        assert words in rig.sub(client, f"{IPC}|ps-credits=5").message
    else:
        rig.sub(client, f"{IPC}|ps-sub-policy=block")
        rig.pub(client, f"{IPC}|{RETAINS}")
        assert refusal in rig.last(a.LogError).text
        assert not rig.notices(control.ImageAvailable)


def test_a_setup_that_states_a_retention_is_refused_to_a_reader_that_states_block() -> None:
    rig = Rig()
    client = rig.client()
    rig.sub(client, f"{UDP}|ps-sub-policy=block")
    (endpoint,) = rig.state.recv_endpoints.values()
    rig.setup(endpoint.id, retention_ns=5 * 10**9)
    assert "contradicts ps-retention-time=5s" in rig.last(a.RefuseSession).reason
    assert not rig.state.images


def test_an_image_has_the_limits_of_the_setup() -> None:
    rig = Rig()
    rig.sub(rig.client(), UDP)
    (endpoint,) = rig.state.recv_endpoints.values()
    rig.setup(endpoint.id, retention_bytes=64 * KIB, retention_ns=5 * 10**9)
    (image,) = rig.state.images.values()
    assert (image.params.retention_bytes, image.params.retention_ns) == (64 * KIB, 5 * 10**9)


def test_publishers_of_a_stream_state_one_retention() -> None:
    rig = Rig()
    client = rig.client()
    rig.pub(client, f"{IPC}|ps-retention=32k")
    assert "ps-retention=16k" in rig.pub(client, f"{IPC}|ps-retention=16k").message
