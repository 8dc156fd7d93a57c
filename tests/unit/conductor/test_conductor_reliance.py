# SPDX-License-Identifier: Apache-2.0
"""Whether a sender waits for a group that is behind, as far as that is known."""

from __future__ import annotations

from typing import Any

import pytest
from group_rig import GROUP, UDP, GroupRig

from penstock.core.driver_types import FlowControl
from penstock.daemon.conductor import actions as a


def multicast(rig: GroupRig, fc: str) -> None:
    """A publication here, and its image here."""
    ready = rig.pub(rig.client(), f"{GROUP}|fc={fc}")
    publication = rig.state.publications[ready.original_id]
    rig.sub(rig.client(), GROUP)
    rig.setup(rig.endpoint(), session_id=publication.session_id, flags=0x40,
              initial_term_id=publication.initial_term_id,
              active_term_id=publication.initial_term_id)
    rig.ends[rig.image()] = 0


def test_a_strategy_that_does_not_wait_is_refused_and_named() -> None:
    rig = GroupRig()
    multicast(rig, "max")
    answer = rig.open(GROUP)
    assert answer.code == "unreliable"
    assert "flow control is max" in answer.message
    assert not rig.state.groups
    warnings = rig.open(GROUP, allow_unreliable=True).group["warnings"]
    assert any("flow control is max" in warning for warning in warnings)


def test_a_strategy_that_waits_is_taken() -> None:
    rig = GroupRig()
    multicast(rig, "min")
    assert not any("flow control" in w for w in rig.open(GROUP).group["warnings"])


def test_an_unknown_strategy_is_warned_of() -> None:
    rig = GroupRig()
    rig.open(GROUP)
    rig.setup(rig.endpoint(), flags=0x40)
    rig.ends[rig.image()] = 0
    [warning] = rig.open(GROUP).group["warnings"]
    assert "not known here" in warning


def doubts(state: dict[str, Any]) -> list[str]:
    """Warnings that are not about windows."""
    return [warning for warning in state["warnings"] if "its window is" not in warning]


def from_another_host(strategy: FlowControl, tag: int = 0) -> GroupRig:
    """A stream of a sender that states its flow control, as penstock does."""
    rig = GroupRig()
    rig.sub(rig.client(), GROUP)
    rig.setup(rig.endpoint(), flags=0x40, peer_flow_control=int(strategy), peer_group_tag=tag)
    rig.ends[rig.image()] = 0
    return rig


@pytest.mark.parametrize("strategy", [FlowControl.MAX, FlowControl.NAK, FlowControl.CUSTOM])
def test_what_another_host_states_is_refused_when_it_does_not_wait(strategy: FlowControl) -> None:
    rig = from_another_host(strategy)
    answer = rig.open(GROUP)
    assert answer.code == "unreliable"
    assert f"flow control is {strategy.name.lower()}" in answer.message
    assert rig.open(GROUP, allow_unreliable=True).group["unreliable"]


def test_what_another_host_states_is_taken_when_it_waits() -> None:
    state = from_another_host(FlowControl.MIN).open(GROUP).group
    assert state["unreliable"] == doubts(state) == []


def test_a_tag_counts_when_it_is_the_senders() -> None:
    assert "no gtag" in from_another_host(FlowControl.TAGGED, 7).open(GROUP).message
    tagged = f"{GROUP}|gtag=7"
    rig = GroupRig()
    rig.sub(rig.client(), tagged)
    rig.setup(rig.endpoint(), flags=0x40, peer_flow_control=3, peer_group_tag=8)
    rig.ends[rig.image()] = 0
    assert "gtag=8, and the channel states gtag=7" in rig.open(tagged).message
    rig = GroupRig()
    rig.sub(rig.client(), tagged)
    rig.setup(rig.endpoint(), flags=0x40, peer_flow_control=3, peer_group_tag=7)
    rig.ends[rig.image()] = 0
    assert doubts(rig.open(tagged).group) == []


def test_one_that_comes_later_is_told_with_the_state() -> None:
    rig = GroupRig()
    assert rig.open(GROUP).group["unreliable"] == []
    rig.setup(rig.endpoint(), flags=0x40, peer_flow_control=int(FlowControl.MAX))
    rig.ends[rig.image()] = 0
    [what] = rig.open(GROUP).group["unreliable"]
    assert "flow control is max" in what


def test_a_subscription_that_does_not_ask_again_is_refused() -> None:
    rig = GroupRig()
    rig.sub(rig.client(), UDP + "|reliable=false")
    rig.setup(rig.endpoint())
    rig.ends[rig.image()] = 0
    assert rig.open(UDP + "|reliable=false").code == "unreliable"


def test_readers_of_a_local_log_are_waited_for_whatever_the_network_does() -> None:
    rig = GroupRig()
    ready = rig.pub(rig.client(), f"{GROUP}|fc=max")
    rig.ends[ready.original_id] = 0
    assert rig.last(a.AddPublicationObject).params.flow_control is FlowControl.MAX
    assert rig.open(f"aeron-spy:{GROUP}").group["warnings"] == []
