# SPDX-License-Identifier: Apache-2.0
"""Check ``ps-credits`` and its option parameters: each alone, and together with other channel
parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.config.uri._values import ChannelError, integer

if TYPE_CHECKING:
    from penstock.config.uri.channel import ChannelUri

AUTO: Final = 0
"""``ps-credits=auto``: the daemon measures round trip and rate."""
MAX_CREDITS: Final = 1 << 24
"""Half of the longest term, in the shortest frames."""
MAX_WEIGHT: Final = 1000
POLICIES: Final = ("round_robin", "fifo", "weighted", "deficit")
_ACCEPTED: Final = f"1..{MAX_CREDITS} messages, or auto"
POOLS: Final = ("stream", "client")
_OPTIONS: Final = ("ps-credit-burst", "ps-credit-policy", "ps-credit-pool", "ps-credits-required")
_HEADER: Final = 32


def read_credits(key: str, text: str) -> int:
    """Messages; :data:`AUTO` for ``auto``."""
    if text == "auto":
        return AUTO
    try:
        return integer(1, MAX_CREDITS)(key, text)
    except ChannelError:
        raise ChannelError(
            key, text, "is neither a number of credits nor auto", _ACCEPTED
        ) from None


def write_credits(value: int) -> str:
    return "auto" if value == AUTO else str(value)


def read_credit_policy(key: str, text: str) -> str:
    if text not in POLICIES:
        raise ChannelError(key, text, "is not a credit policy", ", ".join(POLICIES))
    return text


def read_credit_pool(key: str, text: str) -> str:
    """Parse ``ps-credit-pool``: each stream has its own pool of credits, or all streams of the
    client share one pool."""
    if text not in POOLS:
        raise ChannelError(key, text, "is not a pool of credits", ", ".join(POOLS))
    return text


def room_of(message_bytes: int, mtu: int) -> int:
    """Return the number of log bytes that a message of ``message_bytes`` bytes occupies, including
    its frame headers."""
    payload = mtu - _HEADER
    if message_bytes <= payload:
        return _framed(message_bytes)
    whole, rest = divmod(message_bytes, payload)
    return whole * mtu + (_framed(rest) if rest else 0)


def _framed(length: int) -> int:
    return -(-(length + _HEADER) // 32) * 32


def check_credits(uri: ChannelUri) -> None:
    """Check the credit parameters of a subscription's channel.

    :raises ChannelError: a credit parameter contradicts another credit parameter or another
        parameter of the channel.
    """
    given = uri.given()
    if uri.ps_credits is None:
        for key in _OPTIONS:
            if key in given:
                raise ChannelError(
                    key, given[key], "needs ps-credits, which is missing", _ACCEPTED
                )
        return
    stated = f"ps-credits={given['ps-credits']}"
    if uri.reliable is False:
        raise ChannelError(
            "ps-credits", given["ps-credits"], "contradicts reliable=false: a lost message would "
            "keep its credit", "ps-credits with reliable=true, or no ps-credits",
        )
    if uri.tether is False:
        raise ChannelError(
            "ps-credits", given["ps-credits"], "contradicts tether=false: a subscriber that is "
            "behind would skip messages, whose credits would never return",
            "ps-credits with tether=true, or no ps-credits",
        )
    check_strategy(uri, stated)
    burst = uri.ps_credit_burst
    if burst is not None and uri.ps_credits == AUTO:
        raise ChannelError(
            "ps-credit-burst", given["ps-credit-burst"], f"contradicts {stated}, which "
            "chooses the burst automatically", "ps-credit-burst with a number in ps-credits",
        )
    if burst is not None and burst < uri.ps_credits:
        raise ChannelError(
            "ps-credit-burst", given["ps-credit-burst"], f"is less than {stated}",
            f"at least {uri.ps_credits}",
        )


def check_strategy(uri: ChannelUri, stated: str) -> None:
    """Refuse credits if the channel's flow control can let the sender exceed a receiver's limit."""
    if uri.fc is not None and (uri.fc.strategy == "nak" or uri.fc.strategy.startswith("py:")):
        raise ChannelError(
            "fc", str(uri.fc), f"contradicts {stated}: this flow control does not keep a sender "
            "within its receivers' limits", "fc=max, min, tagged or preferred with credits",
        )
