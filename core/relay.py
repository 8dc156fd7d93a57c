# SPDX-License-Identifier: Apache-2.0
"""Calls that only relays use. A relay can continue the publication of a dead process, and can state
on which publication it publishes a reader's messages."""

from __future__ import annotations

from penstock.core.client import ImageHandle, PublicationHandle


def pub_take_over(pub: PublicationHandle, position: int, ordinal: int) -> int:
    """Return the number of messages from ``position`` on. Write padding in place of messages that
    the dead owner had begun and not published.

    :param position: a position between two messages, at most two terms below the end.
    :param ordinal: number of messages below ``position``.
    :raises InvalidArgument: ``position`` is not between two messages or is too low, or the
        publication is shared.
    :raises CorruptLogError: the log has no frame at a position where a frame must begin.
    """
    found = int(pub.lib.ps_pub_take_over(pub.native, position, ordinal))
    return pub.library.check(found, "take over the publication")


def img_relay_to(image: ImageHandle, publication_slot: int) -> None:
    """State that the relay publishes this reader's messages on the publication in a slot of
    penstock.dat. The image's status messages afterwards name the application that blocks this
    publication."""
    image.lib.ps_img_relay_to(image.native, publication_slot)
