# SPDX-License-Identifier: Apache-2.0
"""Plan subscriptions with ``ps-sub-policy=independent`` or ``drop_oldest``. With the policy
``independent`` or ``drop_oldest``, the stream does not wait for a slow subscription."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from penstock.config import uri
from penstock.core.driver_types import Isolation
from penstock.daemon.conductor.saga import Refused
from penstock.daemon.conductor.settings import ConductorSettings

if TYPE_CHECKING:
    from penstock.daemon.conductor.channel.plans import SubscriptionPlan

_ISOLATION: Final = {
    "independent": Isolation.INDEPENDENT,
    "drop_oldest": Isolation.DROP_OLDEST,
}


def with_isolation(
    parsed: uri.ChannelUri, channel: str, settings: ConductorSettings, plan: SubscriptionPlan
) -> SubscriptionPlan:
    """Add a back-pressure policy to a subscription's plan. If the channel states no policy, use the
    default of the configuration. If the channel states both a policy and ``tether=false``, the
    policy applies.

    :raises Refused: ``ps-sub-depth`` is stated without a policy, or is larger than half of the
        window.
    """
    policy = parsed.ps_sub_policy
    if policy is None and not plan.credits and settings.default_policy in _ISOLATION:
        policy = settings.default_policy
    if policy is None and parsed.ps_sub_depth is not None:
        raise Refused(
            "invalid_channel",
            f"{channel}: ps-sub-depth={parsed.ps_sub_depth} needs ps-sub-policy=independent or "
            "drop_oldest, which is missing",
        )
    if policy is None:
        return plan
    if policy not in _ISOLATION:
        return attrs.evolve(plan, tether=True, must_block=True)
    return attrs.evolve(
        plan, tether=True, isolation=_ISOLATION[policy],
        depth_bytes=_depth(parsed, channel, settings, plan),
        depth_messages=settings.default_depth_messages if parsed.ps_sub_depth is None
        else parsed.ps_sub_depth.messages,
    )


def _depth(
    parsed: uri.ChannelUri, channel: str, settings: ConductorSettings, plan: SubscriptionPlan
) -> int:
    """Return the bytes that the subscription may be behind; 0: a quarter of the window. If only a
    number of messages is stated, the depth in bytes is the largest possible one: half a window. On
    IPC and for a spy the publication window bounds the depth. The plan of a subscription does not
    contain this window."""
    most = plan.receiver_window // 2 if plan.kind == "udp" else 1 << 30
    if parsed.ps_sub_depth is None:
        only = settings.default_depth_messages and not settings.default_depth
        return most if only else min(settings.default_depth, most)
    if parsed.ps_sub_depth.bytes > most:
        raise Refused(
            "invalid_channel",
            f"{channel}: ps-sub-depth={parsed.ps_sub_depth} exceeds half of "
            f"rcv-wnd={plan.receiver_window}: choose a smaller depth or a larger window",
        )
    return parsed.ps_sub_depth.bytes or most
