# SPDX-License-Identifier: Apache-2.0
"""A core that breaks one rule of credits is found by a generated scenario, among the first 2000
seeds.  Only seeds whose subscriptions use the rule are run."""

from __future__ import annotations

import pytest
from support.old_core import OldCore, Patch
from support.seeds import SEEDS, classes_of, seeds_with

#: Seeds with the feature that are run at most.
TRIED = 40


@pytest.fixture(scope="module")
def wrong_core(tmp_path_factory: pytest.TempPathFactory) -> OldCore:
    return OldCore(tmp_path_factory.mktemp("wrong-credits"))


#: The rule that is broken, the feature of the stream that meets it, and how.
WRONG = (
    ("admits messages while credits are withheld", "withheld", Patch(
        file="ps_publication_credit.c",
        now="ps_spend_begin(&pub->slot->spend, frozen, &done);",
        old="ps_spend_begin(&pub->slot->spend, frozen && limit < 0, &done);",
    )),
    ("grants one message more than the burst", "burst", Patch(
        file="ps_credit.c",
        now="(nothing ? reader->burst : reader->credits);",
        old="(nothing ? reader->burst + 1 : reader->credits);",
    )),
    ("returns the credit of an aborted claim twice", "claims", Patch(
        file="ps_client_publication_open.c",
        now="        ps_pub_untake(pub, 1, claim->epoch);",
        old="        ps_pub_untake(pub, 2, claim->epoch);",
    )),
)


#: Rules whose breach is seen when nothing is in flight any more.
LOST = (
    ("keeps a credit that returned", "burst", Patch(
        file="ps_credit.c",
        now="returned = returned < exist ? returned : exist;",
        old="returned = returned < exist ? returned : exist - (exist > 8);",
    )),
    # The second patch alone is repaired by what the first one removes.
    ("loses the lease of an earlier epoch", "withheld", Patch(
        file="ps_publication_credit.c",
        now="    if (ahead > 0 && quiet) {\n        set_base(pub, used - sent);\n    }",
        old="",
    ), Patch(
        file="ps_publication_credit.c",
        now="set_base(pub, pub->credits.base + ps_lease_rest(lease, word_before));",
        old="(void)lease;",
    )),
)


@pytest.mark.parametrize(
    ("feature", "patches"), [(row[1], row[2:]) for row in LOST], ids=[row[0] for row in LOST]
)
def test_the_end_of_a_generated_scenario_finds_a_core_that(
    feature: str, patches: tuple[Patch, ...], wrong_core: OldCore
) -> None:
    assert wrong_core.finds(seeds_with(f"credits: {feature}", TRIED), patches, whole=True)


@pytest.mark.parametrize(
    ("feature", "patch"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG]
)
def test_a_generated_scenario_finds_a_core_that(
    feature: str, patch: Patch, wrong_core: OldCore
) -> None:
    assert wrong_core.finds(seeds_with(f"credits: {feature}", TRIED), (patch,))


@pytest.mark.parametrize(
    "feature", ["credits: withheld", "credits: burst", "credits: killed",
                "credits: claims", "priority: low",
                "priority: none", "isolated: ipc", "isolated: spy"]
)
def test_a_twentieth_of_the_seeds_has(feature: str) -> None:
    found = [feature in classes_of(seed) for seed in range(1, SEEDS + 1)]
    assert sum(found) >= SEEDS // 20
