# SPDX-License-Identifier: Apache-2.0
"""The page with the captured sessions shows the frames that are sent today."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from interop import capture

PAGE = Path(__file__).parents[2] / "docs" / "capture.md"
pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("aeron_built")]


def kinds(text: str) -> tuple[set[str], set[str]]:
    """(frames of each way, what trailers hold), of the tables."""
    rows = [line.split("|") for line in text.splitlines() if re.match(r"\| \d+ \|", line)]
    return (
        {f"{way.strip()}: {frame.strip()}" for _, _, _, way, frame, *_ in rows},
        set(re.findall(r"penstock trailer[^|;]*", text)),
    )


def test_the_page_is_of_this_version() -> None:
    """Renewed by ``PYTHONPATH=tests python -m interop.capture docs/capture.md``."""
    for frames, trailers in (
        now := kinds(capture.document()), page := kinds(PAGE.read_text(encoding="utf-8"))
    ):
        for way in ("penstock → Aeron", "Aeron → penstock"):
            assert {f"{way}: {name}" for name in ("SETUP", "DATA", "NAK", "SM")} <= frames
        assert len(trailers) >= 2
    assert page[1] == now[1]
