# SPDX-License-Identifier: Apache-2.0
"""The table ``[backpressure]`` of the configuration."""

from __future__ import annotations

from typing import Final

import attrs

from penstock.config import uri
from penstock.config.settings._fields import parsed_text, ratio, size


def check_policy(text: str) -> None:
    if text:
        uri.read_policy("ps-policy", text)


def _either_policy(text: str) -> None:
    if text and text.replace("-", "_") not in uri.SUB_POLICIES:
        check_policy(text)


_POLICIES: Final = tuple(dict.fromkeys((*uri.POLICIES, *uri.SUB_POLICIES)))


@attrs.frozen(kw_only=True)
class BackpressureConfig:
    """Defaults for a publication whose log is full, and for a subscription that is behind;
    parameters of the channel override them."""

    default_policy: str = parsed_text(
        "", _either_policy, f"{', '.join(_POLICIES)}, or empty",
        "Policy of publications (empty: accept again as soon as there is room); independent is a "
        "policy of subscriptions without credits, drop_oldest is a policy of both.",
        "drop_newest if a late message is worthless and the publisher must not wait; independent "
        "if no reader may slow the others down.")
    default_queue_depth: int = size(
        0, 0, 1 << 30, "Bytes that a publication may be ahead of its consumers, and that a "
                   "subscription with the policy independent or drop_oldest may be behind; 0: a "
                   "publication's window, a quarter of a subscription's.",
        "Lower it for fresh data with the policy drop_newest or drop_oldest.")
    low_watermark_ratio: float = ratio(
        0.0, "A full publication accepts messages again when its log has drained to this part of "
             "the depth. The value 0 means 0.5 if a policy or a depth is stated. If neither is "
             "stated, 0 means that the publication accepts messages as soon as there is room.",
        "A higher value gives shorter pauses of the publisher, a lower value gives fewer pauses.")
