# SPDX-License-Identifier: Apache-2.0
"""Each extra is enough for what it promises: the wheel of a release, in a virtual environment that
has the extra and nothing else, runs what needs it.

The environments are made in ``build/extras``, with the versions of ``requirements.lock``.  They are
made again when the dependencies change; the wheel is installed into them at every run.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from support.java import quick_java
from support.late_worker import LATE_WORKER, STARTS
from support.not_run import need_java, not_run
from support.own_network import machine_network

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / "build" / "extras"
TIMEOUT_S = 500.0
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NONE = "none"

#: Extra to a program for its environment; {root} is the source tree.
PROGRAMS = {
    NONE: """
import importlib.util, penstock, penstock.client
for name in [*penstock.__all__, *penstock.client.__all__]:
    getattr(penstock if name in penstock.__all__ else penstock.client, name)
with penstock.connect() as client:
    subscription = client.add_subscription("aeron:ipc", 1)
    client.add_publication("aeron:ipc", 1).send(b"x", 5.0)
    assert subscription.wait(5.0)
assert importlib.util.find_spec("numpy") is None
""",
    "arrow": """
import numpy, penstock, pyarrow
with penstock.connect() as client:
    subscription = client.add_subscription("aeron:ipc", 1)
    publication = client.add_publication("aeron:ipc", 1)
    publication.send_batch(pyarrow.table({"payload": [b"one", b"two"]}), 5.0)
    publication.send_batch(numpy.zeros((2, 8), numpy.uint8), 5.0)
    assert subscription.wait(5.0)
    with subscription.poll_batch() as batch:
        assert batch.to_arrow().num_rows == 4
""",
    "spark": """
import runpy
shown = runpy.run_path("{root}/tests/support/spark_from_wheel.py")
shown["show"]("{root}", "{part}")
""",
    "plots": """
from pathlib import Path
from penstock.cli import main
assert main(["sim", "run", "paused-max", "--plot", "run.png"]) == 0
assert Path("run.png").stat().st_size > 10_000
""",
    "demo": """
import sys
sys.path.append("{root}")
from demo import flights
assert len(flights.lines()) == flights.RECORDS + 1
""",
    "test": """
import pytest
assert pytest.main(["-q", "-p", "no:cacheprovider", "{root}/tests/unit/config/test_uri.py"]) == 0
""",
    "docs": """
import material, mkdocstrings, mkdocstrings_handlers.python, pymdownx
from mkdocs.config import load_config
assert load_config("{root}/mkdocs.yml")["site_name"] == "penstock"
""",
}
#: The programs that show an extra, each in a process of its own.
PARTS = {"spark": (
    "tutorial", "chain", "sink", "stream_example", "sink_example", "notebook", "locality",
)}
#: Not in the lock: it has wheels for some versions of Python only, and builds with clang else.
NOT_LOCKED = {"fuzz"}


def test_every_extra_is_tested() -> None:
    extras = set(PROJECT["optional-dependencies"])
    assert extras == {*PROGRAMS, *NOT_LOCKED} - {NONE}


@pytest.fixture(scope="module")
def environments(release: Path) -> Callable[[str], Path]:
    """Makes the environment of an extra, once."""
    (wheel,) = release.glob(f"*_{platform.machine()}.whl")
    return functools.cache(lambda extra: environment(extra, wheel))


def run(argv: list[str], **more: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        env={**os.environ, **more}, cwd=more.get("HOME", ROOT),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def pip(folder: Path) -> list[str]:
    """The pip of the tests, for an environment: to install its own takes 3 s of CPU time."""
    python = str(folder / "bin" / "python")
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]


def environment(extra: str, wheel: Path) -> Path:
    """The environment's folder, with the wheel in it."""
    folder = ENVIRONMENTS / extra
    pinned = re.findall(r"^([\w.-]+==\S+)", (ROOT / "requirements.lock").read_text(), re.M)
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"].get(extra, [])]
    made_of = hashlib.sha256("\n".join([sys.version, *wanted, *pinned]).encode()).hexdigest()
    stamp = folder / "made-of"
    if not stamp.exists() or stamp.read_text() != made_of:
        shutil.rmtree(folder, ignore_errors=True)
        run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
        constraints = folder / "constraints.txt"
        constraints.write_text("\n".join(pinned))
        name = f"penstock[{extra}]" if extra != NONE else "penstock"
        with machine_network():
            done = subprocess.run(
                [*pip(folder), "install", "--quiet", "--no-compile", "--retries=1",
                 f"--constraint={constraints}", f"{name} @ {wheel.as_uri()}"],
                capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
            )
        if "NewConnectionError" in done.stderr or "Temporary failure" in done.stderr:
            not_run("the package index cannot be reached")
        assert done.returncode == 0, done.stderr
        stamp.write_text(made_of)
    run([*pip(folder), "install", "--quiet", "--no-compile", "--no-index", "--no-deps",
         "--force-reinstall", str(wheel)])
    run([*pip(folder), "check"])
    return folder


@pytest.mark.parametrize(
    ("extra", "part"),
    [(extra, part) for extra in sorted(PROGRAMS) for part in PARTS.get(extra, [""])],
)
def test_an_extra_is_enough(
    extra: str, part: str, environments: Callable[[str], Path], tmp_path: Path
) -> None:
    if extra == "spark":
        need_java()
    folder = environments(extra)
    more = quick_java(str(folder / "bin" / "python")) if extra == "spark" else {}
    show(folder, PROGRAMS[extra].replace("{part}", part), tmp_path, **more)


def show(folder: Path, program: str, place: Path, **more: str) -> None:
    """Runs a program beside a daemon of its own; both again if a worker of Spark came too late."""
    for number in range(STARTS):
        home = place / str(number)
        home.mkdir(parents=True)
        known = {
            "HOME": str(home), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": "",
            "PENSTOCK_DIR": f"/dev/shm/penstock-extra-{os.getpid()}-{number}",
            "XDG_STATE_HOME": str(home), "PYSPARK_PYTHON": str(folder / "bin" / "python"),
            "PYSPARK_SUBMIT_ARGS":
                "--driver-memory 600m --conf spark.ui.enabled=false pyspark-shell",
            **more,
        }
        run([str(folder / "bin" / "penstock"), "up"], **known)
        try:
            done = subprocess.run(
                [str(folder / "bin" / "python"), "-W", "error::DeprecationWarning:penstock", "-c",
                 program.replace("{root}", str(ROOT))],
                capture_output=True, text=True, timeout=TIMEOUT_S, check=False, cwd=home,
                env={**os.environ, **known},
            )
        finally:
            run([str(folder / "bin" / "penstock"), "down"], **known)
            shutil.rmtree(known["PENSTOCK_DIR"], ignore_errors=True)    # groups keep their logs
        if done.returncode == 0:
            return
        assert LATE_WORKER in done.stdout + done.stderr, done.stdout + done.stderr
    raise AssertionError(f"no worker of Spark came in time in {STARTS} starts")
