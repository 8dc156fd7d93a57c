# SPDX-License-Identifier: Apache-2.0
"""Handles of credits. A credit permits a publisher to send one message. A handle records the
messages whose credits the application has not returned yet.

With credit handles, each delivered message or batch of messages has one handle. Any thread may
release handles, in any order. If an unreleased handle is garbage-collected, its finalizer only
records the lost credits, because a finalizer can run in any thread. The next call on the
subscription logs a warning about the lost credits.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import attrs

from penstock.core.errors import CreditReleased, InvalidArgument

if TYPE_CHECKING:
    from penstock.client._image import Image

#: Fate of the credit of a handle that was never released.
CreditLeak: TypeAlias = Literal["keep", "reclaim"]

_log: Final = logging.getLogger("penstock.client")


@attrs.frozen(kw_only=True)
class SubscriptionCredits:
    """Credits of all images of a subscription at one moment; one credit permits one message."""

    granted: int
    """Messages that its publishers may have sent since the images joined."""
    returned: int
    """Credits that came back."""
    held: int
    """Messages that were delivered and hold their credit."""
    leaked: int
    """Credits of handles that were never released."""

    @property
    def outstanding(self) -> int:
        """Number of credits that were granted and not returned. These are unused credits, credits
        of messages that have not arrived yet, and credits of messages that the application has not
        released."""
        return self.granted - self.returned


class CreditHandle:
    """A handle for the credits of a message, or of the messages of a batch.

    At the end of a ``with`` block the handle releases its credits, unless an exception ends the
    block.
    """

    __slots__ = ("__weakref__", "_account", "_held", "_is_passed", "_is_used", "_lock")

    def __init__(self, account: CreditAccount, held: list[tuple[Image, int]]) -> None:
        self._account = account
        self._held = held                   # by image; empty: released
        self._lock = threading.Lock()
        self._is_used = False               # the application has read ``message.credit``
        self._is_passed = False             # a loop has released the credits

    def _use(self) -> CreditHandle:
        """Give the handle to the application: from now on no loop releases its credits.

        :raises CreditReleased: a loop has released the credits already.
        """
        with self._lock:
            if self._is_passed:
                raise CreditReleased(
                    f"the loop over {self._account.name} has returned this credit, because its "
                    "body did not read message.credit: read it in the body, before another thread "
                    "processes the message"
                )
            self._is_used = True
        return self

    def _pass(self) -> None:
        """Release the credits because a loop goes on, unless the application uses the handle."""
        with self._lock:
            if self._is_used:
                return
            self._is_passed = True
            held, self._held = self._held, []
        self._account.give_back(held)

    @property
    def count(self) -> int:
        """Number of credits of this handle that are not released yet."""
        return sum(count for _image, count in self._held)

    def release(self, n: int | None = None) -> None:
        """Return credits to the publishers.

        :param n: number of credits to release, beginning with the batch's oldest message; None: all
            that remain.
        :raises CreditReleased: the credits were released before.
        :raises InvalidArgument: ``n`` is below 1, or exceeds the handle's remaining credits.
        """
        with self._lock:
            left = self.count
            wanted = left if n is None else n
            if left == 0:
                raise CreditReleased(
                    f"the credit of {self._account.name} was already released: release each handle "
                    "once"
                )
            if not 0 < wanted <= left:
                raise InvalidArgument(f"release(n) takes 1 to {left} credits, not {n}")
            parts = self._take(wanted)
        self._account.give_back(parts)

    def _take(self, wanted: int) -> list[tuple[Image, int]]:
        taken = []
        while wanted:
            image, count = self._held[0]
            part = min(count, wanted)
            taken.append((image, part))
            wanted -= part
            if part == count:
                del self._held[0]
            else:
                self._held[0] = (image, count - part)
        return taken

    def _void(self) -> list[tuple[Image, int]]:
        """Drop the handle without a release: its messages are about to be delivered again. Return
        what it still held."""
        with self._lock:
            held, self._held = self._held, []
        return held

    def __enter__(self) -> CreditHandle:
        return self

    def __exit__(self, kind: object, *_exc: object) -> None:
        if kind is None and self._held:
            self.release()

    def __del__(self) -> None:
        held = getattr(self, "_held", None)
        if held:
            self._account.lose(held)

    def __repr__(self) -> str:
        return f"<CreditHandle {self.count} of {self._account.name}>"


class CreditAccount:
    """The handles of one subscription."""

    def __init__(
        self,
        name: str,
        *,
        leak: CreditLeak,
        give_back: Callable[[Image, int], object],
        keep: Callable[[Image, int], object],
    ) -> None:
        """``name`` is the name of the client and stream for warnings. ``give_back`` notifies the
        core of credits that the application released. ``keep`` notifies the core of credits whose
        handle was garbage-collected without a release."""
        self.name = name
        self._leak = leak
        self._give_back = give_back
        self._keep = keep
        self._lost: deque[tuple[Image, int]] = deque()      # appended to by finalizers
        self._early: dict[int, int] = {}    # released before their messages were rewound, by image
        self.leaked = 0

    def handle(self, counts: Iterable[tuple[Image, int]]) -> CreditHandle:
        """Create the handle for the credits of messages that a poll is delivering."""
        held = []
        for image, count in counts:
            early = min(count, self._early.get(id(image), 0)) if self._early else 0
            if early:
                self._early[id(image)] -= early
            if count > early:
                held.append((image, count - early))
        return CreditHandle(self, held)

    def give_back(self, parts: Iterable[tuple[Image, int]]) -> None:
        """Return credits to the core. Skip the credits of an image that has ended, because no
        publisher waits for these credits."""
        for image, count in parts:
            if not image.is_closed:
                self._give_back(image, count)

    def lose(self, parts: Iterable[tuple[Image, int]]) -> None:
        """Record the credits of a handle that was garbage-collected before the application released
        it. Any thread and any finalizer may call :meth:`lose`."""
        self._lost.extend(parts)

    def rewound(self, handle: CreditHandle, counts: Iterable[tuple[Image, int]]) -> None:
        """Void a handle because its messages will be delivered again with a new handle. If the
        application has already released some credits of the voided handle, record these credits:
        the new handle must not contain them."""
        left: dict[int, int] = {}
        for image, count in handle._void():
            left[id(image)] = left.get(id(image), 0) + count
        for image, count in counts:
            early = count - left.get(id(image), 0)
            if early:
                self._early[id(image)] = self._early.get(id(image), 0) + early

    def forget(self, image: Image) -> None:
        """Remove the credits that :meth:`rewound` recorded for ``image``, which has ended."""
        self._early.pop(id(image), None)

    def report(self) -> None:
        """Log a warning for each handle that was garbage-collected without a release. The call
        covers the handles that :meth:`lose` has recorded since the last call."""
        while self._lost:
            image, count = self._lost.popleft()
            if image.is_closed:
                continue
            self.leaked += count
            lost = f"{count} credit{'s' if count > 1 else ''}"
            text = (
                f"{lost} of {self.name}, session {image.session_id} from {image.source_identity}, "
                "leaked: the handle was dropped without release(); "
            )
            if self._leak == "reclaim":
                self._give_back(image, count)
                text += "reclaimed, because credit_leak is 'reclaim'"
            else:
                self._keep(image, count)
                text += (
                    "the publisher has as much less until the subscription closes: call "
                    "message.credit.release() after the message was processed"
                )
            _log.error(text)
            warnings.warn(text, ResourceWarning, stacklevel=2)
