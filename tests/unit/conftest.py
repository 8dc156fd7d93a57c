# SPDX-License-Identifier: Apache-2.0
"""What the tests of the client have in common: a client with the daemon's part moved by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from local_port import CHANNEL, STREAM, LocalPort

from penstock.client import Client, Publication, Subscription


@pytest.fixture
def port() -> Iterator[LocalPort]:
    made = LocalPort()
    yield made
    made.dispose()


@pytest.fixture
def client(port: LocalPort) -> Iterator[Client]:
    with port.client() as made:
        yield made


@pytest.fixture
def stream(port: LocalPort, client: Client) -> tuple[Publication, Subscription]:
    publication = client.add_publication(CHANNEL, STREAM)
    port.open_up(publication.registration_id)
    return publication, client.add_subscription(CHANNEL, STREAM)
