# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import attrs
import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.protocol import codec, control
from penstock.config.protocol.control import ControlError

_PLAIN: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=20)
    | st.binary(max_size=20) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
_BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(1, 2**31 - 1),
    bool: st.booleans(),
    str: st.text(min_size=1, max_size=30),
    bytes: st.binary(max_size=32),
    list[str]: st.lists(st.text(max_size=20), max_size=4),
    list[int]: st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4),
    dict[str, Any]: st.dictionaries(st.text(max_size=8), _PLAIN, max_size=5),
}
_I32S: st.SearchStrategy[Any] = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4)
_BY_FIELD: dict[tuple[type[Any], str], st.SearchStrategy[Any]] = {
    (control.AddPublication, "relay_path"): st.lists(st.integers(1, 2**64 - 1), max_size=8),
    (control.OpenGroup, "sessions"): _I32S,
    (control.OpenGroup, "starting"): st.sampled_from(["latest", "earliest"]),
    (control.WithholdStream, "action"): st.sampled_from(["withhold", "resume", "report"]),
    (control.Fetch, "credit"): st.integers(1, control.MAX_FETCH_CREDIT),
    (control.CutLog, "pieces"): st.integers(1, control.MAX_CUT_PIECES),
    (control.ReadTimes, "most"): st.integers(2, control.MAX_TIMES),
    (control.FetchCredit, "pieces"): st.integers(0, control.MAX_FETCH_CREDIT),
    **{(kind, "name"): st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1,
                               max_size=30)
       for kind in (control.OpenGroup, control.GetGroup, control.AcknowledgeGroup,
                    control.CloseGroup)},
    **{(kind, name): st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=30)
       for kind in (control.OpenGroup, control.GetGroup) for name in ("owner", "instead_of")},
}


@st.composite
def _acknowledgement(draw: Any) -> control.AcknowledgeGroup:
    rows = draw(st.lists(st.tuples(
        st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1),
        st.integers(0, 2**63 - 1),
    ), max_size=4))
    return control.AcknowledgeGroup(
        name="g", channel="aeron:ipc", stream_id=draw(st.integers(1, 9)),
        sessions=[r[0] for r in rows], initial_term_ids=[r[1] for r in rows],
        positions=[r[2] for r in rows],
    )


def _messages() -> st.SearchStrategy[Any]:
    kinds: list[st.SearchStrategy[Any]] = [_acknowledgement()]
    for kind in control.MESSAGE_TYPES.values():
        if kind is control.AcknowledgeGroup:
            continue
        attrs.resolve_types(kind)
        kinds.append(st.builds(kind, **{
            a.name: _BY_FIELD.get((kind, a.name), _BY_TYPE[a.type]) for a in attrs.fields(kind)
        }))
    return st.one_of(kinds)


@given(_messages(), st.integers(0, 2**63 - 1))
def test_what_is_encoded_decodes_as_the_same(message: Any, correlation: int) -> None:
    assert codec.decode(codec.encode(message, correlation)) == (correlation, message)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_control_error(data: bytes) -> None:
    try:
        codec.decode(data)
    except ControlError as error:
        assert "\n" not in str(error)


@given(_messages(), st.data())
def test_a_damaged_message_is_a_message_or_a_control_error(message: Any, data: Any) -> None:
    whole = bytearray(codec.encode(message, 1))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        codec.decode(bytes(whole[: data.draw(st.integers(0, len(whole)))]))
    except ControlError as error:
        assert "\n" not in str(error)


@given(st.sampled_from(sorted(control.MESSAGE_TYPES)),
       st.dictionaries(st.sampled_from(["channel", "stream_id", "registration_id", "x"]), _PLAIN))
def test_any_fields_are_a_message_or_a_control_error(name: str, fields: dict[str, Any]) -> None:
    try:
        codec.decode(msgpack.packb([control.PROTOCOL_VERSION, name, 1, fields]))
    except ControlError as error:
        assert str(error).startswith((name, "malformed"))


def refusal(frame: Any) -> str:
    with pytest.raises(ControlError) as caught:
        codec.decode(frame if isinstance(frame, bytes) else msgpack.packb(frame))
    return str(caught.value)


@pytest.mark.parametrize(("fields", "words"), [
    ({"channel": "x"}, "AddPublication: field stream_id is missing"),
    ({"channel": "x", "stream_id": True}, "field stream_id: expected int, got True"),
    ({"channel": "x", "stream_id": 1.0}, "field stream_id: expected int"),
    ({"channel": b"x", "stream_id": 1}, "field channel: expected str"),
    ({"channel": "", "stream_id": 1}, "channel"),
    ({"channel": "x" * 5000, "stream_id": 1}, "channel"),
    ({"channel": "x", "stream_id": 2**31}, "stream_id"),
    ({"channel": "x", "stream_id": 1, "colour": 1}, "unknown field 'colour'"),
    ([], "expected a map"),
])
def test_a_refusal_names_message_and_field(fields: Any, words: str) -> None:
    assert words in refusal([1, "AddPublication", 1, fields])


def test_frames_that_are_no_message() -> None:
    assert "array of 4" in refusal([1, "Done", 1])
    assert "version 2, expected 1" in refusal([2, "Done", 1, {}])
    assert "version True" in refusal([True, "Done", 1, {}])
    assert "unknown message type 'Dance'" in refusal([1, "Dance", 1, {}])
    assert "correlation id -1" in refusal([1, "Done", -1, {}])
    assert "malformed" in refusal(b"")
    assert "malformed" in refusal(b"\xc1")
    assert "bytes after its end" in refusal(codec.encode(control.GetStatus(), 1) + b"\x00")


@pytest.mark.parametrize("message", [
    control.Status(snapshot={"text": "x" * 70_000}),
    control.GroupReply(group={"text": "x" * 70_000}),
    control.GroupList(groups={"1": {"text": "x" * 70_000}}),
])
def test_answers_about_many_streams_may_be_large(message: control.Message) -> None:
    assert codec.decode(codec.encode(message, 1)) == (1, message)


def test_size_and_nesting_are_bounded() -> None:
    assert "at most 65536" in refusal(b"\x94" + b"\x00" * 70_000)
    assert "nested deeper" in refusal(b"\x91" * 60_000)
    assert "malformed" in refusal(b"\xdd\xff\xff\xff\xff")
    nested: dict[str, Any] = {}
    for _ in range(20):
        nested = {"a": nested}
    assert "nested deeper" in refusal(codec.encode(control.Status(snapshot=nested), 1))


def test_a_status_may_be_large() -> None:
    status = control.Status(snapshot={"streams": ["x" * 100] * 10_000})
    assert codec.decode(codec.encode(status, 1)) == (1, status)


def test_only_messages_are_encoded() -> None:
    with pytest.raises(ControlError, match="not a control message"):
        codec.encode("text", 1)  # type: ignore[arg-type]
    with pytest.raises(ControlError, match="correlation"):
        codec.encode(control.GetStatus(), -1)
    with pytest.raises(ControlError, match="cannot be encoded"):
        codec.encode(control.Status(snapshot={"x": object()}), 1)
