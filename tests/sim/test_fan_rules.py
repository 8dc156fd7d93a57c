# SPDX-License-Identifier: Apache-2.0
"""A core or a conductor that breaks one rule of fan-in or fan-out is found by a generated scenario,
among the first 2000 seeds.  Only seeds with the further stream that meets the rule are run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support import first_seeds
from support.old_core import OldCore, Patch
from support.seeds import classes_of, seeds_where

from penstock.daemon.conductor.sagas import fan_in, isolating
from penstock.sim.generate.fan import IN_STREAM
from penstock.sim.generate.fuzz import generate
from penstock.sim.runner import attempt

#: Seeds of one kind that are run at most.
TRIED = 12


def kinds_of(seed: int) -> set[str]:
    """Return the classes of a seed, and how many messages a poll of its fan-in has."""
    polls = {each.poll_limit for each in generate(seed).subscribers if each.stream_id == IN_STREAM}
    return {*classes_of(seed), *(f"polls of {limit}" for limit in polls)}


def seeds_with(*kinds: str) -> Iterator[int]:
    return seeds_where(lambda seed: set(kinds) <= kinds_of(seed), TRIED)


def test_a_twentieth_of_the_seeds_has_each_rule() -> None:
    found = [name for seed in range(1, 501) for name in classes_of(seed)]
    for name in ("fan-in: equal", "fan-in: priority", "fan-out: min", "fan-out: independent",
                 "low watermark"):
        assert found.count(name) >= 25, name


@pytest.fixture(scope="module")
def wrong_core(tmp_path_factory: pytest.TempPathFactory) -> OldCore:
    return OldCore(tmp_path_factory.mktemp("wrong-fans"))


#: The rule that is broken, the streams that meet it, and how.
CORE = (
    ("polls each image alike under ps-fanin=priority", ("fan-in: priority",), Patch(
        file="ps_client_subscription.c",
        now="(int64_t)limit * image->fan_in_weight;", old="(int64_t)limit * *total / sub->count;",
    )),
    ("forgets what whole messages left over", ("fan-in: priority", "polls of 3"), Patch(
        file="ps_client_subscription.c",
        now="((int64_t)limit + sub->count) * *total;", old="limit * *total;",
    )),
    ("divides no window", ("fan-in: network",), Patch(
        file="ps_image_status.c",
        now="if (image->window_share > 0 && image->window > image->window_share) {", old="if (0) {",
    )),
)


@pytest.mark.parametrize(("kinds", "patch"), [row[1:] for row in CORE], ids=[r[0] for r in CORE])
def test_a_generated_scenario_finds_a_core_that(
    kinds: tuple[str, ...], patch: Patch, wrong_core: OldCore
) -> None:
    assert wrong_core.finds(seeds_with(*kinds), (patch,))


def whole_window(image: Any, _link: object) -> int:
    """Give each image the whole window."""
    return int(image.params.window_bytes)


def never(_source: object) -> bool:
    """Wait for each local reader that is behind."""
    return False


def always(source: Any) -> bool:
    """Wait for no local reader that is behind if the stream states a fan-out."""
    return bool(getattr(getattr(source, "plan", None), "fanout", ""))


#: The rule that is broken, the streams that meet it, and the function with what it becomes.
CONDUCTOR = (
    ("gives each image the whole window", ("fan-in: network",), fan_in, "_share", whole_window),
    ("waits under ps-fanout=independent", ("fan-out: independent", "fan-out: ipc"), isolating,
     "_is_independent", never),
    ("waits for nobody under ps-fanout=min", ("fan-out: min",), isolating, "_is_independent",
     always),
)


@pytest.mark.parametrize(
    ("kinds", "module", "name", "wrong"), [row[1:] for row in CONDUCTOR],
    ids=[row[0] for row in CONDUCTOR],
)
def test_a_generated_scenario_finds_a_conductor_that(
    kinds: tuple[str, ...], module: Any, name: str, wrong: Callable[..., object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = None
    with monkeypatch.context() as broken:
        broken.setattr(module, name, wrong)
        for seed in first_seeds.kept_first(seeds_with(*kinds)):
            if attempt(generate(seed), seed).violations:
                found = seed
                break
    assert found is not None
    assert attempt(generate(found), found).violations == ()
    first_seeds.note(found)
