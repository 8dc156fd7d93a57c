# SPDX-License-Identifier: Apache-2.0
"""Each shell block of the README and the guide is pasted at once into a terminal, page by page in
one shell, as a newcomer does.  Every command of it must succeed."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.patience import Patience

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TIMEOUT_S = 120.0
_FENCE = re.compile(r"^```(sh|bash|shell|console)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_COMMANDS = "penstock|make|pip|python3?|printf|sudo|systemctl|systemd-sysusers|export|cd|uv"

#: Blocks whose last command runs until Ctrl-C, and what it shows by then.
ENDLESS = {
    "getting-started.md-5": "per second",
    "command-line.md-3": "ready in",
    "operating.md-3": "ready in",
    "relay.md-1": "runs",
}
#: Blocks for one terminal while the next block is pasted into another.
BESIDE = {"command-line.md-1", "two-hosts.md-1"}
#: Pages that expect a daemon.
NEED_DAEMON = {"command-line.md", "relay.md"}
#: Blocks of `make`: their targets are expanded, not run.
MAKE = {"README.md-1", "c-client.md-1"}
#: Blocks that run elsewhere, or change the host.
ELSEWHERE = {
    "c-client.md-2": "compiles the page's example; tests/loopback/test_c_client.py does",
    "getting-started.md-1": "installs; test_extras.py does it with the wheel",
    "operating.md-1": "installs a service; tests/unit/cli/test_systemd.py verifies the unit",
    "operating.md-2": "changes a limit of the kernel",
    "simulator.md-2": "minutes of processor time; tests/sim/test_grid.py runs cells",
    "strategy-comparison.md-1": "minutes of processor time; tests/sim/test_compare.py runs it",
    "two-hosts.md-3": "needs a container runtime; tests/cluster/test_compose.py runs its commands",
    "spark.md-1": "installs from the package index; test_extras.py installs from the wheel",
    "spark.md-2": "installs Jupyter; test_extras.py runs the notebook's cells without it",
}


def blocks(page: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    found = []
    for kind, block in _FENCE.findall(text):
        lines = block.splitlines()
        if kind == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        found.append("\n".join(lines))
    return found


PAGES = {
    page.removeprefix("../"): found
    for page in ["../README.md", *sorted(path.name for path in DOCS.glob("*.md"))]
    if (found := blocks(page))
}


class Terminal:
    """An interactive shell on a terminal of 80 columns.  Its prompt shows the last status."""

    def __init__(self, env: dict[str, str], cwd: Path) -> None:
        self.seen = ""
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            os.chdir(cwd)
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], env)
        termios.tcsetwinsize(self._fd, (50, 80))
        self.type("bind 'set enable-bracketed-paste off'; stty -echo; PS1='[$?]> '")
        self.wait_for(r"\[0\]> $")

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode() + b"\n")

    def interrupt(self) -> None:
        os.write(self._fd, b"\x03")

    def wait_for(self, pattern: str, since: int = 0) -> None:
        patience = Patience(TIMEOUT_S)
        while not re.search(pattern, self.seen[since:]):
            assert not patience.is_over, f"{pattern} does not come:\n{self.seen[since:]}"
            if select.select([self._fd], [], [], min(1.0, patience.left_s))[0]:
                part = os.read(self._fd, 65536).decode("utf-8", "replace")
                self.seen += part.replace("\r\n", "\n")

    def paste(self, block: str, until: str = "") -> str:
        """Everything at once; what it shows.  ``until``: Ctrl-C when this is there."""
        since = len(self.seen)
        self.type(block)
        if until:
            self.wait_for(until, since)
            self.interrupt()
        self.type("wait; echo the-end-'of-it'")
        self.wait_for(r"the-end-of-it\n\[\d+\]> $", since)
        return self.seen[since:]

    def close(self) -> None:
        os.close(self._fd)      # the shell and its jobs are hung up
        for number in (signal.SIGHUP, signal.SIGKILL):
            os.kill(self._pid, number)
        os.waitpid(self._pid, 0)


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A user of their own: home, state and default directory."""
    kept = {key: os.environ[key] for key in ("LANG", "LC_ALL") if key in os.environ}
    return {
        **kept, "HOME": str(tmp_path), "USER": f"docs-{os.getpid()}-{os.urandom(3).hex()}",
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin", "TERM": "xterm",
    }


@pytest.fixture
def terminal(env: dict[str, str], tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(env, tmp_path)
    yield made
    made.type("penstock down")
    made.wait_for(r"(has ended|no daemon is running)[^\[]*\[0\]> $")
    made.close()
    assert not Path(f"/dev/shm/penstock-{env['USER']}").exists()


def adapted(block: str, home: Path) -> str:
    """Addresses and files of this host, and fewer seeds."""
    for written, here in (
        ("10.0.0.2", "127.0.0.1"), ("/etc/penstock", f"{home}/etc"), ("/var/tmp", str(home)),
        ("/dev/shm/lossy", f"/dev/shm/lossy-{os.getpid()}"), ("--seeds 1000", "--seeds 5"),
    ):
        block = block.replace(written, here)
    return block


def statuses(shown: str) -> list[int]:
    return [int(number) for number in re.findall(r"\[(\d+)\]> ", shown)]


@pytest.mark.parametrize("page", sorted(PAGES))
def test_each_block_of_a_page_works_as_one_paste(
    page: str, terminal: Terminal, env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "etc").mkdir()
    other: Terminal | None = None
    if page in NEED_DAEMON:
        terminal.paste("penstock up")
    for number, block in enumerate(PAGES[page], 1):
        name = f"{page}-{number}"
        if name in ELSEWHERE:
            continue
        if name in MAKE:
            maker = Terminal({**env, "MAKEFLAGS": "n"}, ROOT)
            assert set(statuses(maker.paste(block))) == {0}, maker.seen
            maker.close()
            continue
        if name in BESIDE:
            other = Terminal(env, tmp_path)
            other.type(adapted(block, tmp_path))
            continue
        shown = terminal.paste(adapted(block, tmp_path), ENDLESS.get(name, ""))
        assert set(statuses(shown)) <= ({0, 130} if name in ENDLESS else {0}), shown
        assert "Traceback" not in shown
        assert "penstock: no daemon" not in shown
        if other is not None:
            other.wait_for(r"\[0\]> $")
            other.close()
            other = None


def test_every_shell_block_is_marked_as_one() -> None:
    """Blocks that are only indented would not be found."""
    for page in ["../README.md", *(path.name for path in DOCS.glob("*.md"))]:
        text = re.sub(r"^```.*?^```", "", (DOCS / page).read_text("utf-8"), flags=re.S | re.M)
        assert not re.findall(rf"^    (?:{_COMMANDS}) .*$", text, re.MULTILINE), page


def test_the_lists_name_blocks_that_exist() -> None:
    names = {f"{page}-{number}" for page, found in PAGES.items() for number in
             range(1, len(found) + 1)}
    assert {*ENDLESS, *BESIDE, *MAKE, *ELSEWHERE} <= names
    assert len(names) >= 10
