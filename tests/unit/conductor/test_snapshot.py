# SPDX-License-Identifier: Apache-2.0
"""Readers outside the conductor get a frozen snapshot of its state, and nothing else."""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from conductor_rig import Rig
from group_rig import GroupRig

from penstock.daemon.conductor.snapshot import Snapshot

ROOT = Path(__file__).parents[3]
PACKAGES = ("penstock", "client", "config", "daemon", "sim", "spark_bridge")
CONDUCTOR = ROOT / "daemon" / "conductor"
PRIVATE = ("_state", "state", "world")


def reads_of_state(tree: ast.AST) -> Iterator[int]:
    """Lines that read the state of something that is called conductor."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in PRIVATE:
            owner = node.value
            called = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            if called.strip("_") in ("conductor", "Conductor"):
                yield node.lineno


def test_only_the_conductor_reads_its_state() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))
        if CONDUCTOR not in path.parents
        for line in reads_of_state(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "text", ["host.conductor._state.images", "self._conductor.world", "conductor.state"]
)
def test_a_read_of_the_state_is_found(text: str) -> None:
    assert list(reads_of_state(ast.parse(text))) == [1]


def values(value: Any) -> Iterator[Any]:
    """Every value that a snapshot holds, at any depth."""
    yield value
    if attrs.has(type(value)):
        for field in attrs.fields(type(value)):
            yield from values(getattr(value, field.name))
    elif isinstance(value, tuple | frozenset):
        for item in value:
            yield from values(item)


def everything() -> Snapshot:
    """A snapshot of a conductor that has an object of every kind."""
    rig = GroupRig()
    client = rig.client("reader")
    rig.pub(client, "aeron:udp?endpoint=10.0.0.7:40456")
    rig.pub(client, "aeron:ipc")
    rig.sub(client, "aeron:ipc")
    rig.open()
    rig.setup(rig.endpoint())
    return rig.conductor.snapshot()


def test_a_snapshot_shows_every_object() -> None:
    found = everything()
    assert [client.name for client in found.clients if not client.group_id] == ["reader"]
    assert {p.is_ipc for p in found.publications} == {True, False}
    assert found.images
    assert found.subscriptions
    assert {endpoint.direction for endpoint in found.endpoints} == {"send", "receive"}
    assert found.groups[0].logs
    assert 0 < found.storage_used_bytes <= found.storage_budget_bytes


def test_a_snapshot_cannot_change_at_any_depth() -> None:
    plain = (int, float, str, bytes, enum.Enum, type(None), tuple, frozenset)
    for value in values(everything()):
        if attrs.has(type(value)):
            assert type(value).__setattr__ is not object.__setattr__, type(value)
            field = attrs.fields(type(value))[0].name
            with pytest.raises(attrs.exceptions.FrozenInstanceError):
                setattr(value, field, None)
        else:
            assert isinstance(value, plain), value


def test_a_snapshot_keeps_what_it_showed() -> None:
    rig = Rig()
    client = rig.client()
    rig.pub(client, "aeron:ipc")
    before = rig.conductor.snapshot()
    rig.pub(client, "aeron:udp?endpoint=10.0.0.7:40456")
    assert len(before.publications) == 1
    assert before.clients[0].publications == 1
    assert len(rig.conductor.snapshot().publications) == 2
