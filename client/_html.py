# SPDX-License-Identifier: Apache-2.0
"""Create the HTML tables with which a notebook shows clients, publications and subscriptions.

The functions never raise: after the daemon's death, a table shows the last known values.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.core.errors import PenstockError

if TYPE_CHECKING:
    from penstock.client._client import Client
    from penstock.client._image import Image
    from penstock.client._publication import Publication
    from penstock.client._subscription import Subscription


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return html.escape(str(value))


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    cells = "".join(
        "<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row) + "</tr>" for row in rows
    )
    names = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    return (
        f"<table><caption>{html.escape(title)}</caption>"
        f"<thead><tr>{names}</tr></thead><tbody>{cells}</tbody></table>"
    )


def _known(read: Callable[[], Any]) -> Any:
    """Return a value, or a dash if the object no longer has it."""
    try:
        return read()
    except PenstockError:
        return "–"


def client_html(client: Client) -> str:
    """Return a table of a client: the directory of its daemon, and the publications, subscriptions
    and counters that it has added."""
    state = "closed" if client.is_closed else "" if client.is_daemon_alive else "daemon away"
    title = f"Client {client.client_id} of {client.directory} {state}".rstrip()
    rows = [
        (
            type(entry.request).__name__.removeprefix("Add").lower(),
            getattr(entry.request, "channel", getattr(entry.request, "label", "")),
            str(getattr(entry.request, "stream_id", "")), str(entry.registration_id),
        )
        for entry in client.registrations
    ]
    return _table(title, ("kind", "channel", "stream", "registration"), rows)


def publication_html(publication: Publication) -> str:
    """Return a table of a publication: its positions, and the time for which each cause blocked
    it."""
    rows: list[tuple[str, object]] = [
        ("session", str(publication.session_id)),
        ("connected", _known(lambda: publication.is_connected)),
        ("position", _known(lambda: publication.position)),
        ("limit", _known(lambda: publication.position_limit)),
    ]
    pressure = _known(publication.pressure)
    held = getattr(pressure, "blocked_ns", {})
    rows += [(f"held by {cause}", f"{ns / 1e9:.3f} s") for cause, ns in held.items() if ns]
    closed = ", closed" if publication.is_closed else ""
    title = f"Publication of stream {publication.stream_id} on {publication.channel}{closed}"
    return _table(title, ("", "state"), rows)


def subscription_html(subscription: Subscription) -> str:
    """Return a table of the images that a subscription had at its latest poll or wait."""
    rows = [_image_row(image) for image in subscription._images]
    closed = ", closed" if subscription.is_closed else ""
    title = f"Subscription of stream {subscription.stream_id} on {subscription.channel}{closed}"
    return _table(title, ("session", "source", "position", "released", "ended"), rows)


def image_html(image: Image) -> str:
    """One image."""
    title = f"Image of stream {image.stream_id}"
    return _table(
        title, ("session", "source", "position", "released", "ended"), [_image_row(image)]
    )


def _image_row(image: Image) -> tuple[object, ...]:
    return (
        str(image.session_id), image.source_identity, _known(lambda: image.position),
        _known(lambda: image.released_position), _known(lambda: image.is_end_of_stream),
    )
