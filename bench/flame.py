# SPDX-License-Identifier: Apache-2.0
"""A flame graph of one ``penstock bench``: its processes side by side, in nanoseconds a message.

``python -m bench.flame --flamegraph DIR [--tree TREE] [--out SVG] WORK [bench's options]``
measures with the penstock of TREE (this one), records all processors with ``perf`` for a part of
that time, and draws with inferno (https://github.com/jonhoo/inferno), whose programs lie in DIR.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent.parent
SECONDS: Final = 4.5
WARMUP_S: Final = 1.0
START_UP_S: Final = 1.8
RECORD_S: Final = 3.0
FREQUENCY: Final = 497
WIDTH: Final = 1200
LEAST_PERCENT: Final = 0.25
START_S: Final = 30.0
_ROLES: Final = (
    (re.compile(r"penstock\0daemon\0.*--dir\0[^\0]*/a\0"), "publisher's daemon"),
    (re.compile(r"penstock\0daemon\0.*--dir\0[^\0]*/b\0"), "subscriber's daemon"),
    (re.compile(r"penstock\._bench\.worker\0(?:pub|ping)\0"), "publisher"),
    (re.compile(r"penstock\._bench\.worker\0(?:sub|pong)\0"), "subscriber"),
)
_SCRIPT: Final = re.compile(r"<script.*?</script>", re.DOTALL)
_BUTTON: Final = re.compile(r"<text id=\"(?:unzoom|search|matched|details)\".*?</text>", re.DOTALL)


def main() -> None:
    options, bench = _options()
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) / "perf.data"
        result, roles = record(options.tree, bench, data)
        stacks = dict(collapse(options.flamegraph, data, roles))
    picture = draw(options.flamegraph, stacks, result, options.title or " ".join(bench))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(picture, encoding="utf-8")
    print(f"{options.out}: {len(picture)} bytes, {sum(stacks.values())} samples, "
          f"{result['msgs_per_s'] / 1e6:.2f} M/s, {result['cpu_ns_per_msg']:.1f} ns a message")
    for line in top(stacks, result["cpu_ns_per_msg"]):
        print(line)


def _options() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(prog="bench.flame", description=__doc__)
    parser.add_argument("--flamegraph", type=Path, required=True,
                        help="where inferno's programs lie")
    parser.add_argument("--tree", type=Path, default=HERE, help="a work tree, built")
    parser.add_argument("--out", type=Path, default=HERE / "build/bench/flame.svg")
    parser.add_argument("--title", default="")
    options, bench = parser.parse_known_args()
    return options, bench or ["udp", "--client", "batch", "--size", "32"]


# ---- recording -----------------------------------------------------------------------------------


def record(tree: Path, bench: Sequence[str], data: Path) -> tuple[dict[str, Any], dict[int, str]]:
    """Runs the bench, and ``perf`` in the middle of it.  The bench's result, and who is who."""
    argv = [tree / ".venv/bin/python", "-m", "penstock", "bench", *bench, "--json",
            "--seconds", str(SECONDS), "--warmup", str(WARMUP_S)]
    with subprocess.Popen(argv, cwd=tree, stdout=subprocess.PIPE, text=True) as measured:
        roles = _wait_for_roles(measured)
        subprocess.run(
            ["perf", "record", "--quiet", "--all-cpus", "--event", "cpu-clock",
             "--delay", str(round(1000 * START_UP_S)),
             "--freq", str(FREQUENCY), "--call-graph", "dwarf,4096", "--output", data,
             "--", "sleep", str(START_UP_S + RECORD_S)],
            check=True,
        )
        said, _ = measured.communicate()
    result: dict[str, Any] = json.loads(said)
    if not result["hash_ok"]:
        raise SystemExit(f"messages were lost or damaged: {said}")
    return result, roles


def _wait_for_roles(measured: subprocess.Popen[str]) -> dict[int, str]:
    """Who is who, once the publisher is at work."""
    until_s = time.monotonic() + START_S
    while measured.poll() is None and time.monotonic() < until_s:
        roles = {pid: role for pid, role in _processes() if role}
        if "publisher" in roles.values() and "subscriber" in roles.values():
            return roles
        time.sleep(0.05)
    raise SystemExit("the bench's clients did not start")


def _processes() -> Iterator[tuple[int, str]]:
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            said = (entry / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        yield int(entry.name), next((role for known, role in _ROLES if known.search(said)), "")


# ---- drawing -------------------------------------------------------------------------------------


def collapse(programs: Path, data: Path, roles: dict[int, str]) -> Iterator[tuple[str, int]]:
    """Stacks of the measured processes, each below its role, with their samples."""
    script = subprocess.run(
        ["perf", "script", "--no-inline", "--input", data, "--fields",
         "comm,pid,tid,time,event,ip,sym,dso"],
        check=True, capture_output=True,
    ).stdout
    folded = subprocess.run([programs / "inferno-collapse-perf", "--pid", "--kernel"], input=script,
                            check=True, capture_output=True).stdout.decode()
    stacks: Counter[str] = Counter()
    for line in folded.splitlines():
        stack, _, samples = line.rpartition(" ")
        process, _, frames = stack.partition(";")
        role = roles.get(int(process.rpartition("-")[2]))
        if role is not None:
            stacks[";".join([role, *_worth_showing(frames.split(";"))])] += int(samples)
    yield from sorted(stacks.items())


def _worth_showing(frames: list[str]) -> list[str]:
    """Without the interpreter's way down to the first function of penstock's own."""
    first = next((i for i, frame in enumerate(frames) if frame.startswith("ps_")), None)
    return frames if first is None else frames[first:]


def draw(programs: Path, stacks: dict[str, int], result: dict[str, Any], title: str) -> str:
    scale = result["cpu_ns_per_msg"] / sum(stacks.values())
    lines = "".join(f"{stack} {samples}\n" for stack, samples in stacks.items())
    subtitle = (f"{result['msgs_per_s'] / 1e6:.2f} M messages/s, "
                f"{result['cpu_ns_per_msg']:.1f} ns of CPU a message, all processes")
    picture = subprocess.run(
        [programs / "inferno-flamegraph", "--title", title, "--subtitle", subtitle,
         "--countname", "ns a message", "--factor", f"{scale:.9f}", "--width", str(WIDTH),
         "--minwidth", str(LEAST_PERCENT), "--deterministic", "--colors", "hot"],
        input=lines, check=True, capture_output=True, text=True,
    ).stdout
    return _BUTTON.sub("", _SCRIPT.sub("", picture))  # a picture: nothing in it is run


def top(stacks: dict[str, int], ns_per_message: float, most: int = 8) -> Iterator[str]:
    """Where each process is, by the function on top of its stack."""
    whole = sum(stacks.values())
    roles: dict[str, Counter[str]] = {}
    for stack, samples in stacks.items():
        frames = stack.split(";")
        roles.setdefault(frames[0], Counter())[frames[-1]] += samples
    for role, leaves in roles.items():
        parts = ", ".join(f"{leaf} {samples / whole * ns_per_message:.1f}"
                          for leaf, samples in leaves.most_common(most))
        yield f"{role} {sum(leaves.values()) / whole * ns_per_message:.1f} ns: {parts}"


if __name__ == "__main__":
    sys.exit(main())
