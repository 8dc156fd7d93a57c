# SPDX-License-Identifier: Apache-2.0
"""Values of ``credits=`` that the client refuses before it asks the daemon."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import InvalidArgument
from penstock.client._credit_options import Credits, credits_given, credits_of, pool_of_client

UDP = "aeron:udp?endpoint=10.0.0.1:4000"


@pytest.mark.parametrize("value", [True, 1.5, b"5", [5]])
def test_credits_of_another_type_are_refused_with_the_value(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="credits is a number, 'auto' or Credits"):
        credits_given(value)


@pytest.mark.parametrize(("given", "parameter"), [
    (Credits(0), "ps-credits"),
    (Credits(-1), "ps-credits"),
    (Credits(2**24 + 1), "ps-credits"),
    (Credits(2**64), "ps-credits"),
    (Credits("many"), "ps-credits"),  # type: ignore[arg-type]
    (Credits(5, burst=-1), "ps-credit-burst"),
    (Credits(5, burst=2**64), "ps-credit-burst"),
    (Credits(5, max_message=0), "ps-max-message"),
    (Credits(5, max_message=-1), "ps-max-message"),
    (Credits(5, policy="greedy"), "ps-credit-policy"),
    (Credits(5, pool="world"), "ps-credit-pool"),  # type: ignore[arg-type]
])
def test_a_negative_or_absurd_value_is_refused_with_its_parameter(
    given: Credits, parameter: str
) -> None:
    with pytest.raises(InvalidArgument, match=parameter):
        given.in_channel(UDP)


def test_a_channel_that_states_another_number_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="ps-credits=5 contradicts ps-credits=6"):
        Credits(5).in_channel(f"{UDP}|ps-credits=6")


def test_the_pool_of_a_client_applies_to_channels_without_credits() -> None:
    pool = pool_of_client(5)
    assert pool is not None
    assert credits_of(None, pool, UDP) == pool
    assert pool.in_channel(UDP) == f"{UDP}|ps-credits=5|ps-credit-pool=client"
    assert credits_of(None, pool, f"{UDP}|ps-credits=6") is None
    assert credits_of(7, pool, UDP) == Credits(7)
    assert credits_of(None, None, UDP) is pool_of_client(None) is None
    with pytest.raises(InvalidArgument, match="cannot have pool='stream'"):
        pool_of_client(Credits(5, pool="stream"))


def test_an_unknown_way_to_lose_credits_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="'keep' or 'reclaim'"):
        Credits(5, leak="lose")  # type: ignore[arg-type]
