# SPDX-License-Identifier: Apache-2.0
"""The table ``[backpressure]`` of the configuration."""

from __future__ import annotations

from typing import Final

import attrs

from penstock.config import uri
from penstock.config.settings._fields import depth, parsed_text, ratio


def check_policy(text: str) -> None:
    if text:
        uri.read_policy("ps-policy", text)


def check_fanout(text: str) -> None:
    if text:
        uri.read_fanout("ps-fanout", text)


def _either_policy(text: str) -> None:
    if text and text.replace("-", "_") not in uri.SUB_POLICIES:
        check_policy(text)


_POLICIES: Final = tuple(dict.fromkeys((*uri.POLICIES, *uri.SUB_POLICIES)))


@attrs.frozen(kw_only=True)
class BackpressureConfig:
    """Default policies for publications whose log is full and for subscriptions that are behind;
    parameters of the channel take precedence."""

    default_policy: str = parsed_text(
        "", _either_policy, f"{', '.join(_POLICIES)}, or empty",
        "Policy of publications. Empty: if the log is full, the publication refuses messages until "
        "there is room. The policy independent applies only to subscriptions without credits. The "
        "policy drop_oldest applies to publications and subscriptions.",
        'Set "drop_newest" if a late message is worthless and the publisher must not wait. '
        'Set "independent" if no reader may slow the other readers down.')
    default_queue_depth: uri.Depth = depth(
        "Number of bytes or messages by which a publication may be ahead of the sender (on IPC: "
        "of the slowest reader). With the policy independent or drop_oldest, also the number by "
        "which a subscription may be behind. If the value is 0, a publication may be ahead by its "
        "window, and a subscription may be behind by a quarter of its window.",
        "With the policy drop_newest or drop_oldest, lower this value if messages must be recent.")
    low_watermark_ratio: float = ratio(
        0.0, "When a publication's log is full, the publication refuses messages until its "
             "unsent data has fallen to this fraction of default_queue_depth. "
             "If the value is 0 and a publication has a policy or a depth (ps-policy, ps-depth), "
             "the daemon uses 0.5. If the value is 0 and a publication has neither policy nor "
             "depth, the publication accepts messages as soon as there is room.",
        "With a high value, a blocked publisher continues earlier. With a low value, publishers "
        "are blocked less often.")
