# SPDX-License-Identifier: Apache-2.0
"""Small wrong changes to the protocol core: which there are, and which of them change nothing.

A mutant is known by its file, its function and the text of its line before and after, so that it is
found again whatever is edited elsewhere.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from pathlib import Path
from typing import Final

import attrs

ROOT: Final = Path(__file__).resolve().parent.parent
EQUIVALENT: Final = ROOT / "tools" / "equivalent_mutants.toml"
#: The protocol: whole folders, and the two algorithms that stand in another.
FOLDERS: Final = ("protocol", "sender", "receiver")
ELSEWHERE: Final = ("base/ps_pacer.c", "memory/ps_account.c")
#: (kind, pattern, replacements): each match makes one mutant for each replacement; {} the match.
OPERATORS: Final = (
    ("comparison", r"(?<=\s)<=(?=\s)", ("<", ">")),
    ("comparison", r"(?<=\s)>=(?=\s)", (">", "<")),
    ("comparison", r"(?<=\s)<(?=\s)", ("<=", ">=")),
    ("comparison", r"(?<=\s)>(?=\s)", (">=", "<=")),
    ("comparison", r"(?<=\s)==(?=\s)", ("!=",)),
    ("comparison", r"(?<=\s)!=(?=\s)", ("==",)),
    ("comparison", r"(?<=\s)&&(?=\s)", ("||",)),
    ("comparison", r"(?<=\s)\|\|(?=\s)", ("&&",)),
    ("limit", r"\b[A-Z][A-Z_]*_(?:MAX|PARTS|LIMIT|BYTES|DATAGRAMS|WINDOW|MULTIPLE|SEGMENTS|BITS)\b",
     ("(2 * {})", "({} / 2)")),
    ("limit", r"(?<=[-+*/] )\d+(?=[;,)\s])", ("(2 * {})", "({} + 1)")),
    ("timer", r"\b(?:\w+(?:->|\.))*\w*(?:timeout|interval|delay|linger|after|retry|beat|TIMEOUT"
     r"|INTERVAL|TICK|RETRY|LOOK|IDLE|GRID|HOLD)\w*_(?:ns|NS)\b(?! =)", ("(4 * {})", "({} / 4)")),
    ("sum", r"(?<=[\w)] )\+(?= [\w(])", ("-",)),
    ("sum", r"(?<=[\w)] )-(?= [\w(])", ("+",)),
    ("flag", r"(?<== )true(?=;)", ("false",)),
    ("flag", r"(?<== )false(?=;)", ("true",)),
    ("dropped", r"(?<=\n)    +(?:\(void\))?(?!ps_system_add)[a-z][\w>.\[\]-]*"
     r"(?: [-+|]?= [^;{}]+|\([^;{}]*\));(?=\n)", (";",)),
)


@attrs.frozen
class Mutant:
    """One wrong change.  before, after: its lines, without line ends."""

    file: str
    function: str
    before: str
    after: str
    kind: str
    old: str
    new: str
    begin: int
    end: int
    line: int

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.file, self.function, self.before, self.after

    def rank(self, salt: int) -> str:
        """Its place in a sample."""
        return hashlib.sha256(f"{salt} {' | '.join(self.key)}".encode()).hexdigest()

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function}: {self.before}  ==>  {self.after}"


def strip(text: str) -> str:
    """The text with comments, strings, preprocessor lines, assertions and refusals blanked."""

    def blank(match: re.Match[str]) -> str:
        return "".join("\n" if letter == "\n" else " " for letter in match[0])

    text = re.sub(r"/\*.*?\*/", blank, text, flags=re.DOTALL)
    text = re.sub(r'"(?:[^"\\\n]|\\.)*"', blank, text)
    text = re.sub(r"\b(?:PS_ASSERT|assert)\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\);", blank, text)
    text = re.sub(r"^[ \t]*#.*$", blank, text, flags=re.MULTILINE)
    text = re.sub(r"\(void\)\w+;", blank, text)
    return re.sub(r"\bif \([^{}]*\) \{\s*(?:free\(\w+\);\s*)?return ps_fail\([^{}]*\}", blank, text)


def _functions(code: str) -> list[str]:
    """For each line the function that it is in, "" outside."""
    names, current, heading = [], "", ""
    for line in code.split("\n"):
        if match := re.match(r"[a-z][\w \*]*?\b(\w+)\(", line):
            heading = match[1]
            current = heading if line.rstrip().endswith("}") else current
        if line.startswith("{"):
            current = heading
        names.append(current)
        if line.startswith("}") or (line[:1].isalpha() and line.rstrip().endswith("}")):
            current = ""
    return names


def mutants(path: Path) -> list[Mutant]:
    """Every mutant of a file; of equal changes in equal lines of a function the first."""
    whole = path.read_text(encoding="utf-8")
    code = strip(whole)
    functions = _functions(code)
    found: dict[tuple[str, str, str, str], Mutant] = {}
    for kind, pattern, replacements in OPERATORS:
        for match in re.finditer(pattern, code):
            first = whole.rfind("\n", 0, match.start()) + 1
            last = whole.find("\n", match.end())
            line = whole.count("\n", 0, match.start())
            for text in replacements:
                old = match[0].strip()
                new = text.replace("{}", old)
                after = whole[first : match.start()] + new + whole[match.end() : last]
                mutant = Mutant(
                    path.name, functions[line], " ".join(whole[first:last].split()),
                    " ".join(after.split()), kind, old, new, match.start(), match.end(), line + 1,
                )
                found.setdefault(mutant.key, mutant)
    return list(found.values())


def files() -> list[Path]:
    """Every file that is mutated, in a fixed order."""
    core = ROOT / "core" / "src"
    found = [path for folder in FOLDERS for path in sorted((core / folder).glob("*.c"))]
    return found + [core / name for name in ELSEWHERE]


def every() -> list[Mutant]:
    """All mutants of the protocol."""
    return [mutant for path in files() for mutant in mutants(path)]


class ListError(ValueError):
    """The list of equivalent mutants names one that is none, or says not why."""


def equivalent(known: list[Mutant]) -> dict[tuple[str, str, str, str], str]:
    """Mutants that change nothing that can be seen, and why.  ``known``: all that there are."""
    keys = {mutant.key for mutant in known}
    listed: dict[tuple[str, str, str, str], str] = {}
    for entry in tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))["mutant"]:
        key = entry["file"], entry["function"], entry["before"], entry["after"]
        if key not in keys:
            raise ListError(f"{EQUIVALENT.name}: there is no mutant {key}: take it out")
        if key in listed or not entry.get("why"):
            raise ListError(f"{EQUIVALENT.name}: {key} is there twice, or says not why")
        listed[key] = entry["why"]
    return listed
