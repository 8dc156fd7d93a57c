# SPDX-License-Identifier: Apache-2.0
"""Tables of the main objects in a notebook, and the cost of importing a client."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys

from local_port import CHANNEL, STREAM, LocalPort
from support.speed import LIBRARY_S, library_cpu_s

from penstock.client import Client, Publication, Subscription

#: Modules that a client needs only for some of its methods.
HEAVY = {"numpy", "pyarrow", "hypercorn", "trio", "asyncio", "pandas", "polars", "starlette",
         "prometheus_client", "penstock.core.driver_types"}
_CONNECT = """
import sys, time
began = time.process_time()
import penstock
imported = time.process_time() - began
try:
    penstock.connect("/nonexistent/penstock", timeout_s=0.01)
except penstock.DaemonNotRunning:
    pass
print(imported, time.process_time() - began, *sorted(sys.modules))
"""


def said(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout


def cells(shown: str) -> list[str]:
    return re.findall(r"<td>(.*?)</td>", shown)


def test_a_client_shows_its_registrations(
    client: Client, stream: tuple[Publication, Subscription]
) -> None:
    shown = client._repr_html_()
    assert str(client.directory) in shown
    assert cells(shown)[:3] == ["publication", CHANNEL, str(STREAM)]
    assert "subscription" in cells(shown)
    client.close()
    assert "closed" in client._repr_html_()


def test_a_publication_shows_its_state(stream: tuple[Publication, Subscription]) -> None:
    publication, _ = stream
    publication.offer(b"m" * 5000)
    shown = dict(zip(cells(publication._repr_html_())[::2],
                     cells(publication._repr_html_())[1::2], strict=True))
    assert shown["connected"] == "yes"
    assert shown["position"] == f"{publication.position:,}"
    publication.close()
    assert "closed" in publication._repr_html_()
    assert "–" in publication._repr_html_()


def test_a_subscription_shows_its_images(stream: tuple[Publication, Subscription]) -> None:
    publication, subscription = stream
    publication.offer(b"message")
    assert bytes(subscription.recv(5)) == b"message"
    (image,) = subscription.images
    for shown in (subscription._repr_html_(), image._repr_html_()):
        assert cells(shown)[0] == str(publication.session_id)
        assert f"{image.position:,}" in cells(shown)
    subscription.close()
    assert "closed" in subscription._repr_html_()


def test_names_are_escaped(port: LocalPort, client: Client) -> None:
    client.add_counter("<b>&")
    assert "&lt;b&gt;&amp;" in client._repr_html_()


def test_a_client_is_imported_in_little_time() -> None:
    """CPU time in an interpreter of its own: `import penstock`, and up to the daemon's answer.
    Other programs use the same caches, and the other half of a core, so that the same work takes
    two or three times as long beside them: seconds are those of a machine on which modules of
    Python's library take ``LIBRARY_S``."""
    runs = []
    for _ in range(20):
        library = library_cpu_s()
        imported, connected, *modules = said(_CONNECT).split()
        runs.append((float(imported) / library, float(connected) / library))
        assert HEAVY & set(modules) == set()
    assert statistics.median(run[0] for run in runs) * LIBRARY_S < 0.15
    assert statistics.median(run[1] for run in runs) * LIBRARY_S < 0.25        # 0.150 s, measured
