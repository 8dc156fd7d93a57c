# SPDX-License-Identifier: Apache-2.0
"""One scenario under every strategy: what docs/strategy-comparison.md says of it."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.core.errors import ConfigurationError
from penstock.sim import files, library
from penstock.sim.compare import Series, at_cadence, measure, observe, policed, under
from penstock.sim.scenario import MS_NS, SECOND_NS, two_hosts
from penstock.sim.world import World

PAGE = Path(__file__).resolve().parents[2] / "docs" / "strategy-comparison.md"


NAME = re.compile(r"`(?P<fc>.+)`(?:, (?P<batch>\d+) each (?P<ms>[\d.]+) ms)?")
FAST, SLOW = 0, 2                       # b and d


def rows(columns: int) -> Iterator[tuple[str, list[float]]]:
    """Name and numbers of each line of the page's table with so many columns."""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == columns and NAME.fullmatch(cells[0]):
            yield cells[0], [
                float(number.replace(",", ""))
                for number in re.findall(r"\d[\d,]*(?:\.\d+)?", " ; ".join(cells[1:]))
            ]


RATES, LATENCIES = dict(rows(7)), dict(rows(6))


@functools.cache
def run_of(name: str) -> Series:
    scenario = files.load(library.path_of("overload"))
    found = NAME.fullmatch(name)
    assert found is not None
    if found["batch"]:
        scenario = at_cadence(scenario, int(found["batch"]), int(float(found["ms"]) * MS_NS))
    return observe(scenario, found["fc"], until_ns=28 * SECOND_NS)


@pytest.mark.parametrize("name", RATES)
def test_the_page_states_what_a_run_gives(name: str) -> None:
    run = run_of(name)
    found = [
        run.rate(1, 4) / 1000, run.rate(6, 16) / 1000, run.rate(17.5, 21) / 1000,
        run.stalled_s(), sum(run.delivered[SLOW]) / 1000, run.missed[SLOW][-1],
    ]
    assert found == pytest.approx(RATES[name], rel=0.1, abs=0.3)
    assert run.missed[0][-1] == run.missed[1][-1] == 0      # b and c, whatever d does
    assert (run.pressure > 0) == name.startswith("`nak`")   # and silence under all others


@pytest.mark.parametrize("name", LATENCIES)
def test_the_page_states_the_latencies_of_a_run(name: str) -> None:
    run = run_of(name)
    told = run.status_messages
    found = [
        *run.latency_ms(FAST, 1, 4), *run.latency_ms(FAST, 6, 16), *run.latency_ms(SLOW, 6, 16),
        (told[39] - told[9]) / 3, (told[159] - told[59]) / 10,
    ]
    *stated, signals = LATENCIES[name]
    assert found == pytest.approx(stated, rel=0.1, abs=2)
    assert run.pressure == pytest.approx(signals, rel=0.3)      # each change of the law moves it


#: Parameters of the publication and of the slow subscription, by the name in the table.
POLICIES = {
    "none": ("", ""),
    "block": ("ps-policy=block|ps-depth=32k", ""),
    "drop_newest": ("ps-policy=drop_newest|ps-depth=32k", ""),
    "drop_oldest": ("ps-policy=drop_oldest|ps-depth=32k", ""),
    "error": ("ps-policy=error|ps-depth=32k", ""),
    "rate_limit": ("ps-policy=rate_limit|ps-rate=400msg", ""),
    "independent": ("", "ps-sub-policy=independent"),
}
POLICY_ROWS = {name.strip("`"): numbers for name, numbers in rows(8)}


@pytest.mark.parametrize("name", POLICY_ROWS)
def test_the_page_states_what_a_policy_gives(name: str) -> None:
    scenario = policed(files.load(library.path_of("policies")), *POLICIES[name])
    run = measure(scenario, name, until_ns=16 * SECOND_NS)
    got = [sum(bins) // 1000 for bins in run.delivered]
    found = [
        run.rate(5, 12) / 1000, run.refusals, run.dropped[-1], got[1], run.missed[1][-1],
        run.latency_ms(0, 5, 12)[0], run.latency_ms(1, 5, 12)[0],
    ]
    assert found == pytest.approx(POLICY_ROWS[name], rel=0.1, abs=2)
    assert run.missed[0][-1] == 0
    # Of what was accepted only the last 3 ms (network, and a poll each ms) are on their way.
    assert 0 <= sum(run.published[0]) // 1000 - (got[1] + run.missed[1][-1]) <= 3


def test_each_policy_is_on_the_page() -> None:
    assert list(POLICY_ROWS) == list(POLICIES)


def test_six_strategies_and_three_cadences_of_nak_are_on_the_page() -> None:
    assert len(RATES) == 8
    assert list(RATES) == list(LATENCIES)


def test_each_reader_of_a_group_gets_a_stream_of_its_own() -> None:
    apart = under(files.load(library.path_of("overload")), "unicast")
    assert [p.stream_id for p in apart.publishers] == [1001, 1002, 1003]
    assert [s.stream_id for s in apart.subscribers] == [1001, 1002, 1003]
    assert [p.channel for p in apart.publishers] == [
        f"aeron:udp?endpoint=10.0.0.{host}:40456|term-length=256k" for host in (2, 3, 4)
    ]


def test_a_channel_without_an_endpoint_cannot_be_taken_apart() -> None:
    scenario = files.load(library.path_of("membership-churn"))
    with pytest.raises(ConfigurationError, match="no endpoint"):
        under(scenario, "unicast")
    assert under(two_hosts(), "unicast").publishers[0].channel.startswith("aeron:udp?endpoint=")


def test_the_command_prints_a_line_for_each_reader(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "compare", "overload", "--strategy", "max", "--seconds", "3"]) == 0
    printed = capsys.readouterr().out
    assert "max          published 2,500,000 bytes" in printed
    assert "b read 2,499,000 bytes, missed 0 messages" in printed


@pytest.mark.parametrize(("content", "options", "words"), [
    (b'"\xff"', [], "is not UTF-8 text"),
    (b"a = " + b"[" * 5000, [], "recursion"),
    (b"", ["--plot", "run.zip"], "run.zip: the file name ends in none of .png, .svg, .pdf"),
])
def test_a_run_that_cannot_be_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, options: list[str],
    words: str,
) -> None:
    file = tmp_path / "some.toml"
    file.write_bytes(content)
    assert main(["sim", "run", str(file), *options]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert words in line


@pytest.mark.parametrize(
    "arguments",
    [["run", "overload", "--plot", "run.png"], ["plot", "trace.jsonl", "--output", "run.png"]],
    ids=["run", "plot"],
)
def test_a_picture_without_matplotlib_is_refused_before_the_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(World, "run", lambda _world: pytest.fail("the scenario ran"))
    assert main(["sim", *arguments]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "plots need matplotlib: pip install 'penstock[plots]'" in line
