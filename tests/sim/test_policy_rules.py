# SPDX-License-Identifier: Apache-2.0
"""A core that breaks one rule of policies or watermarks is found by a generated scenario, among the
first 2000 seeds.  Only seeds whose stream has the policy are run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.old_core import OldCore, Patch
from support.seeds import classes_of, seeds_where, seeds_with

#: Seeds with the policy that are run at most.
TRIED = 12


def seeds_with_policy(policy: str) -> Iterator[int]:
    """Return seeds whose ordinary streams have the policy. A further stream for isolated readers
    can have one too, but rarely meets its watermark. ``drop_oldest`` has a stream of its own."""
    if policy.startswith("drop_oldest") or policy == "rate":
        return seeds_with(policy, TRIED)

    def has_policy(seed: int) -> bool:
        classes = classes_of(seed)
        named = policy if ":" in policy else f"policy: {policy}"
        return named in classes and "isolated: network" not in classes and \
            "isolated: ipc" not in classes and "isolated: spy" not in classes

    return seeds_where(has_policy, TRIED)


@pytest.fixture(scope="module")
def wrong_core(tmp_path_factory: pytest.TempPathFactory) -> OldCore:
    return OldCore(tmp_path_factory.mktemp("wrong-policies"))


def _watermark(now: str, old: str) -> Patch:
    return Patch(file="ps_publication_watermark.c", now=now, old=old)


#: The rule that is broken, the policy of the stream that meets it, and how.
WRONG = (
    ("accepts above the low watermark", "block", Patch(
        file="ps_publication_policy.c",
        now="(pub->paused || full);", old="false;",
    )),
    ("states fewer drops than there were", "drop_newest", Patch(
        file="ps_publication_policy.c", now="ps_gap_mark((int32_t)messages) : 0);",
        old="ps_gap_mark(1) : 0);",
    )),
    ("is relieved above the low watermark", "block", _watermark(
        "active && (pub->depth > pub->low_watermark ||",
        "active && (pub->depth > (pub->low_watermark + pub->window_bytes) / 2 ||",
    )),
    ("counts what drained before the pressure", "drop_newest", _watermark(
        "? -1 : messages - pressure->messages;", "? -1 : messages;",
    )),
    ("lets publishers be ahead by more than their messages", "depth: messages", Patch(
        file="ps_publication_depth.c", now="depth->left + pub->params.depth_messages;",
        old="depth->left + pub->params.depth_messages + 1;",
    )),
    ("forgets messages that readers have not read", "depth: messages", Patch(
        file="ps_publication_depth.c", now="depth->left += count(", old="depth->left += 1 + count(",
    )),
    ("refuses without a failure", "error", Patch(
        file="ps_client_publication_policy.c",
        now="pub->policy == PS_POLICY_ERROR && is_full(code) ? fail(pub) : code;", old="code;",
    )),
    ("stays failed after a reset", "error", Patch(
        file="ps_client_publication_policy.c",
        now="~PS_POLICY_FAILED, memory_order_acq_rel);",
        old="~(uint64_t)0, memory_order_acq_rel);",
    )),
    ("admits a fifth of a second of the rate", "rate", Patch(
        file="ps_publication_admit.c", now="LEAD_PARTS = 10,", old="LEAD_PARTS = 5,",
    )),
    ("holds publishers under drop_oldest", "drop_oldest: closed window", Patch(
        file="ps_client_publication_policy.c",
        now="    if (ps_policy_drops(pub->policy) && (",
        old="    if (pub->policy == PS_POLICY_DROP_NEWEST && (",
    )),
    ("counts a skip wrong", "drop_oldest", Patch(
        file="ps_client_image_isolated.c",
        now="image->gap_messages = messages_of_gap(image, from, to);",
        old="image->gap_messages = messages_of_gap(image, from, to) + 1;",
    )),
    ("never skips to the newest", "drop_oldest: age", Patch(
        file="ps_client_image_isolated.c",
        now="isolated->skips = params->isolation == PS_READER_DROP_OLDEST;",
        old="isolated->skips = false;",
    )),
    ("waits for lagged readers", "drop_oldest: ipc", Patch(
        file="ps_publication_subscribers.c",
        now="(subscriber->isolation.slot != NULL && is_lagged(pub, subscriber))", old="0",
    )),
    ("reports pressure more than once a second", "block", _watermark(
        "INT64_C(1000000000)", "INT64_C(100000000)",
    )),
)

#: The oracles of the end find them.
WHOLE = ("drop_oldest: age", "drop_oldest: ipc")


@pytest.mark.parametrize(
    ("policy", "patch"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG]
)
def test_a_generated_scenario_finds_a_core_that(
    policy: str, patch: Patch, wrong_core: OldCore
) -> None:
    whole = policy in WHOLE
    assert wrong_core.finds(seeds_with_policy(policy), (patch,), whole=whole)
