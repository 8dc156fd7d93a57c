# SPDX-License-Identifier: Apache-2.0
"""Check the messages of the commits since ``SINCE``: subject, length, body (CONTRIBUTING.md)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
#: The last commit before the rule; only its descendants are checked.
SINCE: Final = "113a788"
#: Commits that broke a rule before the check ran; history is not rewritten for them.
EXEMPT: Final = ("22f4d50",)
MAX_SUBJECT_CHARS: Final = 72
_SEPARATOR: Final = "\x1e"
#: A subject may name its part first: "sim: renew the golden traces".
_PART: Final = re.compile(r"^[\w./-]+: ")
#: Words that no imperative begins with.
_NOT_IMPERATIVE: Final = re.compile(
    r"^(\w+ed|\w+ing|the|a|an|who|what|that|some|more|all|now|also)\b", re.IGNORECASE
)
_ALLOWED: Final = {"embed", "feed", "need", "speed", "bring", "ring", "string"}


def complaints(subject: str, body: str) -> list[str]:
    """Return what is wrong with one message, as sentences."""
    found = []
    if len(subject) > MAX_SUBJECT_CHARS:
        found.append(f"the subject has {len(subject)} characters, at most {MAX_SUBJECT_CHARS}")
    words = _PART.sub("", subject)
    match = _NOT_IMPERATIVE.match(words)
    if match and match[0].lower() not in _ALLOWED:
        found.append(f"the subject begins with {match[0]!r}, not with an imperative")
    if not body.strip():
        found.append("the body is empty: say why, and what was measured")
    return found


def main() -> int:
    known = subprocess.run(
        ["git", "cat-file", "-e", f"{SINCE}^{{commit}}"], cwd=ROOT, check=False,
        capture_output=True,
    )
    if known.returncode != 0:
        print(f"commits: {SINCE} is not in this clone; messages are not checked")
        return 0
    log = subprocess.run(
        ["git", "log", "--no-merges", f"--format=%h%n%s%n%b{_SEPARATOR}", f"{SINCE}..HEAD"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout
    bad = 0
    for entry in filter(str.strip, log.split(_SEPARATOR)):
        commit, subject, body = [*entry.strip("\n").split("\n", 2), ""][:3]
        if subject.startswith("Revert ") or commit.startswith(EXEMPT):
            continue
        for complaint in complaints(subject, body):
            print(f"{commit} {subject!r}: {complaint}")
            bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
