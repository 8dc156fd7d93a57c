# SPDX-License-Identifier: Apache-2.0
"""Python mirrors of the core's enums, system counters and unions, against the C headers."""

from __future__ import annotations

import enum
import re
from pathlib import Path
from typing import Final

import attrs
import pytest

from penstock.core import driver_types as types
from penstock.core._lib import CORE
from penstock.core.driver_events import EVENTS, DriverEvent, read_event

SOURCES: Final = Path(__file__).parents[2] / "core"
CONSTANTS: Final = {
    name: int(value)
    for path in sorted(SOURCES.rglob("*.h"))
    for body in re.findall(r"enum(?: \w+)? \{(.*?)\}", path.read_text(encoding="utf-8"), re.S)
    for name, value in re.findall(r"\b(PS_\w+) = (-?\d+)", body)
}
PREFIXES: Final[dict[type[enum.IntEnum], str]] = {
    types.Threading: "PS_", types.Idle: "PS_IDLE_", types.Agent: "PS_AGENT_",
    types.EventType: "PS_EV_", types.ObjectKind: "PS_KIND_", types.ImageEnd: "PS_END_",
    types.JoinVerdict: "PS_JOIN_", types.TetherState: "PS_TETHER_", types.Mdc: "PS_MDC_",
    types.FlowControl: "PS_FC_", types.StrategyLate: "PS_FC_LATE_", types.Cause: "PS_CAUSE_",
    types.CongestionControl: "PS_CC_", types.LossRecovery: "PS_LOSS_",
    types.SystemCounter: "PS_SYS_", types.Policy: "PS_POLICY_", types.Isolation: "PS_READER_",
    types.Watermark: "PS_WATERMARK_",
}
# Names that differ: a channel says fc=nak; the header does not say END twice.
OTHER_NAMES: Final[dict[tuple[type[enum.IntEnum], str], str]] = {
    (types.FlowControl, "NAK"): "PS_FC_PRESSURE",
    (types.ImageEnd, "END_OF_STREAM"): "PS_END_OF_STREAM",
}


@pytest.mark.parametrize("mirror", PREFIXES, ids=lambda mirror: mirror.__name__)
def test_an_enum_has_the_values_of_the_header(mirror: type[enum.IntEnum]) -> None:
    prefix = PREFIXES[mirror]
    for member in mirror:
        name = OTHER_NAMES.get((mirror, member.name), prefix + member.name)
        if member.value == 0 and name not in CONSTANTS:
            assert member.name == "NONE", name  # zero stands for none in C
            continue
        assert CONSTANTS[name] == member.value, name


def test_every_tag_has_a_class_and_every_class_a_tag() -> None:
    tags = {name for name in CONSTANTS if name.startswith("PS_EV_")} - {"PS_EV_NONE"}
    assert {f"PS_EV_{tag.name}" for tag in EVENTS} == tags
    assert set(EVENTS) == set(types.EventType) - {types.EventType.NONE}


def members() -> dict[str, frozenset[str]]:
    """Member of the union -> its fields, as the compiler knows them."""
    return {
        name: frozenset(inner for inner, _ in field.type.fields)
        for name, field in CORE.ffi.typeof("ps_event_t").fields if field.type.kind == "struct"
    }


def test_an_event_has_the_fields_of_its_member_of_the_union() -> None:
    common = {field.name for field in attrs.fields(DriverEvent)}
    of = members()
    for tag, event in EVENTS.items():
        own = {field.name for field in attrs.fields(event)} - common
        assert own == of.get(event.member, frozenset()), tag
    assert {event.member for event in EVENTS.values()} - {""} == set(of)


def test_an_event_is_read_from_its_own_member() -> None:
    native = CORE.ffi.new("ps_event_t *")
    native.type, native.kind = types.EventType.LOSS, types.ObjectKind.IMAGE
    native.id, native.session_id, native.stream_id = 7, -3, 1001
    native.loss.bytes, native.loss.position, native.loss.gaps = 1408, 1 << 40, 2
    event = read_event(native, CORE)
    assert event == EVENTS[types.EventType.LOSS](
        kind=types.ObjectKind.IMAGE, id=7, session_id=-3, stream_id=1001, bytes=1408,
        position=1 << 40, gaps=2,
    )
