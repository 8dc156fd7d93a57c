# SPDX-License-Identifier: Apache-2.0
"""The files of the service, and completion, as the command line hands them out."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli import COMMANDS, main
from penstock.cli.service import PLACES
from penstock.client import Image, Publication, Subscription
from penstock.client._fast_path import FastImage, FastPublication, FastSubscription

SYSTEMD = Path(__file__).parents[3] / "systemd"


def test_install_writes_every_file_of_the_service(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["service", "install", "--root", str(tmp_path), "--program", "/opt/penstock"]) == 0
    assert {path.name for path in SYSTEMD.iterdir() if path.suffix in (".conf", ".service")} == (
        set(PLACES)
    )
    for name, place in PLACES.items():
        text = (SYSTEMD / name).read_text("utf-8")
        text = text.replace("ExecStart=/usr/bin/penstock ", "ExecStart=/opt/penstock ")
        assert (tmp_path / place).read_text("utf-8") == text
    assert "systemctl enable --now penstock" in capsys.readouterr().out


def test_install_keeps_files_that_were_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["service", "install", "--root", str(tmp_path)]
    assert main(command) == 0
    assert main(command) == 0                   # the same again
    unit = tmp_path / PLACES["penstock.service"]
    program = Path(sys.executable).with_name("penstock")
    assert f"ExecStart={program} " in unit.read_text("utf-8")
    unit.write_text("mine")
    assert main(command) != 0
    assert "exists with other contents" in capsys.readouterr().err
    assert unit.read_text("utf-8") == "mine"
    assert main([*command, "--force"]) == 0
    assert "ExecStart" in unit.read_text("utf-8")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_of_the_shell(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    assert "_PENSTOCK_COMPLETE" in capsys.readouterr().out


def test_the_completion_of_bash_knows_every_command() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.argv[0] = 'penstock'; "
         "from penstock.cli import cli; cli(prog_name='penstock')"],
        capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "_PENSTOCK_COMPLETE": "bash_complete", "COMP_WORDS": "penstock ",
             "COMP_CWORD": "1"},
    )
    assert {line.rpartition(",")[2] for line in done.stdout.split()} == set(COMMANDS)


@pytest.mark.parametrize(("fast", "plain"), [
    (FastPublication, Publication), (FastSubscription, Subscription), (FastImage, Image),
])
def test_help_shows_the_signatures_of_methods_in_c(fast: type, plain: type) -> None:
    for name in dir(plain):
        method = inspect.getattr_static(plain, name)
        if name.startswith("_") or not inspect.isfunction(method):
            continue
        mine = inspect.signature(getattr(fast, name)).parameters.values()
        its = inspect.signature(method).parameters.values()
        assert [(p.name, p.default) for p in mine] == [(p.name, p.default) for p in its], name
