# SPDX-License-Identifier: Apache-2.0
"""The demonstration is what a newcomer sees first: it has to work, end, and leave nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.java import needs_java

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from demo import flights  # noqa: E402

SHARED = Path("/dev/shm")


def remains() -> set[Path]:
    return set(SHARED.glob("penstock-demo-*"))


def start(*options: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "demo", *options], cwd=ROOT, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, env={**os.environ, **environment},
    )


@needs_java
@pytest.mark.slow
@pytest.mark.timeout(640)
def test_the_demo_is_equal_to_the_last_row_and_leaves_nothing() -> None:
    before = remains()
    with start() as demo:
        output, _ = demo.communicate(timeout=620)
    assert demo.returncode == 0, output
    assert "EQUAL: 336,776 records" in output
    assert "EQUAL: Spark's aggregate of 336,776 records is the direct one" in output
    assert remains() == before


@needs_java
@pytest.mark.slow
@pytest.mark.timeout(640)
def test_an_interrupted_demo_leaves_nothing(tmp_path: Path) -> None:
    """The first Python worker of its source comes later than Spark waits, as on a busy machine: the
    query starts again."""
    before = remains()
    (tmp_path / "sitecustomize.py").write_text(LATE)
    flag = tmp_path / "was late"
    with start("--rate", "2000", PYTHONPATH=str(tmp_path), LATE_FLAG=str(flag)) as demo:
        assert demo.stdout is not None
        demo.stdout.readline()      # a first line of figures: everything is up
        demo.send_signal(signal.SIGTERM)
        output, _ = demo.communicate(timeout=60)
    assert demo.returncode == 130, output
    assert flag.exists()
    assert remains() == before


#: Holds the first process that plans for a source longer than the 10 s of Spark.
LATE = """
import os, pathlib, sys, time
flag = pathlib.Path(os.environ["LATE_FLAG"])
if any("python_streaming_source_runner" in word for word in sys.orig_argv) and not flag.exists():
    flag.touch()
    time.sleep(15)
"""


def test_a_failing_demo_that_is_interrupted_says_one_line(tmp_path: Path) -> None:
    """No Java: the query fails.  Ctrl-C reaches the terminal's whole process group, again and
    again, from the moment on at which the failure is noticed until the end."""
    before = remains()
    (tmp_path / "java").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "java").chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(tmp_path)}
    env.pop("JAVA_HOME", None)
    (tmp_path / "sitecustomize.py").write_text(NOTICED)
    with subprocess.Popen(
        [sys.executable, "-m", "demo"], cwd=ROOT, env=env, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, process_group=0,
    ) as demo:
        assert demo.stdout is not None
        seen = ""
        while "noticed" not in seen and (line := demo.stdout.readline()):
            seen += line
        assert "noticed" in seen, seen
        while demo.poll() is None:
            os.killpg(demo.pid, signal.SIGINT)
            time.sleep(0.005)
        seen += demo.stdout.read()
    assert demo.returncode == 1, seen
    assert "Traceback" not in seen
    assert "demo: the query failed" in seen
    assert remains() == before


#: Tells when the demonstration begins to end its processes.
NOTICED = """
import sys
if sys.argv[0] == "-m" or sys.argv[0].endswith("__main__.py"):
    import atexit, threading
    def watch():
        import time
        while "demo.hosts" not in sys.modules or not hasattr(sys.modules["demo.hosts"], "Reporter"):
            time.sleep(0.01)
        reporter = sys.modules["demo.hosts"].Reporter
        stop = reporter.stop
        def told(self):
            print("noticed", flush=True)
            stop(self)
        reporter.stop = told
    threading.Thread(target=watch, daemon=True).start()
"""


def test_a_missing_record_changes_the_aggregate() -> None:
    lines = flights.lines()[:1000]
    whole, part = flights.Aggregate(), flights.Aggregate()
    whole.add(memoryview(line) for line in lines)
    part.add(memoryview(line) for line in lines[:-1])
    assert whole.records == part.records + 1
    assert whole.sha256 != part.sha256
    assert whole.carriers() != part.carriers()
