# SPDX-License-Identifier: Apache-2.0
"""Policy, depth and low watermark of publications, from the configuration and its rules."""

from __future__ import annotations

import pytest

from penstock.config.settings.load import load_text
from penstock.daemon.conductor.channel import plans, rules
from penstock.daemon.conductor.saga import Refused
from penstock.daemon.conductor.settings import KIB, ConductorSettings
from penstock.daemon.settings import settings_from

BACKPRESSURE = """
[backpressure]
default_policy = "drop-newest"
default_queue_depth = "32k,100msg"
low_watermark_ratio = 0.25

[[stream]]
stream_id = 7
policy = "drop_oldest"
queue_depth = "256msg"
low_watermark_ratio = 0.75

[[stream]]
stream_id = 8
policy = "error"
queue_depth = "8k"
"""


@pytest.mark.parametrize(("stream_id", "options", "policy", "depth", "messages", "low"), [
    (1, "", "drop_newest", 32 * KIB, 100, (8 * KIB, 25)),
    (1, "|ps-policy=block|ps-depth=16k|ps-low-watermark=1", "block", 16 * KIB, 0, (16 * KIB, 0)),
    (8, "", "error", 8 * KIB, 0, (2 * KIB, 0)),
    (8, "|ps-depth=16k", "error", 16 * KIB, 0, (4 * KIB, 0)),
])
def test_defaults_are_those_of_the_configuration_and_rules_win(
    stream_id: int, options: str, policy: str, depth: int, messages: int, low: tuple[int, int]
) -> None:
    plan = configured(f"aeron:ipc?term-length=64k{options}", stream_id)
    assert (plan.policy, plan.window_bytes, plan.depth_messages) == (policy, depth, messages)
    assert (plan.low_watermark_bytes, plan.low_watermark_messages) == low


def test_a_rule_states_the_depth_of_readers() -> None:
    plan = configured("aeron:ipc?term-length=64k", 7)
    assert (plan.policy, plan.reader_depth_messages) == ("drop_oldest", 256)
    assert plan.low_watermark_bytes == plan.window_bytes * 3 // 4


def configuration(text: str) -> ConductorSettings:
    return settings_from(
        load_text(text), directory="/d", budget_bytes=1 << 30, receiver_id_base=1
    )


def configured(channel: str, stream_id: int) -> plans.PublicationPlan:
    """Plan a publication under the configuration above."""
    found = configuration(BACKPRESSURE)
    filled = rules.apply(plans.parse(channel), stream_id, found, publication=True)
    return plans.publication_plan(filled, channel, found)


def test_a_default_rate_limit_needs_a_rate() -> None:
    found = configuration('[backpressure]\ndefault_policy = "rate_limit"')
    channel = "aeron:ipc?term-length=64k"
    with pytest.raises(Refused, match=r"default_policy = rate_limit needs ps-rate"):
        plans.publication_plan(plans.parse(channel), channel, found)
    stated = f"{channel}|ps-rate=10m"
    assert plans.publication_plan(plans.parse(stated), stated, found).policy == "rate_limit"


def test_a_rule_without_a_policy_leaves_the_stream_without_one() -> None:
    found = configuration("[[stream]]\nstream_id = 9\npriority = 5")
    channel = plans.parse("aeron:ipc?term-length=64k")
    filled = rules.apply(channel, 9, found, publication=True)
    plan = plans.publication_plan(filled, str(filled), found)
    assert (plan.priority, plan.policy, plan.low_watermark_bytes) == (5, "", 0)
