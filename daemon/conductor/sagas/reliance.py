# SPDX-License-Identifier: Apache-2.0
"""Decide whether a sender waits for a lagging consumer group.

The daemon knows the flow control of its own publications. Penstock senders on other hosts state
their flow control in their SETUP. Aeron drivers do not state their flow control. If an Aeron driver
sends a multicast stream, the daemon does not know whether the sender waits for the consumer group,
and can only warn.
"""

from __future__ import annotations

import attrs

from penstock.core.driver_types import FlowControl
from penstock.daemon.conductor.saga import Refused
from penstock.daemon.conductor.sagas.retention import window_of
from penstock.daemon.conductor.state.model import Group, Image, Publication, SubscriberLink
from penstock.daemon.conductor.state.state import State


@attrs.frozen
class Strategy:
    """The flow control of a stream's sender, as far as this daemon knows it."""

    kind: FlowControl | None            # None: unknown
    group_tag: int | None = None        # of the receivers that count, when tagged


def strategy_of(state: State, source: Image | Publication) -> Strategy:
    """Return the flow control of a stream's sender, which is on this host or on another host."""
    if isinstance(source, Publication):
        return _strategy(source.params.flow_control, source.params.fc_group_tag)
    if source.sender_flow_control >= 0:
        return _strategy(source.sender_flow_control, source.sender_group_tag)
    if not source.params.group:
        return Strategy(FlowControl.UNICAST)
    for publication in state.publications.of_stream(source.stream_id):      # a local stream
        same = (
            publication.session_id == source.session_id
            and publication.initial_term_id == source.initial_term_id
        )
        if same and publication.endpoint is not None:
            return _strategy(publication.params.flow_control, publication.params.fc_group_tag)
    return Strategy(None)


def _strategy(kind: int, group_tag: int) -> Strategy:
    return Strategy(FlowControl(kind), group_tag if kind == FlowControl.TAGGED else None)


def strategy_name(state: State, source: Image | Publication) -> str:
    """Return the name of the sender's flow control, or "" if the daemon does not know it."""
    found = strategy_of(state, source)
    if found.kind is None:
        return ""
    name = found.kind.name.lower()
    return name if found.group_tag is None else f"{name},g:{found.group_tag}"


def links_of(group: Group) -> list[SubscriberLink]:
    """Return the links between a group's subscriptions and the live streams that the group
    reads."""
    return [
        link for subscription in group.client.subscriptions.values()
        for link in subscription.links.values()
    ]


def unreliable(state: State, group: Group) -> list[str]:
    """Return a text about each of the group's streams on which the sender certainly does not wait
    for the group."""
    found = (_doubt(state, link) for link in links_of(group))
    return [what for certain, what in found if certain]


def check_reliable(state: State, group: Group) -> None:
    """Raise Refused if the group does not allow unreliable streams, but the sender of one of its
    streams does not wait for the group."""
    if group.allow_unreliable:
        return
    for what in unreliable(state, group):
        raise Refused(
            "unreliable",
            f"{what} for a group that is behind: use fc=min or a gtag, or open the group with "
            "allow_unreliable",
        )


def warnings_of(state: State, group: Group) -> list[str]:
    """Return warnings about two kinds of streams: streams whose sender possibly does not wait for
    the group, and images whose receiver window is smaller than the group requests."""
    found = []
    for link in links_of(group):
        what = _doubt(state, link)[1]
        if what:
            found.append(what)
        source = link.source
        wanted = min(link.subscription.plan.receiver_window, source.log.term_length // 2)
        if isinstance(source, Image) and window_of(source) < wanted:
            found.append(
                f"session {source.session_id} of stream {source.stream_id}: its window is "
                f"{window_of(source)} bytes, of {wanted} that the log allows: another subscription "
                "was there first"
            )
    return found


def _doubt(state: State, link: SubscriberLink) -> tuple[bool, str]:
    """Return (certain, text) for a source that may not wait for the group."""
    source = link.source
    what = f"session {source.session_id} of stream {source.stream_id}"
    if isinstance(source, Publication):
        if source.params.flow_control is FlowControl.NAK and source.endpoint is None:
            return True, f"{what}: its flow control is nak, which does not wait"
        return False, ""                # the sender waits for every reader of its own log
    if not source.params.reliable:
        return True, f"{what}: reliable=false, lost data is not requested again"
    strategy = strategy_of(state, source)
    match strategy.kind:
        case FlowControl.UNICAST | FlowControl.MIN:
            return False, ""
        case FlowControl.TAGGED:
            return _doubt_tag(what, strategy.group_tag, link.subscription.plan.group_tag)
        case None:
            return False, (
                f"{what}: it is sent to a group, by a flow control that is not known here: unless "
                "it is min, or tagged with this channel's gtag, a slow reader loses data"
            )
        case kind:
            return True, f"{what}: its flow control is {kind.name.lower()}, which does not wait"


def _doubt_tag(what: str, wanted: int | None, stated: int | None) -> tuple[bool, str]:
    if stated is None:
        return True, f"{what}: its flow control is tagged, and the channel states no gtag"
    if stated != wanted:
        return True, (
            f"{what}: its flow control waits for receivers with gtag={wanted}, and the channel "
            f"states gtag={stated}"
        )
    return False, ""
