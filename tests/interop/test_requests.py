# SPDX-License-Identifier: Apache-2.0
"""Requests and replies between our clients and Aeron's, which follow the same rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.hosts import PenstockHost, penstock_host

import penstock
from interop import aeron
from penstock import Message

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("aeron_built")]

STREAM = 1001
TIMEOUT_S = 60.0
COUNT = 50


@pytest.fixture
def hosts(directories: Callable[[str], Path]) -> Iterator[tuple[PenstockHost, aeron.AeronHost]]:
    with (
        aeron.aeron_host(directories("aeron")) as theirs,
        penstock_host(directories("penstock")) as ours,
    ):
        yield ours, theirs


@pytest.fixture(params=["unicast", "multicast"])
def channel(request: pytest.FixtureRequest, ports: Callable[[], int]) -> str:
    if request.param == "unicast":
        return f"aeron:udp?endpoint=127.0.0.1:{ports()}"
    return f"aeron:udp?endpoint=224.20.9.5:{ports()}|interface=127.0.0.1"


def test_an_aeron_server_answers_our_requests(
    hosts: tuple[PenstockHost, aeron.AeronHost], channel: str
) -> None:
    ours, theirs = hosts
    with (
        theirs.answerer(f"--channel={channel}", f"--count={COUNT + 1}") as server,
        penstock.connect(ours.directory) as client,
    ):
        server.wait("added")
        with client.requester(channel, STREAM) as requester:
            for number in range(COUNT):
                reply = requester.request(b"request %d" % number, timeout_s=TIMEOUT_S)
                assert reply == b"REQUEST %d" % number
            with pytest.raises(penstock.RemoteError) as error:
                requester.request(b"raise", timeout_s=TIMEOUT_S)
            assert (error.value.type, error.value.text) == ("IllegalStateException", "no")
            server.wait("done")
            assert server.finish() == 0


def test_our_server_answers_an_aeron_requester(
    hosts: tuple[PenstockHost, aeron.AeronHost], channel: str
) -> None:
    ours, theirs = hosts
    with penstock.connect(ours.directory) as client:

        @client.serve(channel, STREAM)
        def upper(request: Message) -> bytes:
            if request == b"raise":
                raise LookupError("nothing there")
            return request.upper()

        with upper, theirs.asker(
            f"--channel={channel}", "--reply-host=127.0.0.1", f"--count={COUNT}"
        ) as asker:
            for number in range(1, COUNT + 1):
                assert asker.wait("reply")["text"] == f"REQUEST {number}"
            assert asker.wait("error")["text"] == "LookupError|nothing there"
            asker.wait("done")
            assert asker.finish() == 0
