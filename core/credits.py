# SPDX-License-Identifier: Apache-2.0
"""Credits of readers and publications (penstock.h, ps_slots.h)."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, Final

import attrs

from penstock.core import errors
from penstock.core.client import ImageHandle, PublicationHandle

if TYPE_CHECKING:
    from penstock.core.admin import Shared


#: Capability of a peer that knows credits (PS_CAP_CREDITS).
CAP_CREDITS: Final = 32


class CreditMode(enum.IntEnum):
    """Way in which a reader returns the credits of an image's messages to the publisher
    (ps_credit_mode)."""

    PLAIN = 0           # the reader grants none
    AUTOMATIC = 1       # with the release of the messages
    HANDLES = 2         # by img_return_credits


class CreditState(enum.IntEnum):
    """State of a reader's credits (ps_credit_state)."""

    NONE = 0
    GRANTING = 1
    FREEZING = 2        # withheld, and the sender has not acknowledged it
    FROZEN = 3          # the sender admits no message; claims may be open
    SETTLED = 4         # nothing beyond ``final`` comes before the resume
    UNSUPPORTED = 5 # the sender does not support credits, or its message count is unknown


@attrs.frozen(kw_only=True)
class CreditView:
    """Credits of one reader, and the amount of data that the reader skipped. The values come from
    the reader's subscriber slot in ``penstock.dat``. The counts are numbers of messages since the
    reader joined."""

    credits: int                        # 0: the reader grants none
    burst: int
    passed: int                         # messages that polls went past
    returned: int                       # of these, how many credits were returned
    leaked: int                         # of these, how many were lost with their handles
    granted: int                        # messages that may exist
    final: int                          # last message before the resume; -1: not known
    epoch: int
    state: int                          # ps_credit_state
    skipped_messages: int = 0           # in gaps whose number of messages is known
    skipped_bytes: int = 0              # of all gaps that the reader skipped
    expired_messages: int = 0           # the same of gaps because of ps-retention
    expired_bytes: int = 0
    arrived: int = 0                    # messages that are at the reader's host

    @property
    def is_complete(self) -> bool:
        """Whether the reader's credits are completely frozen: no further message arrives, and the
        credit of each message was returned or lost."""
        settled = self.state == CreditState.SETTLED
        return settled and self.returned + self.leaked >= self.final


def read_credit_view(view: Any) -> CreditView:
    """Copy a native ps_credit_view_t."""
    return CreditView(
        credits=view.credits, burst=view.burst, passed=view.passed, returned=view.returned,
        leaked=view.leaked, granted=view.granted, final=view.final, epoch=view.epoch,
        state=view.state, skipped_messages=view.skipped_messages,
        skipped_bytes=view.skipped_bytes, expired_messages=view.expired_messages,
        expired_bytes=view.expired_bytes, arrived=view.arrived,
    )


def img_return_credits(image: ImageHandle, number: int) -> int:
    """Give ``number`` credits back to the publisher. The application has these credits in handles.
    The result is the number of credits that the application still holds. InvalidArgument: fewer are
    held."""
    left = int(image.lib.ps_img_return_credits(image.native, number))
    return image.library.check(left, "return credits") if left < 0 else left


def img_leak_credits(image: ImageHandle, number: int) -> int:
    """Count ``number`` credits as lost, because the application lost their handles. The result is
    the number of credits that the application still holds."""
    left = int(image.lib.ps_img_leak_credits(image.native, number))
    return image.library.check(left, "count lost credits") if left < 0 else left


def img_reclaim_credits(image: ImageHandle, number: int) -> int:
    """Give ``number`` credits back to the publisher. These credits were counted as lost. The result
    is the number of credits that are still lost."""
    left = int(image.lib.ps_img_reclaim_credits(image.native, number))
    return image.library.check(left, "reclaim credits") if left < 0 else left


def img_credits(image: ImageHandle) -> CreditView:
    """Return a copy of the credits of the image's reader."""
    view = image.library.ffi.new("ps_credit_view_t *")
    image.library.check(image.lib.ps_img_credits(image.native, view), "read credits")
    return read_credit_view(view)


def pub_credits(pub: PublicationHandle) -> int:
    """Return how many more messages the stream's credits allow now; 2^63 - 1: no receiver grants
    credits."""
    return int(pub.lib.ps_pub_credits(pub.native))


def pub_credit_counts(pub: PublicationHandle) -> tuple[int, int] | None:
    """Return two message numbers (ordinals) of the stream. The receivers have granted credits for
    the messages up to the first number; publishers have used credits for the messages up to the
    second. None: no receiver grants credits. ForkedError."""
    ffi = pub.library.ffi
    granted, spent = ffi.new("int64_t *"), ffi.new("int64_t *")
    code = pub.lib.ps_pub_credit_counts(pub.native, granted, spent)
    if code == errors.E_INVALID:
        return None
    pub.library.check(code, "read credits")
    return int(granted[0]), int(spent[0])


def read_spent(shared: Shared, publication_slot: int) -> tuple[int, int] | None:
    """Return two message numbers (ordinals) of the stream. The receivers have granted credits for
    the messages up to the first number; publishers have used credits for the messages up to the
    second. None: no receiver grants credits. Any thread."""
    ffi = shared.library.ffi
    granted, spent = ffi.new("int64_t *"), ffi.new("int64_t *")
    code = shared.library.lib.ps_slot_read_spent(shared.handle, publication_slot, granted, spent)
    if not shared.library.check(code, "read the credits of a publication"):
        return None
    return int(granted[0]), int(spent[0])


def read_credit(shared: Shared, subscriber_slot: int) -> CreditView:
    """Return a copy of the credits of a reader, which is identified by its subscriber slot. Any
    thread."""
    view = shared.library.ffi.new("ps_credit_view_t *")
    code = shared.library.lib.ps_slot_read_credit(shared.handle, subscriber_slot, view)
    shared.library.check(code, "read the credits of a reader")
    return read_credit_view(view)
