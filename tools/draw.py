# SPDX-License-Identifier: Apache-2.0
"""Draw sentences for a fresh reader, or questions for a newcomer, by a commit.

The seed is the first eight hexadecimal digits of HEAD, so that no author chooses the sample.

    tools/draw.py sentences             70 sentences of docs, headers, public docstrings, logs
                                        and errors
    tools/draw.py questions             12 of the questions in tools/questions.toml
    tools/draw.py sentences 0a1b2c3d    the same of another seed
    tools/draw.py questions --answers   with the answers of record
"""

from __future__ import annotations

import argparse
import random
import subprocess
import tomllib
from typing import Final

import prose

SENTENCES: Final = 70
QUESTIONS: Final = 12
#: A shorter one is a label or a cell, which needs its page to be read.
LEAST_WORDS: Final = 6


def head() -> str:
    """Return the first eight hexadecimal digits of HEAD."""
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=prose.ROOT, check=True, capture_output=True, text=True
    )
    return done.stdout[:8]


def all_sentences() -> list[tuple[str, int, str]]:
    """Return (file, line, sentence) of all text that people read, without decision records, the
    dumps of docs/capture.md and the comments of .c files."""
    found = []
    for name in prose.files():
        if name == "docs/capture.md" or name.endswith(".c"):
            continue
        path = prose.ROOT / name
        parts = prose.of_file(path)
        if name.endswith(".py"):
            parts += prose.of_messages(path.read_text(encoding="utf-8"))
        for line, part in parts:
            found += [
                (name, line, sentence) for sentence in prose.sentences(part)
                if prose.words(sentence) >= LEAST_WORDS
            ]
    return found


def questions() -> list[dict[str, str]]:
    """Return the questions of record with their answers."""
    text = (prose.ROOT / "tools" / "questions.toml").read_text(encoding="utf-8")
    listed: list[dict[str, str]] = tomllib.loads(text)["question"]
    return listed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["sentences", "questions"])
    parser.add_argument("seed", nargs="?", default=head(), help="hexadecimal; default: HEAD")
    parser.add_argument("--answers", action="store_true", help="print the answers of record")
    options = parser.parse_args()
    rng = random.Random(int(options.seed, 16))
    print(f"seed {options.seed}")
    if options.what == "sentences":
        for number, (name, line, text) in enumerate(rng.sample(all_sentences(), SENTENCES), 1):
            print(f"{number:2}. {name}:{line}: {text}")
        return
    for number, question in enumerate(rng.sample(questions(), QUESTIONS), 1):
        print(f"{number:2}. {question['ask']}")
        if options.answers:
            print(f"    {question['answer']}")


if __name__ == "__main__":
    main()
