# SPDX-License-Identifier: Apache-2.0
"""Divide the receiver window of a subscription among its publishers (``ps-fanin``).

Without ``ps-fanin``, each image of a subscription has the subscription's whole receiver window, and
the subscription polls its images in turn. With ``ps-fanin=equal``, the images of a subscription
share its receiver window in equal parts. With ``ps-fanin=priority``, each part is proportional to
the weight of a scheduler's band. The ``ps-priority`` of the image's publication determines the
band. The client divides the messages of each poll by the same weights (docs/decisions/0336). A
subscription that grants credits divides its credits instead of its window.
"""

from __future__ import annotations

from typing import Final

from penstock.daemon.conductor.actions.congestion import SetWindowShare
from penstock.daemon.conductor.state.machines import ImageState
from penstock.daemon.conductor.state.model import Image, SubscriberLink, Subscription
from penstock.daemon.conductor.state.state import State

_BANDS: Final = ((750, 8), (500, 4), (250, 2))          # least priority, weight
_LEAST_MTUS: Final = 2
_ALIGNMENT: Final = 32


def weight_of(link: SubscriberLink) -> int:
    """Return the weight of a link's publisher, 1 to 8; 0: the link's subscription states no
    ``ps-fanin``."""
    fanin = link.subscription.plan.fanin
    if not fanin:
        return 0
    source = link.source
    if fanin == "equal":
        return 1
    priority = source.sender_priority if isinstance(source, Image) else source.plan.priority or 0
    return next((weight for least, weight in _BANDS if priority >= least), 1)


def divide(state: State, subscription: Subscription) -> None:
    """Divide the window of a subscription again. Call this function when an image ends, and when an
    image joins or leaves the subscription."""
    if not subscription.plan.fanin:
        return
    for image in _images(subscription):
        bound(state, image)


def bound(state: State, image: Image) -> None:
    """Limit the window of an image. Several subscriptions may read the image, and each gives the
    image a share of its own window; the smallest share is the limit."""
    if image.state is not ImageState.ACTIVE:
        return
    shares = [
        share for link in image.subscribers.values()
        if link.subscription.plan.fanin and (share := _share(image, link)) > 0
    ]
    share = min(shares, default=0)
    if share != image.window_share:
        image.window_share = share
        state.emit(SetWindowShare(image_id=image.id, window=share))


def _images(subscription: Subscription) -> list[Image]:
    """Return the images that divide the subscription's window."""
    sources = (link.source for link in subscription.links.values())
    return [
        each for each in sources
        if isinstance(each, Image) and each.state is ImageState.ACTIVE
    ]


def _share(image: Image, link: SubscriberLink) -> int:
    """Return the share of one image in a subscription's window in bytes; 0: the image is alone."""
    subscription = link.subscription
    images = _images(subscription)
    if subscription.plan.credits or len(images) < 2 or image not in images:
        return 0
    weights = sum(weight_of(subscription.links[each.id]) for each in images)
    share = image.params.window_bytes * weight_of(link) // weights
    return max(share, _LEAST_MTUS * image.mtu) // _ALIGNMENT * _ALIGNMENT
