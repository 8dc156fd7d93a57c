# SPDX-License-Identifier: Apache-2.0
"""Withhold the credits of a subscription, and wait until all published messages are delivered and
released."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

from penstock.client._reader import Handler
from penstock.config.protocol import control
from penstock.core.credits import CreditState, CreditView, img_credits
from penstock.core.errors import ChannelRefused, PenstockError, WithholdTimeout

if TYPE_CHECKING:
    from penstock.client._image import Image
    from penstock.client._subscription import Subscription

_STATES = {
    "granting": "the daemon has not withheld it yet",
    "freezing": "the sender has not acknowledged it yet",
    "frozen": "a claim is open at the publisher",
    "settled": "messages are not released yet",
    "half_open": "the sender has begun, and no frame of it has arrived",
}


@attrs.frozen(kw_only=True)
class OpenBatch:
    """A batch that a member of a consumer group has received and not committed."""

    client: str
    """Name of the member's client, or an empty text."""
    pid: int
    """Id of the member's process."""
    start_position: int
    position: int

    def __str__(self) -> str:
        return (
            f"member {self.client or 'without name'} (process {self.pid}) holds positions "
            f"{self.start_position} to {self.position}"
        )


@attrs.frozen(kw_only=True)
class Outstanding:
    """An image for which the application has not returned all credits yet. ``final``, ``delivered``
    and ``returned`` count messages since the image joined the stream."""

    session_id: int
    source: str
    """``ip:port`` of the sender, ``aeron:ipc`` or ``aeron-spy``."""
    state: str
    """``half_open`` (no frame has arrived), ``granting``, ``freezing`` (not acknowledged),
    ``frozen`` (a claim is open), ``settled``."""
    final: int
    """The publishers' last message; -1: not known yet."""
    delivered: int
    returned: int
    batches: tuple[OpenBatch, ...] = ()
    """Open batches of this session, if the reader is a consumer group."""

    def __str__(self) -> str:
        why = _STATES.get(self.state, self.state)
        known = f"{self.returned} of {self.final}" if self.final >= 0 else str(self.returned)
        return (
            f"session {self.session_id} from {self.source}: {known} messages returned, "
            f"{self.delivered} delivered: {why}"
            + "".join(f", {batch}" for batch in self.batches)
        )


class Withholding:
    """One call of :meth:`penstock.Subscription.withhold`. The call requests the daemon to withhold
    the credits. Then it polls until the application has returned the credit of every published
    message."""

    def __init__(self, subscription: Subscription, handler: Handler | None) -> None:
        self._subscription = subscription
        self._handler = handler
        self._settled = subscription._settled_epochs
        self._coming: dict[int, list[Any]] = {}     # images without a frame: session and source

    def request(self) -> None:
        """Request it from the daemon.  Blocks for one exchange."""
        done = set_withheld(self._subscription, withheld=True)
        self._coming = {int(image): facts for image, facts in done.coming.items()}

    def is_done(self) -> bool:
        """Poll the subscription. Return True if the application has now returned the credits of all
        published messages.

        :raises ChannelRefused: a sender does not support credits.
        """
        subscription = self._subscription
        subscription._refresh()
        if self._handler is not None:
            while subscription.poll(self._handler):
                pass
        for known in [*subscription._ended, *(i.correlation_id for i in subscription._images)]:
            self._coming.pop(known, None)
        done = not self._coming
        for image in subscription._images:
            view = img_credits(image._handle)
            if view.state == CreditState.UNSUPPORTED:
                raise ChannelRefused(
                    f"session {image.session_id} from {image.source_identity} on "
                    f"{subscription.channel} stream {subscription.stream_id}: its sender "
                    "supports no credits, so its messages cannot be withheld",
                    code="not_supported",
                )
            # Until the agent applied the request, the slot may show the end of an earlier freeze.
            stale = self._settled.get(image.correlation_id) == view.epoch
            done = done and not stale and view.is_complete
        return done

    def end(self) -> None:
        """Record the present epoch of each image: a number that changes each time the image's
        credits are withheld. If a later call of ``withhold`` still finds this epoch, the agent has
        not applied the call's request yet. The image's state is then out of date."""
        for image in self._subscription._images:
            self._settled[image.correlation_id] = img_credits(image._handle).epoch

    def failure(self, timeout_s: float) -> WithholdTimeout:
        """Return the exception for a time-out. The exception's text lists each image for which
        credits have not been returned."""
        subscription = self._subscription
        found = tuple(
            _outstanding(image, view) for image in subscription._images
            if not (view := img_credits(image._handle)).is_complete
        ) + tuple(
            Outstanding(
                session_id=session, source=source, state="half_open", final=-1, delivered=0,
                returned=0,
            )
            for session, source in self._coming.values()
        )
        return WithholdTimeout(
            f"{subscription.channel} stream {subscription.stream_id} was not drained within "
            f"{timeout_s:g} s, and its publishers continue: "
            + ("; ".join(map(str, found)) or "the daemon has not applied it"),
            outstanding=found,
        )


def set_withheld(subscription: Subscription, *, withheld: bool) -> control.Done:
    """Request the daemon to withhold the credits, or to grant them again."""
    return subscription._request(
        control.WithholdCredits(registration_id=subscription.registration_id, withheld=withheld)
    )


def withhold(
    subscription: Subscription, timeout_s: float, handler: Handler | None,
    until: Callable[[Callable[[], bool], float | None], bool],
) -> None:
    """See :meth:`penstock.Subscription.withhold`."""
    freeze = Withholding(subscription, handler)
    freeze.request()
    try:
        done = until(freeze.is_done, timeout_s)
    except BaseException:
        set_withheld(subscription, withheld=False)
        raise
    if not done:
        error = freeze.failure(timeout_s)
        set_withheld(subscription, withheld=False)
        raise error
    freeze.end()


def _outstanding(image: Image, view: CreditView) -> Outstanding:
    return Outstanding(
        session_id=image.session_id, source=image.source_identity,
        state=CreditState(view.state).name.lower(), final=view.final, delivered=view.passed,
        returned=view.returned + view.leaked,
    )


def no_credits(subscription: Subscription) -> PenstockError:
    """Return the exception for a subscription that was added without credits."""
    return ChannelRefused(
        f"{subscription.channel} stream {subscription.stream_id}: this subscription grants no "
        "credits: add it with credits=N",
        code="not_supported",
    )
