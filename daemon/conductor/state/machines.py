# SPDX-License-Identifier: Apache-2.0
"""Life cycles as tables. A state machine ignores each trigger that its present state does not list.
Ignored triggers are normal: if two events happen at the same time, the first may change the state
before the second is processed. For example, the sender reports the end of a stream while the last
client of the publication leaves."""

from __future__ import annotations

import enum
from typing import Final


class PublicationState(enum.Enum):
    ACTIVE = "active"
    DRAINING = "draining"
    LINGER = "linger"
    CLOSING = "closing"                 # the sender was requested to release it
    DONE = "done"


class PublicationTrigger(enum.Enum):
    LAST_CLIENT_LEFT = "last client left"
    REVOKED = "revoked"
    DRAINED = "drained"
    END_CONFIRMED = "end of stream confirmed"
    LINGER_ELAPSED = "linger elapsed"
    RELEASED = "released"


class ImageState(enum.Enum):
    ACTIVE = "active"
    DRAINING = "draining"
    LINGER = "linger"  # no longer shown to subscribers; the log stays for slow ones
    DONE = "done"


class ImageTrigger(enum.Enum):
    INACTIVE = "inactive"
    NO_SUBSCRIBER = "no subscriber"
    DRAINED = "drained"
    REVOKED = "revoked"
    LINGER_ELAPSED = "linger elapsed"
    NEVER_ESTABLISHED = "never established"


class EndpointState(enum.Enum):
    OPEN = "open"
    CLOSING = "closing"


_P = PublicationState
_PT = PublicationTrigger
PUBLICATION: Final[dict[tuple[PublicationState, PublicationTrigger], PublicationState]] = {
    (_P.ACTIVE, _PT.LAST_CLIENT_LEFT): _P.DRAINING,
    (_P.ACTIVE, _PT.REVOKED): _P.LINGER,
    (_P.DRAINING, _PT.DRAINED): _P.LINGER,
    (_P.DRAINING, _PT.END_CONFIRMED): _P.CLOSING,
    (_P.LINGER, _PT.END_CONFIRMED): _P.CLOSING,
    (_P.LINGER, _PT.LINGER_ELAPSED): _P.CLOSING,
    (_P.CLOSING, _PT.RELEASED): _P.DONE,
}

_I = ImageState
_IT = ImageTrigger
IMAGE: Final[dict[tuple[ImageState, ImageTrigger], ImageState]] = {
    (_I.ACTIVE, _IT.INACTIVE): _I.DRAINING,
    (_I.ACTIVE, _IT.NO_SUBSCRIBER): _I.DRAINING,
    (_I.ACTIVE, _IT.REVOKED): _I.LINGER,
    (_I.ACTIVE, _IT.NEVER_ESTABLISHED): _I.LINGER,
    (_I.DRAINING, _IT.DRAINED): _I.LINGER,
    (_I.DRAINING, _IT.REVOKED): _I.LINGER,
    (_I.LINGER, _IT.LINGER_ELAPSED): _I.DONE,
}
