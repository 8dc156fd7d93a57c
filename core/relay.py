# SPDX-License-Identifier: Apache-2.0
"""Calls that only relays make: continue the publication of a process that has died, and name the
target of a reader."""

from __future__ import annotations

from penstock.core.client import ImageHandle, PublicationHandle


def pub_take_over(pub: PublicationHandle, position: int, ordinal: int) -> int:
    """Return the number of messages from ``position`` on; pad over what the dead owner had begun.

    :param position: a place between two messages, at most two terms below the end.
    :param ordinal: number of messages below it.
    :raises InvalidArgument: the position is elsewhere, or the publication is shared.
    :raises CorruptLogError: there is no frame where one should be.
    """
    found = int(pub.lib.ps_pub_take_over(pub.native, position, ordinal))
    return pub.library.check(found, "take over the publication")


def img_relay_to(image: ImageHandle, publication_slot: int) -> None:
    """State that this reader feeds the publication in a slot: status messages of the image then
    name the application that holds that publication."""
    image.lib.ps_img_relay_to(image.native, publication_slot)
