# SPDX-License-Identifier: Apache-2.0
"""Credits in channels: values, contradictions, and the window that has room for a grant."""

from __future__ import annotations

import pytest

from penstock.config import uri
from penstock.config.settings.models import StreamRule
from penstock.config.uri import ChannelError
from penstock.daemon.conductor.channel import plans, rules
from penstock.daemon.conductor.channel.credits import AUTO_FIRST
from penstock.daemon.conductor.saga import Refused
from penstock.daemon.conductor.settings import KIB, ConductorSettings

UDP = "aeron:udp?endpoint=10.0.0.1:4000"


def settings(**values: object) -> ConductorSettings:
    return ConductorSettings(
        directory="/d", receiver_id_base=1, storage_budget_bytes=1 << 30,
        **values,  # type: ignore[arg-type]
    )


def plan_of(channel: str, **values: object) -> plans.SubscriptionPlan:
    found = settings(**values)
    parsed = rules.apply(plans.parse(channel), 1001, found, publication=False)
    return plans.subscription_plan(parsed, channel, found)


@pytest.mark.parametrize("text", [
    "aeron:ipc?ps-credits=1",
    "aeron:ipc?ps-credits=auto|ps-credits-required=true",
    f"{UDP}|fc=min,t:5s|ps-credits=10|ps-credit-burst=100",
    f"{UDP}|ps-credits=16777216|ps-max-message=4k|ps-credit-policy=weighted",
    f"aeron-spy:{UDP}|ps-credits=5",
])
def test_a_subscription_accepts_credits(text: str) -> None:
    parsed = uri.parse(text)
    uri.check_subscription(parsed)
    assert uri.parse(str(parsed)) == parsed


@pytest.mark.parametrize(("options", "parameter", "words"), [
    ("ps-credits=5|reliable=false", "ps-credits", "reliable=false"),
    ("ps-credits=5|tether=false", "ps-credits", "tether=false"),
    ("ps-credits=5|fc=nak", "fc", "contradicts ps-credits=5"),
    ("ps-credits=auto|fc=py:mine:Strategy", "fc", "contradicts ps-credits=auto"),
    ("ps-credits=5|ps-credit-burst=4", "ps-credit-burst", "less than ps-credits=5"),
    ("ps-credits=auto|ps-credit-burst=4", "ps-credit-burst", "chooses the burst"),
    ("ps-credit-burst=4", "ps-credit-burst", "needs ps-credits"),
    ("ps-credit-policy=fifo", "ps-credit-policy", "needs ps-credits"),
    ("ps-credit-pool=client", "ps-credit-pool", "needs ps-credits"),
    ("ps-credits=5|ps-credit-pool=host", "ps-credit-pool", "is not a pool"),
    ("ps-credits-required=true", "ps-credits-required", "needs ps-credits"),
])
def test_a_subscription_refuses_credits_that_contradict(
    options: str, parameter: str, words: str
) -> None:
    with pytest.raises(ChannelError) as caught:
        uri.check_subscription(uri.parse(f"{UDP}|{options}"))
    assert caught.value.parameter == parameter
    assert words in str(caught.value)


@pytest.mark.parametrize("strategy", ["nak", "py:mine:Strategy"])
def test_a_publication_refuses_a_shared_channel_with_credits_and_such_a_strategy(
    strategy: str,
) -> None:
    with pytest.raises(ChannelError, match="contradicts ps-credits=5"):
        uri.check_publication(uri.parse(f"{UDP}|fc={strategy}|ps-credits=5"))


@pytest.mark.parametrize(("options", "values", "window"), [
    ("ps-credits=5", {}, 128 * KIB),                    # the default has room
    ("ps-credits=1000", {}, 1000 * 1408 + 1408),
    ("ps-credits=10|ps-credit-burst=1000", {}, 1000 * 1408 + 1408),
    ("ps-credits=1000|mtu=8k", {}, 1000 * 8192 + 8192),
    ("ps-credits=1000|ps-max-message=100", {}, 1000 * 160 + 1408),
    ("ps-credits=100|ps-max-message=4k", {}, 100 * (2 * 1408 + 1376) + 1408),
    ("ps-credits=100", {"credit_message_bytes": 4 * KIB}, 100 * (2 * 1408 + 1376) + 1408),
    ("ps-credits=16777216", {}, 1 << 29),
    ("ps-credits=5|rcv-wnd=64k", {}, 64 * KIB),
    ("ps-credits=10|ps-max-message=32|rcv-wnd=640", {}, 640),
])
def test_the_window_has_room_for_a_grant(
    options: str, values: dict[str, object], window: int
) -> None:
    assert plan_of(f"{UDP}|{options}", **values).receiver_window == window


@pytest.mark.parametrize(("options", "named"), [
    ("ps-credits=47|rcv-wnd=64k", "ps-credits=47"),
    ("ps-credits=5|ps-credit-burst=100|rcv-wnd=64k", "ps-credit-burst=100"),
    ("ps-credits=10|ps-max-message=33|rcv-wnd=640", "ps-max-message=33"),
])
def test_a_stated_window_without_room_is_refused_with_both_names(
    options: str, named: str
) -> None:
    with pytest.raises(Refused) as caught:
        plan_of(f"{UDP}|{options}")
    assert "rcv-wnd=" in caught.value.message
    assert named in caught.value.message


def test_a_window_with_room_for_just_the_grant_is_accepted() -> None:
    assert plan_of(f"{UDP}|ps-credits=46|rcv-wnd=64768").credits == 46


def test_the_configuration_states_credits() -> None:
    rule = StreamRule(stream_id=1001, credits="7", credit_policy="weighted")
    found = plan_of(UDP, rules=(rule,))
    assert (found.credits, found.credit_policy) == (7, "weighted")
    assert plan_of(f"{UDP}|ps-credits=3", rules=(rule,)).credits == 3
    assert plan_of(UDP, default_credits="auto").credits == AUTO_FIRST
    assert plan_of(UDP, default_credits="auto").credit_auto
    assert plan_of(f"{UDP}|reliable=false", default_credits="5").credits == 0
    assert plan_of(UDP).credits == 0


def test_a_rule_that_contradicts_the_channel_is_named() -> None:
    with pytest.raises(Refused, match=r"\[\[stream\]\] 1"):
        plan_of(f"{UDP}|reliable=false", rules=(StreamRule(credits="7"),))
