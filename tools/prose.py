# SPDX-License-Identifier: Apache-2.0
"""Check the English of docs, docstrings, comments, log lines, error texts and test names.

The rules are about openers, words and sentence length; proselint checks running text too.

A program cannot judge whether a sentence is plain.  It finds the constructions that most often
make one hard to read (CONTRIBUTING.md, "Prose"), and what proselint finds.  ``prose_pending.txt``
lists the files that were not rewritten yet.  A file leaves that list when it has no complaint; no
file may join it.

    tools/prose.py            check everything
    tools/prose.py FILE ...   check these files, listed or not
    tools/prose.py --count    complaints of each listed file
"""

from __future__ import annotations

import ast
import bisect
import io
import itertools
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from proselint.checks import __register__
from proselint.registry import CheckRegistry
from proselint.tools import LintFile

CheckRegistry().register_many(__register__)

ROOT: Final = Path(__file__).resolve().parent.parent
PENDING: Final = ROOT / "tools" / "prose_pending.txt"
#: Names of tests from before the rule; no name may join.
PENDING_NAMES: Final = ROOT / "tools" / "prose_pending_names.txt"
MAX_WORDS: Final = 25
#: Of a sentence that lists things behind a colon or between semicolons.
MAX_LIST_WORDS: Final = 45
#: Of a log line or an error text, which also states values.
MAX_MESSAGE_WORDS: Final = 60
#: Decision records are for maintainers; generated and legal texts are not ours to edit.
_SKIPPED: Final = ("docs/decisions/", "LICENSE", "build/", "site/")
_OPENER: Final = re.compile(
    r"^(?:(Who|What|Whoever|Whatever|One that|Those|That which|Where|Nobody|Somebody)\b"
    r"(?! penstock| to\b)(?!.*\?$)"
    r"|(How (?:long|many|often|far|much|late|soon)|Of (?:an?|one|those|each|what|which))\b(?!.*\?$)"
    r"|(That)\s+(?!(?:is|was|does|did|makes|means)\b|[A-Z]))"
)
_WORDS: Final = {
    r"\banew\b": "again",
    r"\bfor good\b": "permanently",
    r"\b(?:gives?|given|gave|giving) back\b": "release",
    r"\bgiven? up\b|\bgives up\b|\bgave up\b|\bgiving up\b": "release, abandon",
    r"\bpunch(?:ed|es)?\b": "release",
    r"\bnobody\b": "no receiver, no client, no thread",
    r"\bwhoever\b": "name the actor",
    r"\b(?:any|every|some)(?:body|one)\b": "name the actor",
    r"\blet(?:s|ting)? go\b": "release",
    r"\b(?:goes|go|going|went) on\b": "continue",
    r"\btold\b": "notified, reported, stated",
    r"\bhand(?:s|ed|ing)? out\b": "deliver, return",
    r"\bfurther on\b|\bfurthest on\b": "most advanced",
    r"\bunder way\b": "in flight",
    r"\bstands? still\b|\bstood still\b": "makes no progress, is blocked",
    r"\bsent again\b|\bsends? again\b": "retransmit",
    r"\bis told of\b|\bare told of\b": "is notified of",
    r"\bpredecessor\b|\bsuccessor\b": "old daemon, new daemon",
    r"\binherit(?:s|ed)?\b": "adopt",
    r"\bso-manyth\b|\bso many\b": "every N-th, up to N",
    r"\bmakes no secret\b|\bno news\b": "say what happens",
}
_FORBIDDEN: Final = [(re.compile(p, re.IGNORECASE), w) for p, w in _WORDS.items()]
_SENTENCE: Final = re.compile(r"(?<=[.!?:])\s+(?=[A-Z`*\"(])")


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of running text."""
    flat = re.sub(r"\s+", " ", text).strip()
    for sentence in _SENTENCE.split(flat):
        if sentence:
            yield sentence


def words(sentence: str) -> int:
    """Count words; code in backquotes and a link's target count as one word."""
    plain = re.sub(r"`[^`]*`", "code", sentence)
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", plain)
    return len(re.findall(r"[A-Za-z0-9][\w'’./%-]*", plain))


def complaints(text: str) -> Iterator[str]:
    """Yield what is wrong with running text, sentence by sentence."""
    for sentence in sentences(text):
        short = sentence if len(sentence) < 90 else sentence[:87] + "..."
        if match := _OPENER.match(sentence.lstrip("*_\"( ")):
            yield f"opens with {(match[1] or match[2] or match[3])!r}: {short}"
        count = words(sentence)
        longest = max(map(words, re.split(r"[:;] ", sentence)))
        if longest > MAX_WORDS or count > MAX_LIST_WORDS:
            yield f"{count} words: {short}"
        plain = re.sub(r"`[^`]*`|\]\([^)]*\)", "code", sentence)
        for pattern, better in _FORBIDDEN:
            if match := pattern.search(plain):
                yield f"{match[0]!r} (write: {better}): {short}"


# ---- proselint -----------------------------------------------------------------------------------

#: Checks of proselint that apply to technical pages.
_PROSELINT: Final = (
    "archaism", "cliches", "hedging", "industrial_language", "lexical_illusions", "malapropisms",
    "misc", "mixed_metaphors", "mondegreens", "needless_variants", "nonwords", "oxymorons",
    "redundancy", "skunked_terms", "social_awareness", "spelling", "uncomparables", "weasel_words",
)
#: Checks left out, each with its reason.
PROSELINT_LEFT_OUT: Final = {
    "annotations": "tests/unit/test_style.py refuses left-over notes",
    "dates_times": "dates are ISO 8601",
    "psychology": "no page is about statistics of people",
    "restricted": "a list of a thousand words holds none of our terms",
    "terms": "names of animals and peoples do not occur",
    "typography": "quotation marks, 0x and ... are typed as in source text",
}


def proselint_complaints(parts: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield (line, complaint) of proselint about the paragraphs of one file."""
    numbers = itertools.count()
    plain = [
        re.sub(r"`+[^`]+`+|\]\([^)]*\)|\d[\d ]*|\w*_\w*", lambda _: f" jk{next(numbers)}§ ", part)
        for _, part in parts
    ]
    plain = [f"{part} jk{next(numbers)}§." for part in plain]     # no phrase spans two paragraphs
    ends = list(itertools.accumulate(len(part) + 2 for part in plain))
    checks = dict.fromkeys(_PROSELINT, True)
    content = "\n\n".join(plain)
    if not content.strip():
        return
    for found in LintFile("page", content).lint({"max_errors": 1000, "checks": checks}):
        result = found.check_result
        # proselint puts a line end before the text.
        line, part = parts[min(bisect.bisect_right(ends, result.span[0] - 1), len(parts) - 1)]
        short = part.strip() if len(part) < 60 else f"{part.strip()[:57]}..."
        yield line, f"{result.message} ({result.check_path}): {short}"


# ---- where text stands ---------------------------------------------------------------------------


def of_markdown(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of paragraphs, list items and table cells; no code."""
    text = re.sub(r"^---\n.*?\n---\n", "", text, flags=re.DOTALL)
    text = re.sub(
        r"^(```|~~~).*?^\1", lambda m: "\n" * m[0].count("\n"), text,
        flags=re.DOTALL | re.MULTILINE,
    )
    block: list[str] = []
    start = 0
    for number, line in enumerate([*text.split("\n"), ""], 1):
        table = line.lstrip().startswith("|")
        item = re.match(r"\s*(?:[-*]|\d+\.)\s+", line)
        if not line.strip() or table or item or line.startswith(("#", "    ", ":::")):
            if block:
                yield start, " ".join(block)
            block = []
        if table:
            for cell in line.strip().strip("|").split("|"):
                if len(cell) > 3:
                    yield number, cell.strip()
        elif item:
            block, start = [line[item.end():]], number
        elif line.strip() and not line.startswith(("#", ":::", "<", "![")):
            if not block:
                start = number
            block.append(line.strip())


def of_python(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of the paragraphs of public docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        name = getattr(node, "name", "")
        docstring = ast.get_docstring(node)
        if docstring is None or (name.startswith("_") and not name.startswith("__")):
            continue
        line = node.body[0].lineno
        for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?::\w+|[-*] ))", docstring):
            if "::" not in paragraph and ">>>" not in paragraph and "    " not in paragraph:
                yield line, paragraph


def of_comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of the comments of a Python module, neighbouring lines joined."""
    begun, last, parts = 0, -1, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        if re.match(r"#!|# (?:SPDX|type:|noqa|fmt:|mypy:|ruff:|-{4})|#.*# noqa", token.string):
            continue
        line, body = token.start[0], token.string.lstrip("#: ")
        whole = token.line.lstrip().startswith("#")
        if parts and whole and line == last + 1:
            parts.append(body)
        else:
            if parts:
                yield begun, " ".join(parts)
            begun, parts = line, [body]
        last = line if whole else -1
    if parts:
        yield begun, " ".join(parts)


_LOG_CALL: Final = re.compile(r"^(?:debug|info|warning|error|exception|critical|warn|echo)$")


def of_messages(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of strings in raised exceptions and calls of a log; values are X."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            arguments = node.exc.args
        elif isinstance(node, ast.Call) and _LOG_CALL.match(
            node.func.attr if isinstance(node.func, ast.Attribute) else ""
        ):
            arguments = node.args
        else:
            continue
        for argument in arguments:
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield argument.lineno, argument.value
            elif isinstance(argument, ast.JoinedStr):
                yield argument.lineno, "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "X"
                    for part in argument.values
                )


_MESSAGE_OPENER: Final = re.compile(
    r"(?:who|what|whoever|nobody|somebody|that)\b(?!.*\?$)", re.IGNORECASE
)


def message_complaints(text: str) -> Iterator[str]:
    """Yield what is wrong with a log line or an error text, which begins in lower case."""
    short = text if len(text) < 90 else text[:87] + "..."
    if match := _MESSAGE_OPENER.match(text):
        yield f"opens with {match[0]!r}: {short}"
    if words(text) > MAX_MESSAGE_WORDS:
        yield f"{words(text)} words: {short}"
    for pattern, better in _FORBIDDEN:
        if match := pattern.search(text):
            yield f"{match[0]!r} (write: {better}): {short}"


_TEST_NAME: Final = re.compile(r"^def (test_\w+)\(|^static void (\w+)\(void\)", re.MULTILINE)
_NAME_OPENER: Final = re.compile(r"^(?:test )?(?:who|what|whoever|nobody|that|one that)\b")


def name_complaints(name: str) -> Iterator[str]:
    """Yield what is wrong with the name of a test."""
    text = name.replace("_", " ")
    if match := _NAME_OPENER.match(text):
        yield f"opens with {match[0]!r}: {name}"
    for pattern, better in _FORBIDDEN:
        if match := pattern.search(text):
            yield f"{match[0]!r} (write: {better}): {name}"


def of_header(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of the comments of C; drawings are left out."""
    for match in re.finditer(r"/\*(.*?)\*/", text, re.DOTALL):
        line = text.count("\n", 0, match.start()) + 1
        body = re.sub(r"^\s*\*", "", match[1], flags=re.MULTILINE)
        for paragraph in re.split(r"\n\s*\n", body):
            if "SPDX" in paragraph or re.search(r"--|\|| {4}|___", paragraph):
                continue
            yield line, paragraph


_READERS: Final = {".md": of_markdown, ".py": of_python, ".h": of_header, ".c": of_header}


def files() -> list[str]:
    """Return the tracked files that people read."""
    listed = subprocess.run(
        ["git", "ls-files", "*.md", "*.h", "*.c", "*.py"], cwd=ROOT, check=True,
        capture_output=True, text=True,
    ).stdout.split()
    public = re.compile(r"^(?:penstock|client|config|daemon|core|sim|spark_bridge)/")
    return [
        name for name in listed
        if not name.startswith(_SKIPPED)
        and (name.endswith(".md") or (public.match(name) and not name.startswith("tests/")))
    ]


def of_file(path: Path) -> list[tuple[int, str]]:
    """Return (line, text) of the paragraphs of a file that a person reads."""
    return list(_READERS[path.suffix](path.read_text(encoding="utf-8")))


def check(name: str) -> list[str]:
    """Return the complaints about one file."""
    parts = of_file(ROOT / name)
    found = [(line, complaint) for line, part in parts for complaint in complaints(part)]
    found += proselint_complaints(parts)
    if name.endswith(".py"):
        text = (ROOT / name).read_text(encoding="utf-8")
        found += [(line, c) for line, part in of_comments(text) for c in complaints(part)]
        found += [(line, c) for line, part in of_messages(text) for c in message_complaints(part)]
    return [f"{name}:{line}: {complaint}" for line, complaint in sorted(found)]


def check_all_names() -> list[str]:
    """Return the complaints about the names of tests, and listed names that no test has."""
    listed = set(PENDING_NAMES.read_text(encoding="utf-8").split())
    found, seen = [], set()
    for name in test_files():
        text = (ROOT / name).read_text(encoding="utf-8")
        for match in _TEST_NAME.finditer(text):
            test = match[1] or match[2]
            seen.add(test)
            if test not in listed:
                line = text.count("\n", 0, match.start()) + 1
                found += [f"{name}:{line}: {complaint}" for complaint in name_complaints(test)]
    return found + [f"{PENDING_NAMES.name}: no test is named {name}" for name in listed - seen]


def test_files() -> list[str]:
    """Return the tracked files with tests."""
    return subprocess.run(
        ["git", "ls-files", "tests/**/test_*.py", "tests/native/test_*.c"], cwd=ROOT, check=True,
        capture_output=True, text=True,
    ).stdout.split()


def main(arguments: list[str]) -> int:
    pending = PENDING.read_text(encoding="utf-8").split() if PENDING.exists() else []
    if arguments == ["--count"]:
        for name in pending:
            print(f"{len(check(name)):5} {name}")
        return 0
    if arguments:
        found = [line for name in arguments for line in check(name)]
    else:
        found = [line for name in files() if name not in pending for line in check(name)]
        found += check_all_names()
        tracked = set(files())
        found += [f"{name}: is listed in {PENDING.name} and not there" for name in pending
                  if name not in tracked]
    print("\n".join(found) if found else "prose: no complaints")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
