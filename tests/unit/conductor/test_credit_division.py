# SPDX-License-Identifier: Apache-2.0
"""The division of a pool of credits among publishers."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.daemon.conductor.credit_division import POLICIES, Request, divide, max_min

ROUNDS = 1000
RATES = {1: 10, 2: 100, 3: 1000, 4: 3000, 5: 10_000}      # messages a second
# each example runs 1,000 rounds
_FEW = settings(max_examples=12, deadline=None)
_WEIGHTS = st.lists(st.integers(1, 100), min_size=5, max_size=5)


def granted_over(
    policy: str, pool: int, weights: Mapping[int, int] | None = None, *, saturated: bool = False
) -> dict[int, int]:
    """Credits that five publishers get in 1,000 rounds of a tenth of a second each."""
    weights = weights or dict.fromkeys(RATES, 1)
    total = dict.fromkeys(RATES, 0)
    produced = dict.fromkeys(RATES, 0.0)
    owed: Mapping[int, float] = {}
    for number in range(ROUNDS):
        requests = []
        for i, rate in RATES.items():
            produced[i] += rate / 10
            wanted = pool if saturated else int(produced[i])
            requests.append(
                Request(id=i, credits=wanted, weight=weights[i], arrived=number * 10 - i)
            )
        division = divide(policy, pool, requests, owed)
        owed = division.owed
        assert sum(division.shares.values()) == min(pool, sum(r.credits for r in requests))
        for request in requests:
            share = division.shares[request.id]
            assert 0 <= share <= request.credits
            total[request.id] += share
            produced[request.id] -= 0 if saturated else share
            produced[request.id] = min(produced[request.id], RATES[request.id])
    return total


@_FEW
@given(pool=st.integers(5, 2000))
def test_round_robin_is_max_min_fair_within_one_percent(pool: int) -> None:
    total = granted_over("round_robin", pool)
    ideal = max_min(
        pool * ROUNDS, {i: rate * ROUNDS / 10 for i, rate in RATES.items()},
        dict.fromkeys(RATES, 1),
    )
    for i in RATES:
        assert total[i] == pytest.approx(ideal[i], rel=0.01, abs=2)


@_FEW
@given(pool=st.integers(5, 2000), weights=_WEIGHTS)
def test_weighted_grants_are_within_one_percent_of_the_weights(
    pool: int, weights: list[int]
) -> None:
    by_id = dict(zip(RATES, weights, strict=True))
    total = granted_over("weighted", pool, by_id, saturated=True)
    for i, weight in by_id.items():
        assert total[i] == pytest.approx(pool * ROUNDS * weight / sum(weights), rel=0.01, abs=2)


@_FEW
@given(pool=st.integers(1, 2000))
def test_fifo_follows_the_order_of_the_requests(pool: int) -> None:
    """The fastest publisher requests first in each round: what it leaves goes to the next."""
    total = granted_over("fifo", pool, saturated=True)
    assert total == {1: 0, 2: 0, 3: 0, 4: 0, 5: pool * ROUNDS}


def test_fifo_lets_greedy_publishers_dominate() -> None:
    total = granted_over("fifo", 500)
    assert total[5] > 0.9 * sum(total.values())
    assert granted_over("round_robin", 500)[5] < 0.45 * sum(total.values())


@_FEW
@given(pool=st.integers(5, 2000), weights=_WEIGHTS)
def test_deficit_grants_follow_the_weights_over_time(pool: int, weights: list[int]) -> None:
    by_id = dict(zip(RATES, weights, strict=True))
    total = granted_over("deficit", pool, by_id, saturated=True)
    for i, weight in by_id.items():
        assert total[i] == pytest.approx(pool * ROUNDS * weight / sum(weights), rel=0.01, abs=9)


@pytest.mark.parametrize(("policy", "rounds"), [("deficit", 2), ("round_robin", 4)])
def test_deficit_serves_a_publisher_that_sends_in_bursts_first(policy: str, rounds: int) -> None:
    """Two hundred messages after four rounds without a request, against a saturated publisher."""
    owed: Mapping[int, float] = {}
    waiting = taken = 0
    for number in range(40):
        waiting += 200 if number % 10 == 4 else 0
        taken += waiting > 0
        division = divide(
            policy, 100, [Request(id=1, credits=100), Request(id=2, credits=waiting)], owed
        )
        owed = division.owed
        waiting -= division.shares[2]
    assert taken == 4 * rounds


@given(
    policy=st.sampled_from(POLICIES),
    pool=st.integers(0, 1 << 24),
    wanted=st.lists(st.tuples(st.integers(0, 1 << 24), st.integers(1, 1000)), max_size=12),
    owed=st.dictionaries(st.integers(0, 12), st.floats(0, 1e6)),
)
def test_no_credit_is_invented_or_withheld(
    policy: str, pool: int, wanted: list[tuple[int, int]], owed: dict[int, float]
) -> None:
    requests = [
        Request(id=i, credits=n, weight=w, arrived=-i) for i, (n, w) in enumerate(wanted)
    ]
    shares = divide(policy, pool, requests, owed).shares
    assert set(shares) == {r.id for r in requests}
    assert all(0 <= shares[r.id] <= r.credits for r in requests)
    assert sum(shares.values()) == min(pool, sum(r.credits for r in requests))
