# SPDX-License-Identifier: Apache-2.0
"""The policy of a publication, as its publisher meets it (``ps_policy.h``)."""

from __future__ import annotations

from penstock.core.client import PublicationHandle


def pub_reset(pub: PublicationHandle) -> int:
    """Ends the failure of a publication: 1 it had failed, 0 it had not, negative: other policy."""
    return int(pub.lib.ps_pub_reset(pub.native))


def pub_is_failed(pub: PublicationHandle) -> int:
    """1 from a failure under ps-policy=error to the reset."""
    return int(pub.lib.ps_pub_is_failed(pub.native))
