# SPDX-License-Identifier: Apache-2.0
"""Functions for a publication with ps-policy=error: find out if it has failed, and reset it
(``ps_policy.h``)."""

from __future__ import annotations

from penstock.core.client import PublicationHandle


def pub_reset(pub: PublicationHandle) -> int:
    """Reset a publication that has failed under ps-policy=error, so that it accepts offers again.
    Return 1 if the publication had failed, 0 if it had not failed, and a negative code if its
    policy is not ``error``."""
    return int(pub.lib.ps_pub_reset(pub.native))


def pub_is_failed(pub: PublicationHandle) -> int:
    """Return 1 if the publication has failed under ps-policy=error and was not reset since;
    otherwise 0."""
    return int(pub.lib.ps_pub_is_failed(pub.native))
