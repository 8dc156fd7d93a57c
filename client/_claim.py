# SPDX-License-Identifier: Apache-2.0
"""Claims: write a message directly into the log."""

from __future__ import annotations

from penstock.client._message import release_view
from penstock.client._offer import Offer, offer_code
from penstock.core import client as core
from penstock.core.errors import ClaimRefused, ClosedError


class Claim:
    """A claim reserves a frame in the log, into which the application writes one message. If the
    publication refused the claim, ``bool(claim)`` is False, and ``code`` states the reason. At the
    end of a ``with`` block the claim commits; if the block raises an exception, the claim aborts.
    If you use a claim outside a ``with`` block, call :meth:`commit` or :meth:`abort`.
    """

    __slots__ = ("_native", "_open", "_view", "length", "reserved_value")

    def __init__(self, native: core.NativeClaim, length: int) -> None:
        self._native = native
        self._open = native.position > 0
        self._view: memoryview | None = None
        self.length = length
        """Payload bytes."""
        self.reserved_value = 0
        """64 bits to put beside the message; set before commit."""

    def __bool__(self) -> bool:
        return self._native.position > 0

    @property
    def code(self) -> Offer | None:
        """Reason for which the claim was refused; None if the claim was accepted."""
        return offer_code(self._native.position)

    @property
    def position(self) -> int:
        """Stream position after the message; if the claim was refused, the (negative) code of the
        refusal."""
        return self._native.position

    @property
    def buffer(self) -> memoryview:
        """The frame's payload as a writable memoryview, valid until :meth:`commit`
        or :meth:`abort`."""
        self._require_open()
        if self._view is None:
            self._view = self._native.view()
        return self._view

    def commit(self) -> int:
        """Publish the message; return its position.

        :raises ClaimLost: the claim was open for so long that the daemon replaced it by padding.
        """
        self._require_open()
        self._end_view()
        self._native.commit(self.reserved_value)
        return self._native.position

    def abort(self) -> None:
        """Abort the claim: the frame becomes padding, and no message is delivered."""
        self._require_open()
        self._end_view()
        self._native.abort()

    def _require_open(self) -> None:
        if self._native.position <= 0:
            self._raise_refused()
        if not self._open:
            raise ClosedError("the claim is already committed or aborted")

    def _raise_refused(self) -> None:
        code = self.code
        name = code.name if code is not None else str(self._native.position)
        raise ClaimRefused(f"the claim was refused: {name}", code=self._native.position)

    def _end_view(self) -> None:
        self._open = False
        if self._view is not None:
            release_view(self._view)
            self._view = None

    def __enter__(self) -> Claim:
        self._require_open()
        return self

    def __exit__(self, kind: object, *_exc: object) -> None:
        if not self._open:
            return  # the block did it itself
        if kind is None:
            self.commit()
        else:
            self.abort()
