# SPDX-License-Identifier: Apache-2.0
"""The checker of prose and of commit messages finds what it is for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import check_commits  # noqa: E402
import prose  # noqa: E402


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("Who leaves the group is forgotten.", "opens with 'Who'"),
        ("It is late. What was lost is sent.", "opens with 'What'"),
        ("One that leaves is forgotten.", "opens with 'One that'"),
        ("How long the receiver waits.", "opens with 'How long'"),
        ("Where a new record goes.", "opens with 'Where'"),
        ("Of one receiver: its position.", "opens with 'Of one'"),
        ("The stream goes on.", "'goes on'"),
        ("The receiver lets go of it.", "'lets go'"),
        ("The receiver asks anew.", "'anew'"),
        ("The term is given back.", "'given back'"),
        (" ".join(["word"] * 26) + ".", "26 words"),
    ],
)
def test_a_hard_sentence_is_found(text: str, complaint: str) -> None:
    assert [c for c in prose.complaints(text) if complaint in c]


@pytest.mark.parametrize(
    "text",
    [
        "What is a term?",
        "That is the limit.",
        "The sender retransmits the range.",
        "Causes: " + "; ".join(["the receiver window binds the sender"] * 4) + ".",
        "`given_back` is the name of a field.",
    ],
)
def test_a_plain_sentence_passes(text: str) -> None:
    assert list(prose.complaints(text)) == []


def test_code_blocks_and_links_are_not_read() -> None:
    text = "The [record](0033-idle-terms-are-punched-out.md).\n\n```\nWho goes there\n```\n"
    assert [c for _, part in prose.of_markdown(text) for c in prose.complaints(part)] == []


def test_each_kind_of_file_is_read() -> None:
    assert list(prose.of_markdown("| Who waits | 1 |\n")) == [(1, "Who waits")]
    assert [part for _, part in prose.of_python('"""Return it."""\n')] == ["Return it."]
    assert [p.strip() for _, p in prose.of_header("/* Bytes. */\n")] == ["Bytes."]
    assert list(prose.of_comments("x = 1  # One.\n# Two\n# lines.\n")) == [
        (1, "One."), (2, "Two lines.")
    ]


def test_log_lines_and_error_texts_are_read() -> None:
    text = 'log.warning("nobody is in")\nraise E(f"who {x} is")\nraise E("the port is in use")\n'
    found = [c for _, part in prose.of_messages(text) for c in prose.message_complaints(part)]
    assert sorted(c.split(":")[0] for c in found) == [
        "'nobody' (write", "opens with 'nobody'", "opens with 'who'"
    ]


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("test_what_is_lost_is_requested", False),
        ("nobody_waits", False),
        ("test_the_stream_goes_on", False),
        ("test_the_sender_retransmits_the_range", True),
    ],
)
def test_names_of_tests_are_read(name: str, good: bool) -> None:
    assert (list(prose.name_complaints(name)) == []) == good


@pytest.mark.parametrize(
    ("text", "check"),
    [
        ("The daemon waits for ever.", "archaism"),
        ("The sender sends the the frame.", "lexical_illusions"),
        ("At the end of the day the window closes.", "cliches"),
        ("The very large file.", "weasel_words"),
    ],
)
def test_proselint_reads_each_paragraph(text: str, check: str) -> None:
    parts = [(1, "A plain paragraph."), (7, text), (9, "Another plain paragraph.")]
    found = list(prose.proselint_complaints(parts))
    assert {line for line, _ in found} == {7}
    assert any(check in complaint for _, complaint in found)


def test_proselint_reads_no_code_and_no_number() -> None:
    parts = [(1, "`very very` costs 1 174 or 1 131 bytes"), (2, "bytes"), (3, "`for ever`")]
    assert list(prose.proselint_complaints(parts)) == []


def test_every_check_of_proselint_is_used_or_left_out_with_a_reason() -> None:
    known = {check.path.partition(".")[0] for check in prose.CheckRegistry().checks}
    assert known <= {*prose._PROSELINT, *prose.PROSELINT_LEFT_OUT}
    assert not {*prose._PROSELINT} & {*prose.PROSELINT_LEFT_OUT}


def test_only_listed_files_have_complaints() -> None:
    assert prose.main([]) == 0


@pytest.mark.parametrize(
    ("subject", "body", "complaint"),
    [
        ("Added a check", "Because.", "not with an imperative"),
        ("Who left is forgotten", "Because.", "not with an imperative"),
        ("x" * 73, "Because.", "73 characters"),
        ("Add a check", "", "body is empty"),
    ],
)
def test_a_bad_commit_message_is_found(subject: str, body: str, complaint: str) -> None:
    assert [c for c in check_commits.complaints(subject, body) if complaint in c]


def test_a_good_commit_message_passes() -> None:
    assert check_commits.complaints("sim: renew the golden traces", "The core changed.") == []
