# SPDX-License-Identifier: Apache-2.0
"""Plan a subscription with credits: choose the number of credits, and a receiver window that is
large enough for this number of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from penstock.config import uri
from penstock.daemon.conductor.saga import Refused
from penstock.daemon.conductor.settings import ConductorSettings

if TYPE_CHECKING:
    from penstock.daemon.conductor.channel.plans import SubscriptionPlan

#: First value of ``ps-credits=auto``, before a round trip and a rate are known.
AUTO_FIRST: Final = 64
_LARGEST_WINDOW: Final = 1 << 29        # half of the longest term there is


def with_credits(
    parsed: uri.ChannelUri, channel: str, settings: ConductorSettings, plan: SubscriptionPlan
) -> SubscriptionPlan:
    """Add credits to a subscription's plan. If the channel states no credits, use the default of
    the configuration.

    :raises Refused: the receiver window that the channel states is too small for the granted
        messages.
    """
    stated = parsed.ps_credits
    if stated is None and settings.default_credits and not parsed.spy and plan.reliable:
        stated = uri.read_credits("credits.default_credits", settings.default_credits)
    if stated is None:
        return plan
    if not plan.reliable or not plan.tether:
        key = "reliable" if not plan.reliable else "tether"
        raise Refused(
            "invalid_channel",
            f"{channel}: ps-credits={parsed.given().get('ps-credits', stated)} contradicts "
            f"subscriptions.{key} = false of the configuration: state {key}=true in the channel",
        )
    number = stated or AUTO_FIRST
    burst = parsed.ps_credit_burst or 0
    of_client = parsed.ps_credit_pool == "client"
    policy = parsed.ps_credit_policy or settings.credit_policy
    if policy and burst:
        stated_policy = parsed.given().get("ps-credit-policy")
        named = f"credits.policy = {policy} of the configuration" if stated_policy is None \
            else f"ps-credit-policy={policy}"
    elif of_client:
        policy, named = policy or "round_robin", "ps-credit-pool=client"
    if policy and burst:
        raise Refused(
            "invalid_channel",
            f"{channel}: ps-credit-burst={burst} contradicts {named}, which divides "
            f"ps-credits={number} among the publishers: leave one of them out",
        )
    message = parsed.ps_max_message or settings.credit_message_bytes
    grown = attrs.evolve(
        plan, credits=number, credit_burst=burst, credit_auto=stated == uri.AUTO_CREDITS,
        credit_message_bytes=message,
        credit_policy=policy, credit_pool=of_client,
        credits_required=bool(parsed.ps_credits_required),
    )
    mtu = settings.mtu if parsed.mtu is None else parsed.mtu
    if plan.kind != "udp":
        return attrs.evolve(grown, credit_most=_most(settings.ipc_term_length // 2, grown, mtu))
    room = room_for(grown, mtu)
    if parsed.rcv_wnd is None:
        window = min(max(plan.receiver_window, room), _LARGEST_WINDOW)
        return attrs.evolve(
            grown, receiver_window=window, credit_most=_most(window, grown, mtu)
        )
    if stated != uri.AUTO_CREDITS and parsed.rcv_wnd < room - mtu:
        given = parsed.given()
        named = "ps-credit-burst" if burst > number else "ps-credits"
        longest = given.get("ps-max-message") or f"{message or mtu - 32} bytes"
        raise Refused(
            "invalid_channel",
            f"{channel}: rcv-wnd={given['rcv-wnd']} has no room for {named}={max(number, burst)} "
            f"messages of ps-max-message={longest}, which need {room - mtu} bytes: raise rcv-wnd, "
            "lower the credits, or leave rcv-wnd out",
        )
    return attrs.evolve(grown, credit_most=_most(parsed.rcv_wnd, grown, mtu))


def _most(window_bytes: int, plan: SubscriptionPlan, mtu: int) -> int:
    """Return how many automatic credits a window has room for."""
    message = plan.credit_message_bytes or mtu - 32
    return max(min(window_bytes // uri.room_of(message, mtu), uri.MAX_CREDITS), 1)


def room_for(plan: SubscriptionPlan, mtu: int) -> int:
    """Return the smallest receiver window, in bytes, for a plan's credits. This window has room for
    as many messages as the plan grants at once, and for one padding frame."""
    message = plan.credit_message_bytes or mtu - 32
    return max(plan.credits, plan.credit_burst) * uri.room_of(message, mtu) + mtu
