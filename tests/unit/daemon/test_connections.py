# SPDX-License-Identifier: Apache-2.0
"""Places of TCP connections, from what ZeroMQ tells of them."""

from __future__ import annotations

import socket

from hypothesis import given
from hypothesis import strategies as st

from penstock.daemon.connections import Connections, shut


def test_a_key_that_was_let_in_has_a_place_before_its_first_message() -> None:
    connections = Connections()
    for fd in (5, 6):
        connections.accepted(fd)
    assert (connections.placed, connections.strangers, connections.oldest) == (0, 2, 5)
    connections.admitted()
    assert (connections.placed, connections.strangers) == (1, 1)
    connections.heard(6)
    connections.gone(5)         # a stranger, who had no place
    assert (connections.placed, connections.strangers) == (1, 0)
    connections.gone(6)
    assert connections.placed == 0


@given(st.lists(
    st.tuples(st.sampled_from(["come", "let in", "speak", "go"]), st.integers(0, 2)),
    min_size=20, max_size=100,
))
def test_no_place_is_given_twice_and_none_stays_taken(events: list[tuple[str, int]]) -> None:
    connections = Connections()
    here: dict[int, str] = {}
    for what, fd in events:
        if what == "come" and fd not in here:
            here[fd] = "stranger"
            connections.accepted(fd)
        elif what == "let in" and here.get(fd) == "stranger":
            here[fd] = "let in"
            connections.admitted()
        elif what == "speak" and here.get(fd) in ("let in", "heard"):
            here[fd] = "heard"
            connections.heard(fd)
        elif what == "go" and fd in here:
            del here[fd]
            connections.gone(fd)
        placed = sum(state != "stranger" for state in here.values())
        assert placed <= connections.placed <= len(here)
    for fd in [fd for fd, state in here.items() if state == "stranger"]:
        del here[fd]
        connections.gone(fd)
    assert connections.placed == len(here)
    assert connections.strangers == 0


def test_only_a_connection_to_the_port_is_ended() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            accepted, _ = server.accept()
            with accepted:
                assert not shut(accepted.fileno(), port + 1)
                assert not shut(client.fileno(), port)      # from the port's point of view
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
                    assert not shut(other.fileno(), port)
                client.sendall(b"still there")
                assert accepted.recv(64) == b"still there"
                assert shut(accepted.fileno(), port)
                assert client.recv(64) == b""
    assert not shut(accepted.fileno(), port)                # closed: no descriptor any more
