# SPDX-License-Identifier: Apache-2.0
"""Actions that request addresses from the operating system."""

from __future__ import annotations

import attrs

from penstock.daemon.conductor.actions.base import Action


@attrs.frozen(kw_only=True)
class ResolveName(Action):
    """Resolve a host name. Result: one address of the host, of the address family ``family`` and
    with the port ``port``."""

    host: str
    port: int
    family: int


@attrs.frozen(kw_only=True)
class ListInterfaces(Action):
    """Result: tuple of :class:`penstock.daemon.addressing.Interface`."""
