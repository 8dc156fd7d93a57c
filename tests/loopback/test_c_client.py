# SPDX-License-Identifier: Apache-2.0
"""C programs: the library, its pkg-config file, the example of the page, and deaths."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.hosts import PenstockHost
from support.patience import Patience

import penstock

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "c-client.md").read_text(encoding="utf-8")
TIMEOUT_S = 60.0
COMMAND = str(Path(sys.executable).parent / "penstock")

_READER = r"""
#include <penstock_session.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
/* Receives COUNT messages of a stream, or until the daemon is gone. */
int main(int argc, char **argv)
{
    ps_session_t *session = NULL;
    ps_sub_t *sub = NULL;
    const int64_t wanted = argc > 2 ? atoll(argv[2]) : 1;
    int64_t received = 0, bytes = 0;
    if (ps_session_open(NULL, "reader", 20000000000LL, &session) < 0 ||
        ps_session_add_subscription(session, argv[1], 1001, &sub) < 0) {
        fprintf(stderr, "%s\n", ps_last_error());
        return 3;
    }
    printf("ready\n");
    fflush(stdout);
    while (received < wanted) {
        const uint32_t ticket = ps_client_ticket(ps_session_client(session));
        if (ps_session_update(session) < 0) {
            printf("%s\n", ps_last_error());
            ps_session_close(session);
            return 4;
        }
        ps_message_t messages[64];
        const int32_t count = ps_sub_poll(sub, messages, 64, PS_POLL_ASSEMBLE);
        for (int32_t i = 0; i < count; i++) {
            bytes += messages[i].length;
        }
        received += count > 0 ? count : 0;
        if (count == 0) {
            ps_client_sleep(ps_session_client(session), ticket, 1000000000);
        }
    }
    printf("%lld %lld\n", (long long)received, (long long)bytes);
    if (ps_session_remove_subscription(session, sub) < 0) {
        return 5;
    }
    ps_session_close(session);
    return 0;
}
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library as `make install-c` leaves it."""
    prefix = tmp_path_factory.mktemp("prefix")
    subprocess.run(
        ["make", "-s", "install-c", f"PREFIX={prefix}"], cwd=ROOT, check=True, timeout=300
    )
    return prefix


def compiled(installed: Path, source: str, into: Path) -> Path:
    """With the command of the page."""
    into.mkdir(exist_ok=True)
    (into / "ticks.c").write_text(source, encoding="utf-8")
    command = re.findall(r"^cc ticks.c .*$", PAGE, re.MULTILINE)[0]
    subprocess.run(
        ["sh", "-c", command.replace("cc ", "cc -Wall -Wextra -Werror ")], cwd=into, check=True,
        env={**os.environ, "PKG_CONFIG_PATH": str(installed / "lib" / "pkgconfig")},
    )
    return into / "ticks"


def environment(installed: Path, host: PenstockHost, **more: str) -> dict[str, str]:
    return {
        **os.environ, "PENSTOCK_DIR": str(host.directory), "PENSTOCK_COMMAND": COMMAND,
        "LD_LIBRARY_PATH": str(installed / "lib"), **more,
    }


def test_the_example_of_the_page_runs(
    installed: Path, host: PenstockHost, tmp_path: Path
) -> None:
    source = re.findall(r"^```c\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[0]
    prints = re.findall(r"^```text\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[0]
    done = subprocess.run(
        [compiled(installed, source, tmp_path)], capture_output=True, text=True,
        timeout=TIMEOUT_S, check=False, env=environment(installed, host),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, prints, "")


def started(program: Path, env: dict[str, str], channel: str, count: int) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [program, channel, str(count)], env=env, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("medium", ["ipc", "udp"])
def test_a_c_reader_and_a_python_publisher(
    installed: Path, host: PenstockHost, tmp_path: Path, medium: str
) -> None:
    channel = {"ipc": "aeron:ipc?term-length=64k",
               "udp": "aeron:udp?endpoint=127.0.0.1:24731|term-length=64k"}[medium]
    program = compiled(installed, _READER, tmp_path)
    reader = started(program, environment(installed, host), channel, 5000)
    with penstock.connect(host.directory) as client:
        with client.add_publication(channel, 1001) as publication:
            for number in range(5000):
                publication.send(b"m" * (1 + number % 3000), timeout_s=TIMEOUT_S)
            out, _ = reader.communicate(timeout=TIMEOUT_S)
        total = sum(1 + number % 3000 for number in range(5000))
        assert (out, reader.returncode) == (f"5000 {total}\n", 0)


def names(client: penstock.Client) -> list[str]:
    return [entry["name"] for entry in client.status()["clients"]]


def test_a_killed_program_leaves_the_daemon(
    installed: Path, host: PenstockHost, tmp_path: Path
) -> None:
    program = compiled(installed, _READER, tmp_path)
    reader = started(program, environment(installed, host), "aeron:ipc", 1)
    with penstock.connect(host.directory) as client:
        assert "reader" in names(client)
        reader.kill()
        reader.wait()
        patience = Patience(TIMEOUT_S)
        while "reader" in names(client):
            assert not patience.is_over


def test_a_dead_daemon_is_an_error(installed: Path, host: PenstockHost, tmp_path: Path) -> None:
    program = compiled(installed, _READER, tmp_path)
    reader = started(program, environment(installed, host), "aeron:ipc", 1)
    host.kill()
    try:
        out, _ = reader.communicate(timeout=TIMEOUT_S)
    finally:
        host.start()
    assert reader.returncode == 4
    assert "session: the daemon is gone" in out


@pytest.mark.parametrize(
    ("channel", "more", "says"),
    [
        ("aeron:udp?endpoint=127.0.0.1", {}, "has no port"),
        ("aeron:ipc", {"PENSTOCK_COMMAND": "/nonexistent"}, "the helper ended"),
        ("aeron:ipc", {"PENSTOCK_DIR": "/nonexistent/dir"}, "no daemon"),
    ],
)
def test_refusals_have_a_text(
    installed: Path, host: PenstockHost, tmp_path: Path, channel: str, more: dict[str, str],
    says: str,
) -> None:
    done = subprocess.run(
        [compiled(installed, _READER, tmp_path), channel], capture_output=True, text=True,
        timeout=TIMEOUT_S, check=False, env=environment(installed, host, **more),
    )
    assert done.returncode == 3
    assert says in done.stderr


def test_the_library_shows_its_headers_and_nothing_else(installed: Path) -> None:
    shown = subprocess.run(
        ["nm", "-D", "--defined-only", installed / "lib" / "libpenstock.so"], check=True,
        capture_output=True, text=True,
    ).stdout
    exported = {line.split()[-1].partition("@")[0] for line in shown.splitlines()}
    headers = "".join(
        (installed / "include" / "penstock" / name).read_text("utf-8")
        for name in ("penstock.h", "penstock_session.h")
    )
    declared = set(re.findall(r"\b(ps_\w+)\(", re.sub(r"/\*.*?\*/", "", headers, flags=re.S)))
    assert declared <= exported
    ours = ("ps_client_", "ps_pub_", "ps_img_", "ps_sub_", "ps_messages_", "PENSTOCK_")
    assert all(name.startswith(ours) for name in exported - declared), exported - declared
