# SPDX-License-Identifier: Apache-2.0
"""Choose the flow control of a channel that states no flow control. If a ``[[stream]]`` rule of the
configuration matches the channel and states a flow control, the channel gets this flow control.
Otherwise the default for unicast, multicast or IPC applies. A ``[[stream]]`` rule sets only
parameters that the channel does not state. If several rules match a channel, the first of them
applies."""

from __future__ import annotations

import inspect
from fnmatch import fnmatchcase
from typing import Any, Final

import attrs

from penstock.config import uri
from penstock.config.settings.models import StreamRule
from penstock.core.driver_types import FlowControl, StrategyLate
from penstock.daemon.conductor.channel.plans import publication_plan, subscription_plan
from penstock.daemon.conductor.saga import Refused
from penstock.daemon.conductor.settings import ConductorSettings

_KINDS: Final = {
    "max": FlowControl.MAX,
    "min": FlowControl.MIN,
    "tagged": FlowControl.TAGGED,
    "preferred": FlowControl.TAGGED,
    "nak": FlowControl.NAK,
}
#: Values of ``on_late``, in a rule or in a strategy's class.
LATE_WORDS: Final = ("hold", "max", "min")
# strategies that channels without a group can have, in addition to py:
_ONE_RECEIVER: Final = ("nak",)


def concerns(rule: StreamRule, parsed: uri.ChannelUri, stream_id: int) -> bool:
    """Return whether the channel and the stream id match ``rule``. The function ignores the rule's
    session id and term length."""
    return fnmatchcase(str(parsed), rule.channel) and rule.stream_id in (None, stream_id)


def matches(rule: StreamRule, parsed: uri.ChannelUri, stream_id: int, default_term: int) -> bool:
    """Return whether ``rule`` matches a stream in all four points: channel, stream id, session id
    and term length."""
    term = default_term if parsed.term_length is None else parsed.term_length
    return (
        concerns(rule, parsed, stream_id)
        and rule.session_id in (None, parsed.session_id)
        and rule.term_length_bytes in (0, term)
    )


def apply(
    parsed: uri.ChannelUri, stream_id: int, settings: ConductorSettings, *, publication: bool
) -> uri.ChannelUri:
    """Return the channel, with the values of the first matching ``[[stream]]`` rule added.

    The function ignores settings that do not apply to the channel's medium, because a rule can
    match channels of several media. If a setting of a rule contradicts the channel's parameters,
    the daemon refuses the channel with an error that names the rule.
    """
    if publication and parsed.fc is not None:
        _kind_of(parsed.fc)
    default_term = settings.ipc_term_length if parsed.is_ipc else settings.term_length
    for number, rule in enumerate(settings.rules, 1):
        if matches(rule, parsed, stream_id, default_term):
            found = _filled(parsed, rule, publication=publication)
            _check(parsed, found, number, settings, publication=publication)
            return found
    return parsed


def on_late(
    parsed: uri.ChannelUri, stream_id: int, settings: ConductorSettings, strategy: object
) -> StrategyLate:
    """Return the limit that the sender obeys while the answer of the user's flow-control class is
    late. If a matching ``[[stream]]`` rule states this limit, the rule applies. Otherwise the
    class's attribute ``on_late`` applies; the default is ``hold``.

    :param strategy: the flow-control object; the daemon checked its class when it created the
        object.
    """
    default_term = settings.ipc_term_length if parsed.is_ipc else settings.term_length
    for rule in settings.rules:
        if matches(rule, parsed, stream_id, default_term):
            if rule.strategy_on_late:
                return StrategyLate[rule.strategy_on_late.upper()]
            break
    word = inspect.getattr_static(type(strategy), "on_late", "hold")
    return StrategyLate[word.upper()] if word in LATE_WORDS else StrategyLate.HOLD


def _check(
    parsed: uri.ChannelUri, found: uri.ChannelUri, number: int, settings: ConductorSettings, *,
    publication: bool,
) -> None:
    """Check the channel; a refusal that a rule causes names the rule."""
    make_plan = publication_plan if publication else subscription_plan
    added = {key: value for key, value in found.given().items() if key not in parsed.given()}
    try:
        make_plan(found, str(parsed), settings)
    except Refused as refused:
        to_blame = [
            f"{key}={value}" for key, value in added.items() if f"{key}=" in refused.message
        ]
        if not to_blame:
            raise
        raise Refused(
            refused.code,
            f"{refused.message}; {', '.join(to_blame)} {'is' if len(to_blame) == 1 else 'are'} "
            f"from [[stream]] {number} of the configuration",
        ) from refused


def _filled(
    parsed: uri.ChannelUri, rule: StreamRule, *, publication: bool
) -> uri.ChannelUri:
    found: dict[str, Any] = {}
    if publication:
        found["fc"] = _flow_control_for(parsed, rule)
        found["pub_wnd"] = rule.window_bytes or None
        found["ps_rate"] = uri.read_rate("rate", rule.rate) if rule.rate else None
        found["ps_policy"] = uri.read_policy("policy", rule.policy) if rule.policy else None
        found["ps_fanout"] = rule.fanout or None
        found["ps_retention"] = rule.retention_bytes or None
        found["ps_retention_time_ns"] = rule.retention_time_ns or None
        found["ps_depth"] = rule.queue_depth or None
        found["ps_low_watermark"] = rule.low_watermark_ratio or None
        found["ps_priority"] = rule.priority
        found["ps_credit_weight"] = rule.credit_weight or None
    else:
        if rule.congestion_control and not parsed.is_ipc:
            found["cc"] = uri.read_congestion_control("cc", rule.congestion_control)
        found["rcv_wnd"] = rule.receiver_window_bytes or None
        if rule.credits:
            found["ps_credits"] = uri.read_credits("credits", rule.credits)
        if rule.credit_policy and (rule.credits or parsed.ps_credits is not None):
            found["ps_credit_policy"] = uri.read_credit_policy("credit_policy", rule.credit_policy)
    given = {key: value for key, value in found.items()
             if value is not None and getattr(parsed, key) is None}
    return attrs.evolve(parsed, **given)


def _flow_control_for(parsed: uri.ChannelUri, rule: StreamRule) -> uri.FlowControl | None:
    """Return the rule's flow control if the channel's type allows it."""
    chosen = _read_flow_control(rule.flow_control)
    if chosen is None or chosen.strategy in _ONE_RECEIVER:
        return chosen
    if parsed.is_ipc:
        return None
    alone = (
        parsed.endpoint is not None and parsed.endpoint.ip is not None
        and not parsed.is_multicast and not parsed.control_mode
    )
    if alone and not chosen.strategy.startswith("py:"):
        return None
    return attrs.evolve(chosen, by_rule=True)       # a host name may resolve to a unicast address


def _read_flow_control(text: str) -> uri.FlowControl | None:
    if not text:
        return None
    try:
        return uri.read_flow_control("flow_control", text)
    except uri.ChannelError as error:
        raise Refused("invalid_channel", f"configuration: {error}") from error


def _kind_of(given: uri.FlowControl) -> FlowControl:
    if given.strategy.startswith("py:"):
        return FlowControl.CUSTOM
    kind = _KINDS.get(given.strategy)
    if kind is None:
        raise Refused(
            "not_supported",
            f"fc={given}: this daemon has no such flow control (accepted: {', '.join(_KINDS)}, "
            "py:NAME, py:MODULE:CLASS)",
        )
    return kind


def custom_names(given: uri.FlowControl | None, settings: ConductorSettings) -> tuple[str, ...]:
    """Return the names of the user's flow-control classes that a network publication may use. If
    the channel states no flow control, return the default flow controls of the configuration."""
    choices = [given] if given is not None else [
        _read_flow_control(text)
        for text in (settings.multicast_flow_control, settings.unicast_flow_control)
        if text.startswith("py:")
    ]
    names = (choice.strategy for choice in choices if choice is not None)
    return tuple(dict.fromkeys(name for name in names if name.startswith("py:")))


@attrs.frozen(kw_only=True)
class Choice:
    """The flow control of a publication, with its options, in the form that the data plane
    needs."""

    kind: FlowControl
    strategy: str                       # as written, for status and custom strategies
    receiver_timeout_ns: int = 0
    group_tag: int = 0
    group_min_size: int = 0
    retransmit_window_multiple: int = 0


def choose(
    given: uri.FlowControl | None, channel: str, settings: ConductorSettings, *,
    group: bool, ipc: bool,
) -> Choice:
    """Return the flow control for a channel. Raise Refused if the stated flow control does not suit
    the channel's type (unicast, multicast or IPC)."""
    default = settings.multicast_flow_control if group else settings.unicast_flow_control
    if ipc:
        default = "unicast"
    if given is not None and given.by_rule and not group and given.strategy in _KINDS \
            and given.strategy not in _ONE_RECEIVER:
        given = None
    if given is None and default != "unicast":
        given = _read_flow_control(default)
    if given is None:
        return Choice(kind=FlowControl.UNICAST, strategy="unicast")
    name = given.strategy
    custom = name.startswith("py:")
    if ipc and name not in _ONE_RECEIVER:
        raise Refused(
            "invalid_channel",
            f"{channel}: fc={given}: an IPC stream waits for all its readers; it accepts only nak",
        )
    if not group and not ipc and not custom and name not in _ONE_RECEIVER:
        raise Refused(
            "invalid_channel",
            f"{channel}: fc={given} chooses among receivers, and this channel has only one: "
            "leave fc out, or use a multicast or multi-destination channel",
        )
    kind = _kind_of(given)
    tag = given.group_tag
    if tag is None:
        tag = -1 if name == "preferred" else settings.flow_control_group_tag
    return Choice(
        kind=kind,
        strategy=name,
        receiver_timeout_ns=given.receiver_timeout_ns or 0,
        group_tag=tag,
        group_min_size=given.group_min_size or 0,
        retransmit_window_multiple=given.retransmit_window_multiple or 0,
    )
