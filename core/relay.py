# SPDX-License-Identifier: Apache-2.0
"""Functions that only relays use: take over the publication and the image of a dead process, and
declare the publication on which a relay publishes a reader's messages."""

from __future__ import annotations

from typing import Final

from penstock.core.client import ImageHandle, PublicationHandle

#: Stands for an unknown number of messages.
UNKNOWN: Final = -1


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


def img_take_over(image: ImageHandle, recorded: int, ordinal: int = UNKNOWN) -> None:
    """Continue the image of a dead process. If the dead process had released the first fragments of
    a message, the next poll delivers this message as a whole.

    :param recorded: end of the last message that the dead process has published, or of the last gap
        that was reported to it.
    :param ordinal: number of messages below ``recorded``, as :func:`img_ordinal` counts.
    :raises InvalidArgument: the image was polled before, or ``recorded`` is no frame's position.
    """
    code = image.lib.ps_img_take_over(image.native, recorded, ordinal)
    image.library.check(code, "continue an image")


def img_ordinal(image: ImageHandle) -> int:
    """Return the number of messages of the session below the delivered position, from which the
    next gap of a reader counts that may be overrun; ``UNKNOWN`` for other readers."""
    return int(image.lib.ps_img_ordinal(image.native))


def img_relay_to(image: ImageHandle, publication_slot: int) -> None:
    """Declare the image's reader as a relay. The relay publishes the received messages on the
    publication that has the given slot in penstock.dat. If an application blocks that publication,
    the image's status messages name this application from then on."""
    image.lib.ps_img_relay_to(image.native, publication_slot)
