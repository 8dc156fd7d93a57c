# SPDX-License-Identifier: Apache-2.0
"""Divide a pool of credits among the publishers of a stream.

The division is a pure function. Its result depends only on its arguments: the policy, the pool, the
publishers' requests, and the number of credits that each publisher did not get in earlier rounds.
The unit is messages. The policies (docs/credits.md):

``round_robin``
    Max-min fair: a publisher that requests less than the equal share gets its request, and the
    others share the rest equally.
``weighted``
    As round robin, in proportion to the weights.
``fifo``
    Requests are served in the order in which they arrived.
``deficit``
    As weighted over many rounds: a publisher is owed the part of its share that it did not
    request, and owes what it took beyond its share, each up to :data:`KEPT_ROUNDS` rounds' worth.
    A publisher that sends in bursts is served first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs

POLICIES: Final = ("round_robin", "fifo", "weighted", "deficit")
KEPT_ROUNDS: Final = 8


@attrs.frozen(kw_only=True)
class Request:
    """The number of credits that one publisher requests in a round of the division."""

    id: int
    credits: int                        # messages, at least 0
    weight: int = 1                     # at least 1
    arrived: int = 0                    # order of the request; the lowest came first


@attrs.frozen(kw_only=True)
class Division:
    """The outcome of one round."""

    shares: Mapping[int, int]
    """Credits of each publisher, whose sum is at most the pool."""
    owed: Mapping[int, float]
    """Credits that rounding, or the deficit policy, owes each publisher: for the next round."""


def divide(
    policy: str, pool: int, requests: Sequence[Request],
    owed: Mapping[int, float] | None = None,
) -> Division:
    """Divide the ``pool`` (a number of credits, 0 or more) among the publishers that request
    credits.

    :param policy: one of :data:`POLICIES`.
    :param owed: shares that publishers did not get in the last round; a publisher that is not in
        ``requests`` loses its entry.
    """
    before = owed or {}
    if policy == "fifo":
        return Division(shares=_in_order(pool, requests), owed={})
    if policy == "deficit":
        return _by_deficit(pool, requests, before)
    weights = {r.id: r.weight if policy == "weighted" else 1 for r in requests}
    ideal = max_min(pool, {r.id: r.credits for r in requests}, weights)
    return _rounded(pool, requests, ideal, before)


def max_min(
    pool: float, requested: Mapping[int, float], weights: Mapping[int, int]
) -> dict[int, float]:
    """Return each publisher's weighted max-min fair share of ``pool``. A share need not be a whole
    number."""
    shares = dict.fromkeys(requested, 0.0)
    left, weight = float(pool), sum(weights[i] for i in requested)
    for i in sorted(requested, key=lambda i: requested[i] / weights[i]):
        shares[i] = min(float(requested[i]), left * weights[i] / weight)
        left -= shares[i]
        weight -= weights[i]
    return shares


def _in_order(pool: int, requests: Iterable[Request]) -> dict[int, int]:
    shares = {}
    for request in sorted(requests, key=lambda r: (r.arrived, r.id)):
        shares[request.id] = min(request.credits, pool)
        pool -= shares[request.id]
    return shares


def _rounded(
    pool: int, requests: Sequence[Request], ideal: Mapping[int, float], owed: Mapping[int, float]
) -> Division:
    """Make the shares whole numbers.  What rounding takes from a publisher is owed to it, so that
    no publisher is favoured over many rounds."""
    due = {r.id: ideal[r.id] + owed.get(r.id, 0.0) for r in requests}
    shares = {r.id: min(max(int(due[r.id]), 0), r.credits) for r in requests}
    left = min(pool, round(sum(ideal.values()))) - sum(shares.values())
    by_debt = sorted(requests, key=lambda r: shares[r.id] - due[r.id])
    while left > 0 and any(shares[r.id] < r.credits for r in requests):
        for request in by_debt:
            if left > 0 and shares[request.id] < request.credits:
                shares[request.id] += 1
                left -= 1
    for request in reversed(by_debt):
        taken = min(shares[request.id], max(-left, 0))
        shares[request.id] -= taken
        left += taken
    debts = {
        r.id: min(max(due[r.id] - shares[r.id], -1.0), 1.0)
        for r in requests if ideal[r.id] < r.credits
    }
    return Division(shares=shares, owed=debts)


def _by_deficit(
    pool: int, requests: Sequence[Request], owed: Mapping[int, float]
) -> Division:
    weights = {r.id: r.weight for r in requests}
    fair = {i: pool * weight / sum(weights.values()) for i, weight in weights.items()}
    entitled = {i: fair[i] + owed.get(i, 0.0) for i in fair}
    first = max_min(
        pool, {r.id: min(r.credits, max(entitled[r.id], 0.0)) for r in requests}, weights
    )
    left = pool - sum(first.values())
    second = max_min(left, {r.id: r.credits - first[r.id] for r in requests}, weights)
    shares = _rounded(pool, requests, {i: first[i] + second[i] for i in first}, {}).shares
    most = {i: KEPT_ROUNDS * fair[i] + 1 for i in fair}     # 1: what rounding may owe
    kept = {i: min(max(entitled[i] - shares[i], -most[i]), most[i]) for i in fair}
    return Division(shares=shares, owed=kept)
