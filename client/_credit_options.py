# SPDX-License-Identifier: Apache-2.0
"""``credits=`` of a subscription."""

from __future__ import annotations

from typing import Literal, TypeAlias

import attrs

from penstock.client._credits import CreditLeak
from penstock.config import uri
from penstock.core.errors import InvalidArgument


@attrs.frozen
class Credits:
    """Credits of a subscription; ``credits=5`` is short for ``credits=Credits(5)``.

    Each value except ``handles`` and ``leak`` can also be stated as a parameter of the channel. If
    a parameter of the channel and this object both state a value, the two values must be equal.
    """

    number: int | Literal["auto"]
    """Messages that may be outstanding (``ps-credits``)."""
    burst: int | None = attrs.field(default=None, kw_only=True)
    """The same while nothing is outstanding (``ps-credit-burst``)."""
    handles: bool = attrs.field(default=False, kw_only=True)
    """Whether the application releases each credit; else a release of the message does."""
    leak: CreditLeak = attrs.field(default="keep", kw_only=True)
    """What becomes of the credit of a handle that is dropped without release: ``keep`` it until the
    subscription closes, or ``reclaim`` it.  Both are reported."""
    policy: str | None = attrs.field(default=None, kw_only=True)
    """Division among publishers (``ps-credit-policy``)."""
    pool: Literal["stream", "client"] | None = attrs.field(default=None, kw_only=True)
    """Publishers that share the credits: those of this subscription, or of all subscriptions of the
    client (``ps-credit-pool``)."""
    max_message: int | None = attrs.field(default=None, kw_only=True)
    """Length of a message that a credit has room for, in bytes (``ps-max-message``)."""
    required: bool = attrs.field(default=False, kw_only=True)
    """Whether to refuse publishers that do not support credits (``ps-credits-required``)."""

    def __attrs_post_init__(self) -> None:
        if self.leak not in ("keep", "reclaim"):
            raise InvalidArgument(f"leak is 'keep' or 'reclaim', not {self.leak!r}")

    def in_channel(self, channel: str) -> str:
        """Return the channel URI with the values of this object added as parameters.

        :raises InvalidArgument: a value is out of range, or the channel URI states another value
            for the same parameter.
        """
        try:
            stated = uri.parse(channel).given()
        except uri.ChannelError:
            return channel                      # the daemon refuses it, with the reason
        for key, text in self._parameters():
            try:
                uri.PARAMETERS[key].read(key, text)
            except uri.ChannelError as error:
                raise InvalidArgument(str(error)) from None
            if stated.get(key, text) != text:
                raise InvalidArgument(
                    f"{key}={text} contradicts {key}={stated[key]} of {channel}: state one of them"
                )
            if key not in stated:
                channel += f"{'|' if '?' in channel else '?'}{key}={text}"
        return channel

    def _parameters(self) -> list[tuple[str, str]]:
        values = (
            ("ps-credits", self.number), ("ps-credit-burst", self.burst),
            ("ps-max-message", self.max_message), ("ps-credit-policy", self.policy),
            ("ps-credit-pool", self.pool),
            ("ps-credits-required", "true" if self.required else None),
        )
        return [(key, str(value)) for key, value in values if value is not None]


#: ``credits=``: a number, ``auto``, or with options.
CreditsGiven: TypeAlias = int | Literal["auto"] | Credits | None


def pool_of_client(value: CreditsGiven) -> Credits | None:
    """Convert the argument ``credits=`` of ``connect`` to the options of the client's credit pool.

    :raises InvalidArgument: the value is neither a number, ``auto`` nor Credits, or it has
        ``pool="stream"``, which ``connect`` does not accept.
    """
    given = credits_given(value)
    if given is None:
        return None
    if given.pool == "stream":
        raise InvalidArgument(
            "connect(credits=...) cannot have pool='stream': all streams of the client share its "
            "credits"
        )
    return attrs.evolve(given, pool="client")


def credits_of(value: CreditsGiven, of_client: Credits | None, channel: str) -> Credits | None:
    """Return the credits that apply to a subscription: the value of its argument ``credits=``. If
    this value is None and the channel URI states no credits, return the value of
    ``connect(credits=...)``.

    :raises InvalidArgument: as for :func:`credits_given`.
    """
    given = credits_given(value)
    if given is not None or of_client is None:
        return given
    try:
        return None if "ps-credits" in uri.parse(channel).given() else of_client
    except uri.ChannelError:
        return None                             # the daemon refuses it, with the reason


def credits_given(value: CreditsGiven) -> Credits | None:
    """Convert the value of the argument ``credits=`` to a :class:`Credits` object.

    :raises InvalidArgument: the value is neither a number, ``auto`` nor Credits.
    """
    if value is None or isinstance(value, Credits):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise InvalidArgument(f"credits is a number, 'auto' or Credits(...), not {value!r}")
    return Credits(value)
