# SPDX-License-Identifier: Apache-2.0
"""Tables of a notebook for requesters, services, groups, relays, and typed streams of a daemon."""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import attrs
import pytest
from support.hosts import PenstockHost

import penstock
from loopback.streams import TIMEOUT_S, connected
from penstock import Client, Message

STREAM = 6003
#: A name that a table must escape.
NAME = "<b>&"
ESCAPED = "&lt;b&gt;&amp;"
CHANNEL = f"aeron:ipc?alias={NAME}"
Value: Any = dataclasses.make_dataclass(NAME, [("item", str)])

Run = Callable[[Callable[[], Awaitable[None]]], None]


def rows(shown: str) -> list[list[str]]:
    """Return the cells of a table, and check that it escapes names."""
    assert NAME not in shown
    assert ESCAPED in shown
    return [re.findall(r"<td>(.*?)</td>", row) for row in shown.split("<tr>")[2:]]


def caption(shown: Any) -> str:
    found = re.search("<caption>(.*?)</caption>", shown._repr_html_())
    assert found is not None
    return html.unescape(found[1])


def cells(shown: Any) -> dict[str, str]:
    return {row[0]: row[1] for row in rows(shown._repr_html_())}


def upper(request: Message) -> bytes:
    return request.upper()


async def awaited_upper(request: Message) -> bytes:
    return request.upper()


@pytest.fixture(params=["asyncio", "trio"])
def run(request: pytest.FixtureRequest) -> Run:
    async def limited(test: Callable[[], Awaitable[None]]) -> None:
        with anyio.fail_after(4 * TIMEOUT_S):
            await test()

    backend: str = request.param
    return lambda test: anyio.run(limited, test, backend=backend)


def test_requests_are_shown_at_both_ends(client: Client) -> None:
    service = client.serve(CHANNEL, STREAM)(upper)
    with service, client.requester(CHANNEL, STREAM) as requester:
        assert requester.request(b"a", TIMEOUT_S) == b"A"
        assert cells(requester) | {"replies": "1"} == cells(requester)
        assert cells(service)["requests"] == "1"
        assert caption(requester) == f"Requester of stream {STREAM} on {CHANNEL}"
    assert caption(requester) == f"Requester of stream {STREAM} on {CHANNEL}, closed"
    assert caption(service) == f"Service of stream {STREAM} on {CHANNEL}, closed"


def test_awaited_requests_are_shown_at_both_ends(run: Run, host: PenstockHost) -> None:
    async def test() -> None:
        async with penstock.open_client(host.directory) as client:
            service = client.serve(CHANNEL, STREAM)(awaited_upper)
            async with service, await client.requester(CHANNEL, STREAM) as requester:
                assert await requester.request(b"a", TIMEOUT_S) == b"A"
                assert cells(requester)["replies"] == cells(service)["requests"] == "1"
            assert caption(requester).endswith(", closed")
            assert caption(service).endswith(", closed")

    run(test)


def test_a_group_shows_the_batches_of_each_member(client: Client) -> None:
    with (
        client.consumer_group(NAME, CHANNEL, STREAM) as group,
        client.consumer_group(NAME, CHANNEL, STREAM) as other,
        client.add_publication(CHANNEL, STREAM) as publication,
    ):
        publication.send_batch([b"<i>&"] * 30, TIMEOUT_S)
        first, second = group.recv_batch(10, TIMEOUT_S), other.recv_batch(20, TIMEOUT_S)
        assert [row[2:] for row in rows(group._repr_html_())] == [
            ["1", str(first.position), "this member"],
            ["1", f"{second.position - first.position:,}", ""],
        ]
        assert "b&#x27;&lt;i&gt;&amp;&#x27;" in first._repr_html_()
        assert first._repr_html_().count("<tr>") == second._repr_html_().count("<tr>") == 11
        assert "committed" not in caption(first)
        first.commit()
        second.commit()
        assert caption(first) == (
            f"Batch of 10 messages, session {publication.session_id}, positions 0 to "
            f"{first.position}, committed"
        )
        group.end()
    assert caption(group) == (
        f"Member of group {NAME!r} of stream {STREAM} on {CHANNEL}, closed"
    )


def test_typed_streams_show_their_schema(client: Client) -> None:
    with (
        client.consumer_group(NAME, CHANNEL, STREAM, schema=Value) as group,
        client.add_subscription(CHANNEL, STREAM, schema=Value) as subscription,
        client.add_publication(CHANNEL, STREAM, schema=Value) as publication,
    ):
        connected(publication.raw, subscription.raw)
        publication.send_batch([Value("<i>"), Value("second")], TIMEOUT_S)
        values, batch = subscription.recv_batch(10, TIMEOUT_S), group.recv_batch(10, TIMEOUT_S)
        for shown in (values, batch):
            first, second = rows(shown._repr_html_())
            assert first == ["0", html.escape(repr(Value("<i>")))]
            assert second[1] == html.escape(repr(Value("second")))
        assert "committed" not in caption(batch)
        batch.commit()
        assert caption(batch).endswith(", committed")
        assert cells(publication)["connected"] == "yes"
        assert len(rows(subscription._repr_html_())) == len(rows(group._repr_html_())) == 1
        group.end()
    for closed in (group, subscription, publication):
        assert caption(closed).endswith(f"on {CHANNEL}, values of {NAME}, closed")


def test_a_message_that_does_not_fit_the_schema_is_shown_as_a_dash(client: Client) -> None:
    with (
        client.add_subscription(CHANNEL, STREAM, schema=Value) as subscription,
        client.add_publication(CHANNEL, STREAM) as publication,
    ):
        connected(publication, subscription.raw)
        publication.send(b"\xc1", TIMEOUT_S)
        batch = subscription.recv_batch(10, TIMEOUT_S)
        assert cells(batch) == {"0": "–"}
        raw = batch.messages
        assert raw._repr_html_().endswith(
            "<td>0</td><td>b&#x27;\\xc1&#x27;</td></tr></tbody></table>"
        )
        publication.send(b"text", TIMEOUT_S)
        while not (polled := subscription.raw.poll_batch(10)):
            subscription.wait(TIMEOUT_S)
        assert "text" in polled._repr_html_()
        polled.release()
        assert caption(polled) == "Batch of 1 messages, released"


def test_awaited_typed_streams_and_groups_show_the_same(run: Run, host: PenstockHost) -> None:
    async def test() -> None:
        async with (
            penstock.open_client(host.directory) as client,
            await client.consumer_group(NAME, CHANNEL, STREAM) as plain,
            await client.consumer_group("typed", CHANNEL, STREAM, schema=Value) as typed,
            await client.add_subscription(CHANNEL, STREAM, schema=Value) as subscription,
            await client.add_publication(CHANNEL, STREAM, schema=Value) as publication,
        ):
            await publication.send(Value("<i>"), TIMEOUT_S)
            for group in (plain, typed):
                batch = await group.recv_batch(10, TIMEOUT_S)
                assert "&lt;i&gt;" in batch._repr_html_()
                await batch.commit()
                assert caption(batch).endswith(", committed")
                assert len(rows(group._repr_html_())) == 1
                await group.end()
            assert "closed" not in caption(publication) + caption(subscription)
        for closed in (plain, typed, publication, subscription):
            assert caption(closed).endswith(", closed")

    run(test)


def test_a_relay_and_a_counter_show_their_numbers(client: Client, host: PenstockHost) -> None:
    with penstock.relay(
        CHANNEL, STREAM, "aeron:ipc", STREAM + 1, directory=host.directory
    ) as relay:
        assert set(cells(relay)) == {field.name for field in attrs.fields(type(relay.statistics()))}
    assert caption(relay).endswith(f"to stream {STREAM + 1} on aeron:ipc, closed")
    with client.add_counter(NAME) as counter:
        counter.set(1234)
        assert rows(counter._repr_html_()) == [[str(counter.id), ESCAPED, "1,234"]]
    assert rows(counter._repr_html_()) == [[str(counter.id), ESCAPED, "–"]]
    assert caption(counter) == "Counter, closed"


def test_tables_outlive_their_daemon(new_host: Callable[..., PenstockHost]) -> None:
    host = new_host()
    with penstock.connect(host.directory) as client:
        group = client.consumer_group(NAME, CHANNEL, STREAM)
        requester = client.requester(CHANNEL, STREAM)
        assert len(rows(group._repr_html_())) == 1
        host.kill()
        assert caption(group).startswith("Member of group")
        assert cells(requester)["requests"] == "0"
