# SPDX-License-Identifier: Apache-2.0
"""Each credit has one owner. A core that returns a credit too rarely or twice when an epoch begins
or a client dies is found by a generated scenario, among the first 2000 seeds.  Only seeds whose
subscriptions use the rule are run."""

from __future__ import annotations

import pytest
from support.old_core import OldCore, Patch
from support.seeds import seeds_with

#: Seeds with the feature that are run at most.
TRIED = 40


@pytest.fixture(scope="module")
def wrong_core(tmp_path_factory: pytest.TempPathFactory) -> OldCore:
    return OldCore(tmp_path_factory.mktemp("wrong-owners"))


def _sender(now: str, old: str) -> Patch:
    return Patch(file="ps_publication_credit.c", now=now, old=old)


#: The rule that is broken, the feature of the stream that meets it, how, and what the probe says.
WRONG = (
    ("begins an epoch with the lease still out", "credits: withheld", _sender(
        "set_base(pub, pub->credits.base + ps_lease_rest(lease, word_before));", "(void)lease;",
    ), "an epoch begins with other credits"),
    ("returns a lease twice", "credits: withheld", _sender(
        "set_base(pub, pub->credits.base + ps_lease_rest(lease, word_before));",
        "set_base(pub, pub->credits.base + 2 * ps_lease_rest(lease, word_before));",
    ), "an epoch begins with other credits"),
    ("returns a part of a lease", "credits: withheld", _sender(
        "set_base(pub, pub->credits.base + ps_lease_rest(lease, word_before));",
        "set_base(pub, pub->credits.base + ps_lease_rest(lease, word_before) / 2);",
    ), "an epoch begins with other credits"),
    ("returns what a client has marked", "credits: killed", _sender(
        "if ((uint32_t)atomic_load_explicit(&client->spends[j], memory_order_acquire) == mark) {",
        "if (mark == 0) {",
    ), "a credit that has an owner"),
    ("grants a message twice when it finds one unused", "credits: killed", _sender(
        "    if (ahead > 0 && quiet) {\n        set_base(pub, used - sent);\n",
        "    if (ahead > 0 && quiet) {\n        set_base(pub, used - sent + 1);\n",
    ), "a credit that has an owner"),
    ("counts one credit too few at an epoch's begin", "credits: withheld", _sender(
        "credits->epoch_ordinal = credits->spent - credits->base + dropped_of(pub);\n"
        "    credits->send_limit = credits->epoch_ordinal > limit",
        "credits->epoch_ordinal = credits->spent - credits->base + dropped_of(pub) - 1;\n"
        "    credits->send_limit = credits->epoch_ordinal > limit",
    ), "an epoch begins with other credits"),
    ("answers the limit of an epoch", "credits: withheld", _sender(
        ": credits->epoch_ordinal };", ": credits->limit };",
    ), "an answer states other credits"),
    ("answers what was taken before credits ended", "pool: network", _sender(
        "unsent(pub));\n"
        "    credits->epoch_ordinal = credits->spent - credits->base + dropped_of(pub);",
        "unsent(pub));",
    ), "an epoch begins with other credits"),
    ("keeps the limit of an earlier epoch", "pool: network", Patch(
        file="ps_publication_grants.c",
        now="    receiver->credit_limit = trailer->credit_limit;\n",
        old="    if (!known || trailer->credit_limit > receiver->credit_limit) {\n"
            "        receiver->credit_limit = trailer->credit_limit;\n    }\n",
    ), "more than a receiver grants"),
)


@pytest.mark.parametrize(
    ("feature", "patch", "complaint"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG]
)
def test_a_generated_scenario_finds_a_core_that(
    feature: str, patch: Patch, complaint: str, wrong_core: OldCore
) -> None:
    found = wrong_core.finds(seeds_with(feature, TRIED), (patch,))
    assert found is not None
    assert complaint in found
