# SPDX-License-Identifier: Apache-2.0
"""Pages of the guide that list what the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import penstock
from penstock.config import uri

DOCS = Path(__file__).parents[2] / "docs"


def rows(page: str) -> list[list[str]]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in text.splitlines() if line.startswith("|") and not line.startswith("|--")
    ]


def test_the_page_of_channels_has_every_parameter() -> None:
    listed = {
        key for row in rows("channels.md") if len(row) == 3
        for key in re.findall(r"`([a-z-]+)`", row[0])
    }
    assert listed == set(uri.PARAMETERS)
    refused = (DOCS / "channels.md").read_text(encoding="utf-8").split("Refused by name")[1]
    for key in uri.REFUSED:
        assert key in refused or key.startswith("ps-")


def test_the_page_of_offer_codes_has_every_code() -> None:
    listed = {
        row[0].strip("`"): int(row[1].replace("−", "-")) for row in rows("offer-codes.md")[1:]
    }
    assert listed == {code.name: code.value for code in penstock.Offer}


def test_the_page_of_events_has_every_event() -> None:
    code = "".join(p.read_text("utf-8") for p in (DOCS.parent / "daemon").rglob("*.py"))
    notified = set(re.findall(r'state\.event\(\s*f?"([a-z_{}]+)"', code))
    notified |= {"group_closed", "group_expired"}
    page = (DOCS / "operating.md").read_text(encoding="utf-8").split("## Events")[1]
    listed = {
        name for line in page.split("## ")[0].splitlines() if line.startswith("| `")
        for name in re.findall(r"`([a-z_]+)`", line.split("|")[1])
    }
    assert listed == notified - {"group_{reason}"}


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


@pytest.mark.parametrize("page", ["flow-control.md", "loss-recovery.md"])
def test_every_test_that_a_page_names_exists(page: str) -> None:
    """A table says which test fails without a line of the source lists: `file`: `name`, `name`."""
    named = []
    for row in rows(page):
        path = ""
        for name in re.findall(r"`([^`]+)`", row[-1]):
            if name.startswith("tests/"):
                path = name
            elif path and re.fullmatch(r"[a-z0-9_]+", name):
                named.append((path, name))
    assert len(named) >= {"flow-control.md": 50, "loss-recovery.md": 10}[page]
    for path, name in named:
        text = (DOCS.parent / path).read_text(encoding="utf-8")
        form = rf"^def {name}\(" if path.endswith(".py") else rf"^static void {name}\("
        assert re.search(form, text, re.MULTILINE), f"{page}: {path} has no test {name}"


def test_the_largest_trailers_fit_with_all_that_is_planned() -> None:
    """The two largest of today are what tests/native/test_wire.c measures."""
    table = (DOCS / "wire-extensions.md").read_text("utf-8").split("### Room")[1].split("\n## ")[0]
    cells = [line.split("|")[2:5] for line in table.splitlines() if line.startswith("| ")][1:]
    bound, planned = 256, 0
    for column, today in ((0, 190), (1, 64)):
        sizes = [(int(row[column]), row[2].strip()) for row in cells if row[column].strip()]
        assert sum(size for size, state in sizes if state == "in use") == today
        planned += sum(state == "planned" for _, state in sizes)
        assert sum(size for size, _ in sizes) <= bound
    assert planned >= 7
