# SPDX-License-Identifier: Apache-2.0
"""Choose between the fast classes (methods in C) and the plain classes (methods in Python) of a
client. In the fast classes, the methods that run for each message (``offer``, ``poll`` and others)
are written in C. The methods of the plain classes are written in Python, and call the core through
cffi.

Fast and plain classes behave alike. With ``PENSTOCK_FAST=0`` in the environment, clients that
connect afterwards use the plain classes. If the extension module of the fast classes is missing or
belongs to another build of the core, all clients use the plain classes.
"""

from __future__ import annotations

import os

import attrs

from penstock.client._image import Image
from penstock.client._parking import Parking
from penstock.client._publication import Publication
from penstock.client._subscription import Subscription
from penstock.core.client import CORE, Library


@attrs.frozen(kw_only=True)
class ClientClasses:
    publication: type[Publication]
    subscription: type[Subscription]
    image: type[Image]
    parking: type[Parking]


def client_classes(library: Library) -> ClientClasses:
    """Return the fast classes if this core has them and the environment allows them; otherwise
    return the plain classes."""
    if library is CORE and os.environ.get("PENSTOCK_FAST", "1") != "0":
        try:
            from penstock.client import _fast_path
        except ImportError:
            pass
        else:
            return ClientClasses(
                publication=_fast_path.FastPublication,
                subscription=_fast_path.FastSubscription,
                image=_fast_path.FastImage,
                parking=_fast_path.FastParking,
            )
    return ClientClasses(
        publication=Publication, subscription=Subscription, image=Image, parking=Parking
    )
