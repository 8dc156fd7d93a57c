# SPDX-License-Identifier: Apache-2.0
"""Create the HTML tables with which a notebook shows the objects of a client.

The functions never raise, and never wait for the daemon: after the daemon's death, a table shows
the last known values.  A table names the schema of a typed object.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs

from penstock.client._members import look
from penstock.core.errors import PenstockError

if TYPE_CHECKING:
    from penstock.client._asking import RequesterStatistics
    from penstock.client._client import Client
    from penstock.client._consumer import ConsumerGroup, GroupBatch
    from penstock.client._counters import Counter
    from penstock.client._image import Image
    from penstock.client._message import MessageBatch
    from penstock.client._publication import Publication
    from penstock.client._relay import Relay
    from penstock.client._service import ServiceStatistics
    from penstock.client._subscription import Subscription
    from penstock.client._typed import TypedBatch

#: Rows of a batch that a table shows, and characters of a value.
_ROWS: Final = 10
_CHARACTERS: Final = 80


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
    except (PenstockError, OSError):
        return "–"


def _title(kind: str, stream_id: int, channel: str, *, schema: str, closed: bool) -> str:
    values = f", values of {schema}" if schema else ""
    return f"{kind} of stream {stream_id} on {channel}{values}{', closed' * closed}"


def client_html(client: Client) -> str:
    """Return a table of a client: the directory of the client's daemon, and the publications,
    subscriptions and counters that the client has added."""
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


def publication_html(publication: Publication, schema: str = "") -> str:
    """Return a table of a publication: its stream positions, and the time for which each cause,
    such as ``receiver_window``, blocked it."""
    rows: list[tuple[str, object]] = [
        ("session", str(publication.session_id)),
        ("connected", _known(lambda: publication.is_connected)),
        ("position", _known(lambda: publication.position)),
        ("limit", _known(lambda: publication.position_limit)),
    ]
    pressure = _known(publication.pressure)
    held = getattr(pressure, "blocked_ns", {})
    rows += [(f"held by {cause}", f"{ns / 1e9:.3f} s") for cause, ns in held.items() if ns]
    title = _title("Publication", publication.stream_id, publication.channel, schema=schema,
                   closed=publication.is_closed)
    return _table(title, ("", "state"), rows)


def subscription_html(subscription: Subscription, schema: str = "") -> str:
    """Return a table of the images that a subscription had at its latest poll or wait."""
    rows = [_image_row(image) for image in subscription._images]
    title = _title("Subscription", subscription.stream_id, subscription.channel, schema=schema,
                   closed=subscription.is_closed)
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


def exchange_html(
    kind: str, stream_id: int, channel: str, *, closed: bool,
    statistics: RequesterStatistics | ServiceStatistics,
) -> str:
    """Return a table of a requester or of a service: its numbers of requests and replies."""
    title = _title(kind, stream_id, channel, schema="", closed=closed)
    return _table(title, ("", "count"), list(attrs.asdict(statistics).items()))


def relay_html(relay: Relay) -> str:
    """Return a table of a relay: its numbers of messages, gaps and sessions."""
    title = (f"Relay {relay.name!r} from stream {relay._source_stream} on {relay._source} to "
             f"stream {relay._target_stream} on {relay._target}{', closed' * relay._closed}")
    return _table(title, ("", "count"), list(attrs.asdict(relay.statistics()).items()))


def counter_html(counter: Counter) -> str:
    """Return a table of a counter: its id, its label and its value."""
    title = f"Counter{', closed' * counter.is_closed}"
    return _table(title, ("id", "label", "value"), [
        (str(counter.id), counter.label, _known(counter.get)),
    ])


def group_html(group: ConsumerGroup, schema: str = "") -> str:
    """Return a table of the members of a group, with the number of bytes in each member's
    batches."""
    title = _title(f"Member of group {group.name!r}", group.stream_id, group.channel,
                   schema=schema, closed=group.is_closed)
    return _table(title, ("process", "client", "batches", "bytes", ""), _member_rows(group))


def _member_rows(group: ConsumerGroup) -> list[tuple[object, ...]]:
    shares = _known(
        lambda: look(group._client.directory, group.name, group.channel, group.stream_id)
    )
    if isinstance(shares, str):
        return []                       # the directory of the daemon is gone
    rows: list[tuple[object, ...]] = []
    for joined in shares.members:
        held = [claim for log in shares.logs.values() for claim in log.claims
                if claim.member == joined.member]
        mine = "this member" if joined.member == group._member else ""
        size = sum(claim.end - claim.start for claim in held)
        rows.append((str(joined.pid), joined.client, len(held), size, mine))
    return rows


def group_batch_html(batch: GroupBatch, values: TypedBatch[Any] | None = None) -> str:
    """Return a table of the first messages of a group's batch; with ``values``, a table of the
    first values."""
    title = (f"{_batch_title(len(batch), values)}, session {batch.session_id}, positions "
             f"{batch.start_position:,} to {batch.position:,}{', committed' * batch.is_committed}")
    return _batch_table(title, len(batch), (values or batch.payloads).__getitem__)


def message_batch_html(batch: MessageBatch) -> str:
    """Return a table of the first messages of a batch."""
    if not batch._live:
        return _batch_table(f"{_batch_title(len(batch))}, released", 0, batch.__getitem__)
    return _batch_table(_batch_title(len(batch)), len(batch), batch.__getitem__)


def typed_batch_html(batch: TypedBatch[Any]) -> str:
    """Return a table of the first values of a batch."""
    return _batch_table(_batch_title(len(batch), batch), len(batch), batch.__getitem__)


def _batch_title(count: int, values: TypedBatch[Any] | None = None) -> str:
    schema = "" if values is None else f", values of {values._codec.name}"
    return f"Batch of {count:,} messages{schema}"


def _batch_table(title: str, count: int, read: Callable[[int], object]) -> str:
    """Return a table with a row for each of the first messages: its number, and its beginning."""
    rows = [(index, _known(partial(_beginning, read, index))) for index in range(min(count, _ROWS))]
    return _table(title, ("", "value"), rows)


def _beginning(read: Callable[[int], object], index: int) -> str:
    value = read(index)
    text = repr(bytes(value[:_CHARACTERS]) if isinstance(value, memoryview) else value)
    return text if len(text) <= _CHARACTERS else f"{text[:_CHARACTERS]}…"
