# SPDX-License-Identifier: Apache-2.0
"""Requests and replies between real daemons: UDP, multicast and IPC; plain and awaited."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import anyio
import pytest
from support.hosts import PenstockHost

import penstock
from loopback.streams import TIMEOUT_S, eventually
from penstock import Client, Message, RemoteError, Requester
from penstock.client._asking import correlation

Port = Callable[[], int]
NewHost = Callable[..., PenstockHost]
STREAM = 1001


@pytest.fixture(params=["ipc", "udp", "multicast"])
def ends(
    request: pytest.FixtureRequest, client: Client, remote: Client, port: Port
) -> tuple[str, Client, Client]:
    """Channel, client of the server, client of the requester."""
    if request.param == "ipc":
        return "aeron:ipc", client, client
    if request.param == "udp":
        return f"aeron:udp?endpoint=127.0.0.1:{port()}", remote, client
    return f"aeron:udp?endpoint=224.20.9.1:{port()}|interface=127.0.0.1", remote, client


def upper(request: Message) -> bytes:
    if request.startswith(b"raise"):
        raise ValueError(request.decode())
    return request.upper()


@contextmanager
def serving(
    client: Client, channel: str, handler: Callable[[Message], bytes | None] = upper,
    concurrency: int = 1, reply_timeout_s: float = TIMEOUT_S,
) -> Iterator[penstock.Service]:
    with client.serve(
        channel, STREAM, concurrency=concurrency, reply_timeout_s=reply_timeout_s
    )(handler) as service:
        yield service


def test_a_request_is_answered(ends: tuple[str, Client, Client]) -> None:
    channel, far, near = ends
    with serving(far, channel) as service, near.requester(channel, STREAM) as requester:
        assert requester.request(b"hello", timeout_s=TIMEOUT_S) == b"HELLO"
        assert requester.request([b"in ", b"pieces"], timeout_s=TIMEOUT_S) == b"IN PIECES"
        large = b"x" * 20_000                   # several fragments each way
        assert requester.request(large, timeout_s=TIMEOUT_S) == large.upper()
        assert service.statistics().requests == service.statistics().replies == 3
        assert requester.statistics().replies == 3


def test_an_error_of_the_handler_arrives_with_type_and_text(
    ends: tuple[str, Client, Client], caplog: pytest.LogCaptureFixture
) -> None:
    channel, far, near = ends
    with serving(far, channel) as service, near.requester(channel, STREAM) as requester:
        with pytest.raises(RemoteError, match="the server raised ValueError: raise this") as error:
            requester.request(b"raise this", timeout_s=TIMEOUT_S)
        assert (error.value.type, error.value.text) == ("ValueError", "raise this")
        assert requester.request(b"more", timeout_s=TIMEOUT_S) == b"MORE"
        assert (service.statistics().errors, requester.statistics().errors) == (1, 1)
    assert "the handler of" in caplog.text


def test_answers_that_cannot_be_sent_are_errors(client: Client) -> None:
    answers: dict[bytes, object] = {b"text": "text", b"number": 5, b"long": bytes(20_000_000)}

    def handler(request: Message) -> bytes | None:
        return answers.get(request)  # type: ignore[return-value]

    with (
        serving(client, "aeron:ipc", handler),
        client.requester("aeron:ipc", STREAM) as requester,
    ):
        assert requester.request(b"nothing", timeout_s=TIMEOUT_S) == b""
        for request, kind in ((b"text", "TypeError"), (b"number", "TypeError"),
                              (b"long", "MessageTooLong")):
            with pytest.raises(RemoteError) as error:
                requester.request(request, timeout_s=TIMEOUT_S)
            assert error.value.type == kind


def test_threads_share_a_requester_and_replies_may_overtake(
    ends: tuple[str, Client, Client],
) -> None:
    """The first request is held until the others were answered."""
    channel, far, near = ends
    others = threading.Semaphore(0)

    def handler(request: Message) -> bytes:
        if request == b"first":
            for _ in range(30):
                assert others.acquire(timeout=TIMEOUT_S)
        else:
            others.release()
        return b"re " + request

    with (
        serving(far, channel, handler, concurrency=3),
        near.requester(channel, STREAM) as requester,
        ThreadPoolExecutor(5) as pool,
    ):
        asked = [b"first", *(b"%d" % number for number in range(30))]
        got = list(pool.map(lambda data: requester.request(data, TIMEOUT_S), asked))
        assert got == [b"re " + data for data in asked]
        assert requester.statistics().late == requester.statistics().strange == 0


def test_a_late_reply_is_dropped_and_counted(ends: tuple[str, Client, Client]) -> None:
    channel, far, near = ends
    go = threading.Event()

    def handler(request: Message) -> bytes:
        if request == b"slow":
            assert go.wait(TIMEOUT_S)
        return request

    with serving(far, channel, handler) as service, near.requester(channel, STREAM) as requester:
        assert requester.request(b"quick", timeout_s=TIMEOUT_S) == b"quick"
        with pytest.raises(penstock.TimeoutExpired, match="1 server is connected"):
            requester.request(b"slow", timeout_s=0.05)
        go.set()
        assert requester.request(b"next", timeout_s=TIMEOUT_S) == b"next"
        assert requester.statistics().late == 1
        assert service.statistics().replies == 3


def test_without_a_server_a_request_times_out(client: Client, port: Port) -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}"
    with client.requester(channel, STREAM) as requester:
        assert not requester.wait_connected(0.01)
        with pytest.raises(penstock.TimeoutExpired, match="accepted no message"):
            requester.request(b"hello", timeout_s=0.05)
        with pytest.raises(penstock.TimeoutExpired):
            requester.request_many(b"hello", timeout_s=0.05)


def test_many_servers_answer_a_multicast_request(
    client: Client, remote: Client, new_host: NewHost, port: Port
) -> None:
    channel = f"aeron:udp?endpoint=224.20.9.3:{port()}|interface=127.0.0.1|fc=min"
    with ExitStack() as stack:
        third = stack.enter_context(penstock.connect(new_host().directory))
        for far, name in ((remote, b"one"), (third, b"two"), (client, b"own")):
            stack.enter_context(serving(far, channel, lambda _request, name=name: name))
        requester = stack.enter_context(client.requester(channel, STREAM))
        eventually(
            lambda: len(requester.request_many(b"?", TIMEOUT_S, count=1)) == 1
            and len(requester.request_many(b"?", 0.5, count=3)) == 3,
            "three servers answer",
        )
        replies = requester.request_many(b"?", timeout_s=TIMEOUT_S, count=3)
        assert sorted(map(bytes, replies)) == [b"one", b"own", b"two"]  # type: ignore[arg-type]
        late = requester.statistics().late
        assert requester.request(b"?", timeout_s=TIMEOUT_S) in (b"one", b"two", b"own")
        eventually(
            lambda: bool(requester.request_many(b"?", 0.2)) and (
                requester.statistics().late >= late + 2
            ),
            "the replies of the other two are late",
        )


def test_requesters_of_one_host_do_not_see_each_others_replies(
    ends: tuple[str, Client, Client],
) -> None:
    channel, far, near = ends
    with ExitStack() as stack:
        stack.enter_context(serving(far, channel))
        many = [stack.enter_context(near.requester(channel, STREAM)) for _ in range(5)]
        for round_ in range(3):
            for number, requester in enumerate(many):
                asked = b"from %d, %d" % (number, round_)
                assert requester.request(asked, TIMEOUT_S) == asked.upper()
        assert {requester.statistics().strange for requester in many} == {0}


def test_a_requester_that_leaves_is_forgotten(ends: tuple[str, Client, Client]) -> None:
    channel, far, near = ends
    with serving(far, channel):
        before = len(far.registrations)
        with near.requester(channel, STREAM) as requester:
            requester.request(b"hello", timeout_s=TIMEOUT_S)
        eventually(lambda: len(far.registrations) == before, "the stream of replies is closed")


def test_other_messages_are_counted_and_ignored(client: Client) -> None:
    with (
        serving(client, "aeron:ipc") as service,
        client.add_exclusive_publication("aeron:ipc", STREAM) as plain,
        client.requester("aeron:ipc", STREAM) as requester,
    ):
        session = plain.session_id
        for value in (0, 1, correlation(session, 0), correlation(session + 1, 1),
                      correlation(session, 1, failed=True)):
            plain.send(b"no request", TIMEOUT_S, reserved_value=value)
        assert requester.request(b"one", timeout_s=TIMEOUT_S) == b"ONE"
        eventually(lambda: service.statistics().strange == 5, "all are counted")
        assert service.statistics().requests == 1


def test_strange_messages_on_the_stream_of_replies_are_dropped(client: Client) -> None:
    with (
        serving(client, "aeron:ipc"),
        client.requester("aeron:ipc", STREAM) as requester,
        client.add_publication(
            "aeron:ipc", requester._asking.publication.session_id
        ) as stranger,
    ):
        stranger.send(b"?", TIMEOUT_S, reserved_value=12345)
        assert requester.request(b"one", timeout_s=TIMEOUT_S) == b"ONE"
        eventually(
            lambda: requester.request(b"more", TIMEOUT_S) == b"MORE"
            and requester.statistics().strange == 1,
            "the strange message is counted",
        )


def test_a_requester_that_takes_no_replies_holds_the_server_once(client: Client) -> None:
    """The first reply without room costs ``reply_timeout_s``; later ones are dropped at once."""
    with (
        serving(client, "aeron:ipc", lambda request: bytes(1_000_000), reply_timeout_s=0.05)
        as service,
        client.requester("aeron:ipc", STREAM) as good,
        client.requester("aeron:ipc", STREAM) as bad,
    ):
        asking = bad._asking
        while service.statistics().dropped < 3:     # asks, and never looks for a reply
            call = asking.call(1)
            sending = asking.sending(call, b"?")
            assert client._parking().until(sending.attempt, TIMEOUT_S)
            assert len(good.request(b"?", timeout_s=TIMEOUT_S)) == 1_000_000


def test_run_serves_until_close(client: Client) -> None:
    service = client.serve("aeron:ipc", STREAM, concurrency=2)(upper)
    assert service(Message(b"as a function")) == b"AS A FUNCTION"
    thread = threading.Thread(target=service.run)
    thread.start()
    with client.requester("aeron:ipc", STREAM) as requester:
        assert requester.request(b"hello", timeout_s=TIMEOUT_S) == b"HELLO"
    service.close()
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()
    assert service.is_closed
    with pytest.raises(penstock.ClosedError, match="runs once"):
        service.run()


def test_a_closed_client_ends_its_services(host: PenstockHost) -> None:
    with penstock.connect(host.directory) as mine:
        service = mine.serve("aeron:ipc", STREAM)(upper)
        thread = threading.Thread(target=service.run)
        thread.start()
        with mine.requester("aeron:ipc", STREAM) as requester:
            assert requester.request(b"hello", timeout_s=TIMEOUT_S) == b"HELLO"
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()


def test_a_closed_requester_says_so(client: Client) -> None:
    requester = client.requester("aeron:ipc", STREAM)
    requester.close()
    requester.close()
    assert requester.is_closed
    with pytest.raises(penstock.ClosedError, match="requester is closed"):
        requester.request(b"hello", timeout_s=1.0)


@pytest.mark.parametrize("end", ["server", "requester"])
@pytest.mark.parametrize("medium", ["udp", "ipc"])
def test_requests_continue_with_a_new_daemon(
    new_host: NewHost, host: PenstockHost, port: Port, end: str, medium: str
) -> None:
    """The daemon is killed; the next one adopts the streams, or finds nothing left to adopt."""
    mortal = new_host()
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}" if medium == "udp" else "aeron:ipc"
    other = host if medium == "udp" else mortal
    servers, requesters = (mortal, other) if end == "server" else (other, mortal)
    with (
        penstock.connect(servers.directory) as far,
        penstock.connect(requesters.directory) as near,
        serving(far, channel),
        near.requester(channel, STREAM) as requester,
    ):
        assert requester.request(b"before", timeout_s=TIMEOUT_S) == b"BEFORE"
        for _ in range(2):
            mortal.kill()
            mortal.start()
            _ask_until_answered(requester)


def _ask_until_answered(requester: Requester) -> None:
    """A request may be lost with the daemon: the requester does not repeat it by itself."""

    def answered() -> bool:
        try:
            return requester.request(b"after", timeout_s=1.0) == b"AFTER"
        except penstock.TimeoutExpired:
            return False

    eventually(answered, "requests are answered again")


# ---- awaited -------------------------------------------------------------------------------------

Run = Callable[[Callable[[], Awaitable[None]]], None]


@pytest.fixture(params=["asyncio", "trio"])
def run(request: pytest.FixtureRequest) -> Run:
    async def limited(test: Callable[[], Awaitable[None]]) -> None:
        with anyio.fail_after(2 * TIMEOUT_S):
            await test()

    backend: str = request.param
    return lambda test: anyio.run(limited, test, backend=backend)


@pytest.mark.parametrize("medium", ["udp", "ipc"])
def test_tasks_ask_at_once_and_replies_overtake(
    run: Run, host: PenstockHost, peer: PenstockHost, port: Port, medium: str
) -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}" if medium == "udp" else "aeron:ipc"

    async def test() -> None:
        async with (
            penstock.open_client(host.directory) as near,
            penstock.open_client((peer if medium == "udp" else host).directory) as far,
        ):
            others = 0
            enough = anyio.Event()

            @far.serve(channel, STREAM, concurrency=3, reply_timeout_s=TIMEOUT_S)
            async def answer(request: Message) -> bytes:
                nonlocal others
                if request == b"0":
                    await enough.wait()
                elif request == b"7":
                    raise KeyError("seven")
                others += 1
                if others == 20:
                    enough.set()
                return b"re " + request

            got: dict[int, bytes] = {}
            async with answer, await near.requester(channel, STREAM) as requester:

                async def ask(number: int) -> None:
                    try:
                        got[number] = await requester.request(b"%d" % number, TIMEOUT_S)
                    except RemoteError as error:
                        got[number] = error.type.encode()

                async with anyio.create_task_group() as group:
                    for number in range(30):
                        group.start_soon(ask, number)
                assert requester.statistics().late == 0
                assert len(await requester.request_many(b"1", TIMEOUT_S, count=1)) == 1
            assert answer.is_closed
            assert got == {n: b"KeyError" if n == 7 else b"re %d" % n for n in range(30)}

    run(test)


def test_a_cancelled_request_is_late(run: Run, host: PenstockHost) -> None:
    async def test() -> None:
        async with penstock.open_client(host.directory) as client:
            started, go = anyio.Event(), anyio.Event()

            @client.serve("aeron:ipc", STREAM)
            async def answer(request: Message) -> bytes:
                started.set()
                await go.wait()
                return request

            async with answer, await client.requester("aeron:ipc", STREAM) as requester:
                async with anyio.create_task_group() as group:
                    group.start_soon(requester.request, b"slow")
                    await started.wait()
                    group.cancel_scope.cancel()
                go.set()
                assert await requester.request(b"next", TIMEOUT_S) == b"next"
                assert requester.statistics().late == 1
                with pytest.raises(penstock.TimeoutExpired):
                    await (await client.requester("aeron:ipc", 5)).request(b"nobody", 0.05)

    run(test)


def test_an_awaited_service_runs_until_it_is_cancelled_or_closed(
    run: Run, host: PenstockHost
) -> None:
    async def test() -> None:
        async with penstock.open_client(host.directory) as client:
            for closed in (False, True):

                @client.serve("aeron:ipc", STREAM)
                async def answer(request: Message) -> bytes:
                    return request

                before = len(client.registrations)
                async with anyio.create_task_group() as group:
                    group.start_soon(answer.run)
                    async with await client.requester("aeron:ipc", STREAM) as requester:
                        assert await requester.request(b"one", TIMEOUT_S) == b"one"
                    if closed:
                        await answer.close()
                    else:
                        group.cancel_scope.cancel()
                assert len(client.registrations) == before

    run(test)
