# SPDX-License-Identifier: Apache-2.0
"""Pages of the guide that list what the code has."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import attrs
import pytest
import yaml

import penstock
from penstock.config import uri
from penstock.config.settings.models import ARRAYS, DaemonConfig
from penstock.config.uri.meanings import MEANINGS
from penstock.daemon.groups.status import GroupLogStatus, GroupStatus
from penstock.daemon.observe import status
from penstock.daemon.observe.event_table import EVENTS, TRACE_ONLY
from penstock.daemon.observe.status_table import KEYS

DOCS = Path(__file__).parents[2] / "docs"


def rows(page: str) -> list[list[str]]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in text.splitlines() if line.startswith("|") and not line.startswith("|--")
    ]


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS.parent / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


REFERENCE = tool("reference")


@pytest.mark.parametrize("path", REFERENCE.pages(), ids=lambda path: path.name)
def test_a_generated_file_is_what_the_code_says(path: Path) -> None:
    """After a change of a table: python tools/reference.py."""
    assert path.read_text(encoding="utf-8") == REFERENCE.pages()[path]


def first_cells(section: str) -> set[str]:
    text = (DOCS / "reference.md").read_text(encoding="utf-8").split(f"## {section}\n")[1]
    return set(re.findall(r"^\| `([\w-]+)`", text.split("\n## ")[0], re.MULTILINE))


def test_every_channel_parameter_is_in_the_reference() -> None:
    assert set(MEANINGS) == set(uri.PARAMETERS), "config/uri/meanings.py"
    assert first_cells("Channel parameters") == {*uri.PARAMETERS, *uri.REFUSED}
    page = (DOCS / "channels.md").read_text(encoding="utf-8").split("## Parameters")[1]
    assert set(uri.PARAMETERS) <= set(re.findall(r"`([a-z-]+)`", page))
    refused = page.split("Refused by name")[1]
    for key in uri.REFUSED:
        assert key in refused or key.startswith("ps-")


def test_every_public_name_is_in_the_api() -> None:
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^::: penstock[\w.]*\.(\w+)$", page, re.MULTILINE))
    errors = set(vars(penstock.errors))         # the page has this module whole
    assert set(penstock.__all__) - errors - {"__version__"} <= listed


def test_every_metric_is_in_the_reference() -> None:
    code = (DOCS.parent / "daemon/observe/metrics.py").read_text("utf-8")
    named = {name.removesuffix("_total") for name in re.findall(r'"(penstock_\w+)"', code)}
    assert {name.removesuffix("_total") for name in first_cells("Metrics")} == named


def test_every_event_is_in_the_reference() -> None:
    assert set(EVENTS) == set(REFERENCE.notified()), "daemon/observe/event_table.py"
    code = "".join(p.read_text("utf-8") for p in (DOCS.parent / "daemon").rglob("*.py"))
    of_trace = set(re.findall(r'trace\.put\("(\w+)"', code)) | {"stopping", "trace_dropped"}
    assert set(TRACE_ONLY) == of_trace
    assert first_cells("Events") == {*EVENTS, *TRACE_ONLY}


def test_every_status_key_has_a_meaning() -> None:
    named = {name for (_, kind), texts in KEYS.items() for name in texts}
    fields = {field.name for _, kind in KEYS for field in attrs.fields(kind)}
    assert named == fields, "daemon/observe/status_table.py"
    text = (DOCS / "reference.md").read_text(encoding="utf-8").split("## Status\n")[1]
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == fields
    schemas = {kind for _, kind in KEYS} - {GroupStatus, GroupLogStatus}
    assert schemas == {
        kind for name, kind in vars(status).items()
        if name.endswith("Status") and attrs.has(kind) and kind is not GroupStatus
    }


def test_every_configuration_key_is_in_its_page() -> None:
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    for table in attrs.fields(DaemonConfig):
        element = ARRAYS.get(table.name)
        heading = f"## [[{table.name}]]\n" if element else f"## [{table.name}]\n"
        kind = element or type(getattr(DaemonConfig(), table.name))
        section = page.split(heading)[1].split("\n## ")[0]
        listed = re.findall(r"^\| `(\w+)`", section, re.MULTILINE)
        assert listed == [field.name for field in attrs.fields(kind)], heading


def test_the_page_of_offer_codes_has_every_code() -> None:
    listed = {
        row[0].strip("`"): int(row[1].replace("−", "-")) for row in rows("offer-codes.md")[1:]
    }
    assert listed == {code.name: code.value for code in penstock.Offer}


def fields_of(header: str, struct: str) -> set[str]:
    """Names of the fields of a struct of the core."""
    text = (DOCS.parent / "core" / "src" / header).read_text(encoding="utf-8")
    body = re.sub(r"/\*.*?\*/", "", text.split(f"typedef struct {struct} {{")[1].split("}")[0],
                  flags=re.DOTALL)
    return {
        name for line in body.split(";")[:-1]
        for name in re.findall(r"(\w+)(?:\[\w*\])?\s*(?:,|$)", line.strip())
    }


def test_the_page_of_trust_names_a_test_for_each_field() -> None:
    tests = "".join(
        path.read_text(encoding="utf-8")
        for path in (DOCS.parent / "tests").rglob("*") if path.suffix in {".c", ".py"}
    )
    listed = [row for row in rows("trust.md") if len(row) == 4 and row[0] != "Field"]
    assert len(listed) > 10
    for field, who, restores, named in listed:
        assert who, field
        assert restores, field
        names = re.findall(r"`(\w+)`", named)
        assert names, f"{field}: no test"
        for name in names:
            assert re.search(rf"\b{name}\(", tests), f"{field}: {name} is no test"


def test_the_page_of_trust_has_every_field_of_a_source() -> None:
    page = "".join(row[0] for row in rows("trust.md") if len(row) == 4)
    listed = set(re.findall(r"`(\w+)`", page))
    for header, struct in (
        ("receiver/ps_image.h", "ps_connection"), ("receiver/ps_image.h", "ps_peer"),
    ):
        assert fields_of(header, struct) <= listed, struct


def test_links_between_pages_lead_somewhere() -> None:
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    for page in sorted(pages):
        text = (DOCS / page).read_text(encoding="utf-8")
        for link in re.findall(r"\]\(([^)#:]+\.md)\)", text):
            assert ((DOCS / page).parent / link).exists(), f"{page}: {link}"


def test_the_site_is_configured() -> None:
    with (DOCS.parent / "mkdocs.yml").open(encoding="utf-8") as file:
        site = yaml.safe_load(file)
    assert site["strict"] is True
    assert site["docs_dir"] == "docs"
    listed = {page for entry in site["nav"] for page in pages_of(entry)}
    assert listed == {
        str(path.relative_to(DOCS))
        for folder in ("", "spec") for path in (DOCS / folder).glob("*.md")
    }
    front = (DOCS / "index.md").read_text(encoding="utf-8")
    front_links = set(re.findall(r"\]\(([a-z/-]+\.md)\)", front))
    pages = {page for page in listed if not page.startswith("spec/")} | {"spec/index.md"}
    assert pages - {"index.md"} == front_links


def pages_of(entry: dict[str, str | list[str]]) -> list[str]:
    return [p for found in entry.values() for p in ([found] if isinstance(found, str) else found)]


def test_the_search_needs_no_internet(tmp_path: Path) -> None:
    """The theme would load the script with which it searches in files from another site."""
    docs = tmp_path / "docs"
    for name in ("index.md", "spec/index.md", "decisions/0001-a.md"):
        (docs / name).parent.mkdir(parents=True, exist_ok=True)
        (docs / name).write_text("# A page about credits\n\nText.\n", encoding="utf-8")
    shutil.copytree(DOCS / "javascripts", docs / "javascripts")
    hooks = DOCS.parent / "tools" / "mkdocs_hooks.py"
    (tmp_path / "mkdocs.yml").write_text(
        "site_name: a\nuse_directory_urls: false\ntheme: {name: material, font: false}\n"
        f"hooks: [{hooks}]\nplugins: [search, offline]\nnav: [index.md, spec/index.md]\n",
        encoding="utf-8",
    )
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"], cwd=tmp_path, check=True
    )
    site = tmp_path / "site"
    for page in sorted(site.rglob("*.html")):
        sources = re.findall(r'<script src="([^"]+)"', page.read_text(encoding="utf-8"))
        assert any(source.endswith("javascripts/frame-worker.js") for source in sources)
        for source in sources:
            there = site / source[1:] if source.startswith("/") else page.parent / source
            assert there.exists(), (page, source)
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    boosts = {row["location"]: row.get("boost", 1) for row in index["docs"]}
    assert boosts["decisions/0001-a.html"] < boosts["spec/index.html"] == 1


def test_every_test_that_a_page_names_exists() -> None:
    """A table says which tests fail without a rule: `file`: `name`, `name`."""
    page = "tests-by-rule.md"
    named = []
    for row in rows(page):
        path = ""
        for name in re.findall(r"`([^`]+)`", row[-1]):
            if name.startswith("tests/"):
                path = name
            elif path and re.fullmatch(r"[a-z0-9_]+", name):
                named.append((path, name))
    assert len(named) >= 60
    for path, name in named:
        text = (DOCS.parent / path).read_text(encoding="utf-8")
        form = rf"^def {name}\(" if path.endswith(".py") else rf"^static void {name}\("
        assert re.search(form, text, re.MULTILINE), f"{page}: {path} has no test {name}"


def test_the_largest_trailers_fit_with_all_that_is_planned() -> None:
    """The two largest of today are what tests/native/wire/test_wire.c measures."""
    table = (DOCS / "wire-extensions.md").read_text("utf-8").split("### Room")[1].split("\n## ")[0]
    cells = [line.split("|")[2:5] for line in table.splitlines() if line.startswith("| ")][1:]
    bound, planned = 256, 0
    for column, today in ((0, 210), (1, 188)):
        sizes = [(int(row[column]), row[2].strip()) for row in cells if row[column].strip()]
        assert sum(size for size, state in sizes if state == "in use") == today
        planned += sum(state == "planned" for _, state in sizes)
        assert sum(size for size, _ in sizes) <= bound
    assert planned >= 1
