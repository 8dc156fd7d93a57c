# SPDX-License-Identifier: Apache-2.0
"""Policies of subscriptions in channels: values, contradictions, defaults."""

from __future__ import annotations

import re

import pytest

from penstock.config import uri
from penstock.config.settings.backpressure import BackpressureConfig
from penstock.config.settings.models import StreamRule
from penstock.config.uri import ChannelError
from penstock.core.driver_types import Isolation
from penstock.daemon.conductor.channel import plans, rules
from penstock.daemon.conductor.saga import Refused
from penstock.daemon.conductor.settings import KIB, ConductorSettings

UDP = "aeron:udp?endpoint=10.0.0.1:4000"


def settings(**values: object) -> ConductorSettings:
    return ConductorSettings(
        directory="/d", receiver_id_base=1, storage_budget_bytes=1 << 30,
        **values,  # type: ignore[arg-type]
    )


def plan_of(channel: str, **values: object) -> plans.SubscriptionPlan:
    return plans.subscription_plan(plans.parse(channel), channel, settings(**values))


@pytest.mark.parametrize(("options", "isolation", "depth"), [
    ("ps-sub-policy=block", Isolation.GATES, 0),
    ("ps-sub-policy=independent", Isolation.INDEPENDENT, 0),
    ("ps-sub-policy=drop-oldest|ps-sub-depth=64k", Isolation.DROP_OLDEST, 64 * KIB),
    ("ps-sub-policy=drop_oldest|tether=false", Isolation.DROP_OLDEST, 0),
])
def test_a_policy_is_planned_and_wins_over_tether(
    options: str, isolation: Isolation, depth: int
) -> None:
    plan = plan_of(f"{UDP}|{options}")
    assert (plan.isolation, plan.depth_bytes, plan.tether) == (isolation, depth, True)
    parsed = uri.parse(f"{UDP}|{options}")
    assert uri.parse(str(parsed)) == parsed


@pytest.mark.parametrize(("options", "depths"), [
    ("ps-sub-depth=100msg", (64 * KIB, 100)),           # half of the window
    ("ps-sub-depth=4k,7msg", (4 * KIB, 7)),
    ("ps-sub-depth=7msg,4k", (4 * KIB, 7)),
    ("ps-sub-depth=4k", (4 * KIB, 0)),
])
@pytest.mark.parametrize("policy", ["independent", "drop_oldest"])
def test_a_depth_counts_bytes_and_messages(
    policy: str, options: str, depths: tuple[int, int]
) -> None:
    plan = plan_of(f"{UDP}|ps-sub-policy={policy}|{options}")
    assert (plan.depth_bytes, plan.depth_messages) == depths


def test_the_default_depth_in_messages_is_that_of_subscriptions_too() -> None:
    plan = plan_of(UDP, default_policy="independent", default_depth_messages=9)
    assert (plan.depth_bytes, plan.depth_messages) == (64 * KIB, 9)
    plan = plan_of(f"{UDP}|ps-sub-depth=2k", default_policy="independent",
                   default_depth_messages=9)
    assert (plan.depth_bytes, plan.depth_messages) == (2 * KIB, 0)


@pytest.mark.parametrize(("options", "values", "depths"), [
    ("ps-policy=drop_oldest|ps-depth=100msg", {}, (0, 100)),    # 0: the receivers choose
    ("ps-policy=drop_oldest|ps-depth=4k,7msg", {}, (4 * KIB, 7)),
    ("ps-policy=drop_oldest|ps-depth=4k", {"default_depth_messages": 9}, (4 * KIB, 0)),
    ("ps-policy=drop_oldest", {"default_depth_messages": 9}, (0, 9)),
    ("ttl=1", {"default_policy": "drop_oldest", "default_depth": 2 * KIB,
               "default_depth_messages": 9}, (2 * KIB, 9)),
])
def test_under_drop_oldest_a_depth_is_that_of_readers(
    options: str, values: dict[str, object], depths: tuple[int, int]
) -> None:
    """No number of messages limits publishers."""
    channel = f"{UDP}|term-length=64k|{options}"
    plan = plans.publication_plan(plans.parse(channel), channel, settings(**values))
    assert (plan.depth_bytes, plan.reader_depth_messages) == depths
    assert (plan.depth_messages, plan.low_watermark_messages) == (0, 0)
    assert plan.window_bytes == 56 * KIB


def test_a_depth_that_does_not_skip_is_that_of_publishers() -> None:
    channel = f"{UDP}|ps-policy=drop_newest|ps-depth=4k,7msg"
    plan = plans.publication_plan(plans.parse(channel), channel, settings())
    assert (plan.window_bytes, plan.depth_messages) == (4 * KIB, 7)
    assert (plan.depth_bytes, plan.reader_depth_messages) == (0, 0)


def test_each_end_ignores_the_keys_of_the_other() -> None:
    channel = f"{UDP}|ps-policy=drop-newest|ps-depth=16k|ps-sub-policy=independent|ps-sub-depth=8k"
    assert plan_of(channel).depth_bytes == 8 * KIB
    published = plans.publication_plan(plans.parse(channel), channel, settings())
    assert (published.policy, published.window_bytes) == ("drop_newest", 16 * KIB)


@pytest.mark.parametrize(("options", "parameter", "words"), [
    ("ps-sub-policy=error", "ps-sub-policy", "not a back-pressure policy of a subscription"),
    ("ps-sub-policy=block|ps-sub-depth=8k", "ps-sub-depth", "contradicts ps-sub-policy=block"),
    ("ps-sub-policy=independent|ps-credits=5", "ps-sub-policy", "contradicts ps-credits=5"),
])
def test_contradictions_name_both(options: str, parameter: str, words: str) -> None:
    with pytest.raises(ChannelError) as caught:
        uri.check_subscription(uri.parse(f"{UDP}|{options}"))
    assert caught.value.parameter == parameter
    assert words in str(caught.value)


@pytest.mark.parametrize(("options", "words"), [
    ("ps-fanout=all", "min, independent"),
    ("ps-fanout=min|fc=max", "contradicts fc=max"),
    ("ps-fanout=min|fc=nak", "contradicts fc=nak"),
    ("ps-fanout=min|fc=tagged,g:7", "contradicts fc=tagged,g:7"),
    ("ps-fanout=independent|fc=min,t:1s", "contradicts fc=min,t:1s"),
    ("ps-fanout=independent|fc=tagged,g:7", "contradicts fc=tagged,g:7"),
    ("ps-fanout=min|ps-policy=drop_oldest", "contradicts ps-policy=drop_oldest"),
])
def test_a_fanout_contradicts_other_strategies(options: str, words: str) -> None:
    channel = f"aeron:udp?endpoint=239.20.0.1:4001|interface=10.0.0.0/24|{options}"
    with pytest.raises(Refused, match=re.escape(words)) as caught:
        plans.publication_plan(plans.parse(channel), channel, settings())
    assert options.partition("|")[0].partition("=")[0] in str(caught.value)


def test_a_fanout_contradicts_the_default_policy() -> None:
    channel = "aeron:ipc?ps-fanout=min"
    with pytest.raises(Refused, match=r"ps-fanout=min contradicts .* drop_oldest"):
        plans.publication_plan(plans.parse(channel), channel,
                               settings(default_policy="drop_oldest"))


GROUP = "aeron:udp?endpoint=239.20.0.1:4001|interface=10.0.0.0/24"


@pytest.mark.parametrize(("rule", "channel", "words"), [
    ({"fanout": "min"}, f"{GROUP}|fc=max", "fc=max"),
    ({"fanout": "independent"}, f"{GROUP}|fc=min,t:1s", "fc=min,t:1s"),
    ({"fanout": "min"}, "aeron:ipc?ps-policy=drop_oldest", "ps-policy=drop_oldest"),
    ({"fanout": "min", "flow_control": "nak"}, GROUP, "fc=nak"),
    ({"fanout": "min", "policy": "drop_oldest"}, GROUP, "ps-policy=drop_oldest"),
    ({"flow_control": "max"}, f"{GROUP}|ps-fanout=min", "fc=max"),
    ({"policy": "drop_oldest"}, f"{GROUP}|ps-fanout=min", "ps-policy=drop_oldest"),
])
def test_a_fanout_contradicts_across_a_rule_and_a_channel(
    rule: dict[str, str], channel: str, words: str
) -> None:
    """The refusal names both values, and which of them the rule states."""
    with pytest.raises(Refused) as caught:
        rules.apply(plans.parse(channel), 7, settings(rules=(StreamRule(**rule),)),
                    publication=True)
    message = caught.value.message
    assert f"contradicts {words}" in message
    assert "ps-fanout=" in message
    ruled = {"fanout": "ps-fanout", "flow_control": "fc", "policy": "ps-policy"}
    _, _, blamed = message.partition("; ")
    assert blamed.endswith("from [[stream]] 1 of the configuration")
    assert {name for name in ruled.values() if f"{name}=" in blamed} == {ruled[key] for key in rule}


def test_a_channel_states_another_fanout_than_its_rule() -> None:
    channel = f"{GROUP}|ps-fanout=independent"
    found = rules.apply(plans.parse(channel), 7, settings(rules=(StreamRule(fanout="min"),)),
                        publication=True)
    assert found.ps_fanout == "independent"


@pytest.mark.parametrize(("options", "words"), [
    ("ps-sub-depth=8k", r"ps-sub-depth=8k needs ps-sub-policy"),
    ("ps-sub-policy=independent|ps-sub-depth=96k", r"ps-sub-depth=96k .* rcv-wnd=131072"),
])
def test_a_depth_is_refused_without_policy_or_window(options: str, words: str) -> None:
    with pytest.raises(Refused, match=words):
        plan_of(f"{UDP}|{options}")


def test_the_configuration_gives_a_default_to_subscriptions() -> None:
    found = settings(default_policy="independent", default_depth=16 * KIB)
    channel = f"{UDP}|ps-credits=5"
    assert plan_of(UDP, default_policy="independent", default_depth=16 * KIB).depth_bytes == 16384
    assert plan_of(channel, default_policy="independent").isolation is Isolation.GATES
    group = plans.group_subscription_plan(plans.parse(UDP), UDP, found)
    assert group.isolation is Isolation.GATES
    assert plans.publication_plan(plans.parse(UDP), UDP, found).policy == "block"   # by the depth
    assert BackpressureConfig(default_policy="drop-oldest").default_policy == "drop-oldest"


@pytest.mark.parametrize(("options", "words"), [
    ("ps-retention=0", "ps-retention=0: retains no data"),
    ("ps-retention=2k", "ps-retention=2048 is less than two datagrams of mtu=1408"),
    ("ps-retention=193k|term-length=64k", "ps-retention=197632 exceeds the log, which has 3 terms "
                                          "of term-length=65536"),
    ("ps-retention-time=0", "ps-retention-time=0ns: is shorter than 10ms"),
    ("ps-retention-time=9ms", "is shorter than 10ms: the time index"),
    ("ps-retention-time=5", "is shorter than 10ms"),
])
def test_a_retention_that_cannot_be_is_refused(options: str, words: str) -> None:
    channel = f"aeron:ipc?mtu=1408|{options}"
    with pytest.raises(Refused, match=re.escape(words)):
        plans.publication_plan(plans.parse(channel), channel, settings())


def test_a_retention_is_that_of_the_channel_or_of_the_rule() -> None:
    channel = "aeron:ipc?ps-retention=64k|ps-retention-time=5s|term-length=64k"
    found = plans.publication_plan(plans.parse(channel), channel, settings())
    assert (found.retention_bytes, found.retention_ns) == (64 * KIB, 5_000_000_000)
    rule = StreamRule(stream_id=7, retention_bytes=32 * KIB, retention_time_ns=10**9)
    for options, bytes_ in (("", 32 * KIB), ("|ps-retention=16k", 16 * KIB)):
        stated = plans.parse(f"aeron:ipc?term-length=64k{options}")
        filled = rules.apply(stated, 7, settings(rules=(rule,)), publication=True)
        assert (filled.ps_retention, filled.ps_retention_time_ns) == (bytes_, 10**9)
