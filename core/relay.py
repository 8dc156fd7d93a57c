# SPDX-License-Identifier: Apache-2.0
"""Functions that only relays use: take over the publication of a dead process, and declare the
publication on which a relay publishes a reader's messages."""

from __future__ import annotations

from penstock.core.client import ImageHandle, PublicationHandle


def pub_take_over(pub: PublicationHandle, position: int, ordinal: int) -> int:
    """Take over an exclusive publication from a dead process. Write padding over the messages that
    the dead process had begun and not published. Return the number of messages from ``position``
    on.

    :param position: a position between two messages, at most two terms below the end.
    :param ordinal: number of messages below ``position``.
    :raises InvalidArgument: ``position`` is not between two messages or is too low, or the
        publication is shared.
    :raises CorruptLogError: the log has no frame at a position where a frame must begin.
    """
    found = int(pub.lib.ps_pub_take_over(pub.native, position, ordinal))
    return pub.library.check(found, "take over the publication")


def img_relay_to(image: ImageHandle, publication_slot: int) -> None:
    """Declare the image's reader as a relay. The relay publishes the received messages on the
    publication that has the given slot in penstock.dat. If an application blocks that publication,
    the image's status messages name this application from then on."""
    image.lib.ps_img_relay_to(image.native, publication_slot)
