# SPDX-License-Identifier: Apache-2.0
"""The table ``[credits]``."""

from __future__ import annotations

from typing import Final

import attrs

from penstock.config import uri
from penstock.config.settings._fields import duration, parsed_text, size

_SECOND_NS: Final = 10**9


def check_credits(text: str) -> None:
    """:raises ValueError: the text is not a valid value of ps-credits."""
    if text:
        uri.read_credits("ps-credits", text)


def check_credit_policy(text: str) -> None:
    """:raises ValueError: the text is not a valid value of ps-credit-policy."""
    if text:
        uri.read_credit_policy("ps-credit-policy", text)


@attrs.frozen(kw_only=True)
class CreditsConfig:
    """Default credits of subscriptions; parameters of the channel take precedence."""

    default_credits: str = parsed_text(
        "", check_credits, "a number of credits (messages), auto, or empty",
        "Credits of subscriptions whose channel states no ps-credits; empty: no credits.",
        "Rarely. Prefer ps-credits on the channels of subscriptions that must be able to stop "
        "their publishers.")
    max_message_bytes: int = size(
        0, 0, 1 << 24, "The daemon makes the receiver window large enough to hold a message of "
                       "this length for each credit; 0: a message of one frame.",
        "Set this key to the usual length of your messages if they are longer than the MTU.")
    policy: str = parsed_text(
        "", check_credit_policy, f"{', '.join(uri.CREDIT_POLICIES)}, or empty",
        "How a subscription divides its credits among its publishers; empty: each publisher gets "
        "the full number of credits.",
        'Set "fifo" if throughput matters more than equal shares of the publishers.')
    idle_timeout_ns: int = duration(
        _SECOND_NS, "If a publisher sends no message for this time, it keeps one credit, and "
                    "the daemon grants its other credits to other publishers.",
        "Lower this value if the publishers of a stream are active one after another.")
