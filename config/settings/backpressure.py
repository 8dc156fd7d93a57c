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
    parameters of the channel take precedence."""

    default_policy: str = parsed_text(
        "", _either_policy, f"{', '.join(_POLICIES)}, or empty",
        "Policy of publications. Empty: if the log is full, the publication refuses messages until "
        "there is room. independent is a policy of subscriptions without credits; drop_oldest is a "
        "policy of publications and subscriptions.",
        'Set "drop_newest" if a late message is worthless and the publisher must not wait, '
        '"independent" if no reader may slow the other readers down.')
    default_queue_depth: int = size(
        0, 0, 1 << 30, "Bytes that a publication may be ahead of its consumers, and that a "
                       "subscription with the policy independent or drop_oldest may be behind. "
                       "0: a publication's window, or a quarter of a subscription's window.",
        "Lower this value if messages must be recent, with the policy drop_newest or "
        "drop_oldest.")
    low_watermark_ratio: float = ratio(
        0.0, "If a publication's log was full, the publication accepts messages again when its "
             "unsent data has fallen to this part of default_queue_depth. If the value is 0 "
             "and a publication has a policy or a depth (ps-policy, ps-depth), the daemon uses "
             "0.5. If the value is 0 and a publication has neither policy nor depth, the "
             "publication accepts messages as soon as there is room.",
        "A higher low_watermark_ratio gives shorter pauses of the publisher, a lower ratio "
        "gives fewer pauses.")
