# SPDX-License-Identifier: Apache-2.0
"""Every block of code in the README, CONTRIBUTING and the guide runs in some test, or a reason says
why it does not.  A new block fails here until one of the two is true."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

import attrs
import pytest
import yaml

from penstock.config import uri
from penstock.config.settings import load
from penstock.sim import files

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
_BLOCK: Final = re.compile(r"^( *)```([\w.+-]*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_INDENTED: Final = re.compile(r"(?<=\n\n)(?: {4}\S.*\n)(?: {4,}.*\n)*")
_SHELLS: Final = ("sh", "bash", "shell", "console")
_OUTPUT: Final = "output of the commands above it"
_DRAWING: Final = "a drawing"

#: Blocks that a test of their own runs, and that test.
RUN_BY: Final = {
    "spark.md:python:1": "tests/loopback/test_spark_docs.py::test_the_tutorial_runs",
    "spark.md:python:2": "tests/loopback/test_spark_docs.py::test_the_tutorial_runs",
    "spark.md:python:3": "tests/loopback/test_extras.py::test_an_extra_is_enough",
    "spark-sink.md:python:1": "tests/loopback/test_spark_sink.py::"
    "test_the_example_of_the_page_runs",
    "c-client.md:c:1": "tests/loopback/test_c_client.py::test_the_example_of_the_page_runs",
    "c-client.md:text:1": "tests/loopback/test_c_client.py::test_the_example_of_the_page_runs",
    "credits.md:python:2": "tests/loopback/test_credits.py::"
    "test_the_example_of_an_operator_with_checkpoints_runs",
    **{f"compare.md:python:{number}": "tests/loopback/test_compare.py::"
       "test_a_program_prints_what_it_should" for number in range(1, 36)},
    **{f"testing-your-application.md:python:{number}": "tests/sim/test_applications.py::"
       "test_the_example_of_the_page_runs" for number in (1, 2)},
    **{f"tutorials.md:{kind}:{number}": "tests/loopback/test_tutorials.py::"
       "test_the_example_prints_what_the_page_says"
       for kind in ("python", "text") for number in range(1, 8)},
    **{f"capture.md:indented:{number}": "tests/interop/test_capture.py::"
       "test_the_page_is_of_this_version" for number in range(1, 7)},
}

#: Blocks that nobody can run, and why.
NOT_RUN: Final = {
    "README.md:text:1": _DRAWING,
    "CONTRIBUTING.md:console:1": "sets up the tree in which the tests run",
    "back-pressure.md:text:1": "a formula",
    "back-pressure.md:text:2": _OUTPUT,
    "congestion-control.md:text:1": _OUTPUT,
    "flow-control.md:text:1": _OUTPUT,
    "internals.md:text:1": _DRAWING,
    "operating.md:text:1": "a line of a trace",
    "credits.md::1": "needs a stream with credits; tests/loopback/test_credits.py::"
    "test_an_orchestrator_withholds_a_stream_and_resumes_it does the same",
    "relay.md:shell:1": "needs the addresses of two hosts; tests/loopback/test_relay.py runs it",
    "remote-control.md:text:1": "needs the keys of another host; "
    "tests/loopback/test_remote_control.py connects with keys of its own",
    "spark-sink.md:text:1": _OUTPUT,
    "spark-sink.md:text:2": _DRAWING,
    "spark.md:text:1": "three options of the query in the tutorial above it",
    "spark.md:text:2": "one expression on the query in the tutorial above it",
    "spark.md:text:3": "one option of the query in the tutorial above it",
    "spark.md:json:1": "an offset, as Spark stores it",
}


@attrs.frozen
class Block:
    name: str
    page: str
    language: str
    text: str


def _blocks() -> list[Block]:
    found = []
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        numbers: dict[str, int] = {}
        every = [(language, block) for _, language, block in _BLOCK.findall(text)]
        every += [("indented", block) for block in _INDENTED.findall(_BLOCK.sub("", text))]
        for language, block in every:
            numbers[language] = numbers.get(language, 0) + 1
            name = f"{path.name}:{language}:{numbers[language]}"
            found.append(Block(name, path.name, language, block))
    return found


BLOCKS: Final = _blocks()


def _module(name: str) -> ModuleType:
    sys.path.insert(0, str(ROOT / "tests"))
    try:
        path = ROOT / "tests" / "loopback" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    return module


def _unexplained() -> list[str]:
    shell = _module("test_docs_shell").PAGES
    examples = {page.removeprefix("../") for page in _module("test_docs_examples").PAGES}
    return [
        block.name for block in BLOCKS
        if not (
            block.name in RUN_BY or block.name in NOT_RUN
            or (block.language in _SHELLS and block.page in shell)
            or (block.language == "python" and block.page in examples)
            or block.language in ("toml", "uri")      # below
            or block.name == "back-pressure.md:yaml:1"
        )
    ]


def test_every_block_runs_or_says_why_not() -> None:
    assert _unexplained() == []


def test_a_rule_of_prometheus_uses_metrics_that_exist() -> None:
    (block,) = [b for b in BLOCKS if b.language == "yaml" and b.page == "back-pressure.md"]
    rules = [rule for group in yaml.safe_load(block.text)["groups"] for rule in group["rules"]]
    recorded = {rule["record"] for rule in rules if "record" in rule}
    listed = (DOCS / "reference.md").read_text(encoding="utf-8")
    used = {name for rule in rules for name in re.findall(r"penstock[:\w]+", rule["expr"])}
    assert len(used) == 2
    assert all(name in recorded or f"`{name}`" in listed for name in used)


def test_the_lists_name_blocks_that_exist() -> None:
    assert {*RUN_BY, *NOT_RUN} <= {block.name for block in BLOCKS}
    for test in set(RUN_BY.values()):
        path, name = test.split("::")
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), test


@pytest.mark.parametrize(
    "block", [b for b in BLOCKS if b.language == "toml"], ids=lambda block: block.name
)
def test_a_toml_block_is_accepted(block: Block, tmp_path: Path) -> None:
    if block.page == "simulator.md":
        path = tmp_path / "scenario.toml"
        path.write_text(block.text, encoding="utf-8")
        assert files.load(path).publishers
    else:
        load.load_text(block.text)


@pytest.mark.parametrize(
    "channel",
    [line for b in BLOCKS if b.language == "uri" for line in b.text.splitlines()],
)
def test_a_channel_of_the_guide_is_accepted(channel: str) -> None:
    parsed = uri.parse(channel)
    if parsed.spy:
        uri.check_subscription(parsed)
    else:
        uri.check_publication(parsed)
