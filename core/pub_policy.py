# SPDX-License-Identifier: Apache-2.0
"""The policy of a publication, from the view of its publisher (``ps_policy.h``)."""

from __future__ import annotations

from penstock.core.client import PublicationHandle


def pub_reset(pub: PublicationHandle) -> int:
    """End the failure of a publication. Return 1 if it had failed, 0 if it had not, a negative code
    if it has another policy."""
    return int(pub.lib.ps_pub_reset(pub.native))


def pub_is_failed(pub: PublicationHandle) -> int:
    """Return 1 after a failure under ps-policy=error, until the reset."""
    return int(pub.lib.ps_pub_is_failed(pub.native))
