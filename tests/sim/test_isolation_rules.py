# SPDX-License-Identifier: Apache-2.0
"""A core that breaks one rule of isolated readers is found by a generated scenario, among the first
2000 seeds.  Only seeds with the further stream that has isolated readers are run."""

from __future__ import annotations

import pytest
from support.old_core import OldCore, Patch
from support.seeds import seeds_with

#: Seeds of one kind that are run at most.
TRIED = 12


@pytest.fixture(scope="module")
def wrong_core(tmp_path_factory: pytest.TempPathFactory) -> OldCore:
    return OldCore(tmp_path_factory.mktemp("wrong-isolation"))


#: The rule that is broken, the kind of stream that meets it, and how.
WRONG = (
    ("lets a lagged reader hold the publishers", "spy", Patch(
        file="ps_publication_subscribers.c",
        now="(subscriber->isolation.slot != NULL && is_lagged(pub, subscriber))",
        old="(subscriber->isolation.slot != NULL && is_lagged(pub, subscriber) && 0)",
    )),
    ("does not watch a reader that keeps up again", "nak", Patch(
        file="ps_publication_subscribers.c",
        now="!reader->isolation.lagged) { /* a leader",
        old="0) { /* a leader",
    )),
    ("does not tell readers what is written over", "network", Patch(
        file="ps_isolation.c", now="if (mark > atomic_load_explicit(&slot->overwritten",
        old="if (0 && mark > atomic_load_explicit(&slot->overwritten",
    )),
    ("counts the messages of a gap wrong", "network", Patch(
        file="ps_client_image_isolated.c",
        now="at->ordinal += at->ordinal != PS_ORDINAL_UNKNOWN ? ps_frame_messages(frame) : 0;",
        old="at->ordinal += at->ordinal >= 0 ? 1 + ps_frame_messages(frame) : 0;",
    )),
)


@pytest.mark.parametrize(
    ("kind", "patch"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG]
)
def test_a_generated_scenario_finds_a_core_that(
    kind: str, patch: Patch, wrong_core: OldCore
) -> None:
    assert wrong_core.finds(seeds_with(f"isolated: {kind}", TRIED), (patch,))
