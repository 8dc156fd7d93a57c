# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.settings import annotate, load
from penstock.config.settings._fields import FieldError
from penstock.config.settings.load import ConfigFileError, Problem
from penstock.config.settings.models import (
    ARRAYS,
    AgentsConfig,
    DaemonConfig,
    ImpairmentConfig,
    PublicationsConfig,
)

ROOT = Path(__file__).parents[3]


def problems_of(text: str) -> dict[str, Problem]:
    with pytest.raises(ConfigFileError) as caught:
        load.load_text(text, source="test.toml")
    assert "\n" not in str(caught.value)
    return {problem.key: problem for problem in caught.value.problems}


# ---- one source ----------------------------------------------------------------------------------


def test_the_annotated_file_is_the_defaults() -> None:
    assert load.load_file(load.DEFAULT_FILE) == DaemonConfig()


def test_the_annotated_file_has_every_key() -> None:
    text = annotate.annotated_toml()
    for table, values in DaemonConfig().to_dict().items():
        assert f"[{table}]" in text
        for key in values:
            assert f"\n{key} =" in text or f"\n# {key} =" in text


# ---- values --------------------------------------------------------------------------------------


def test_values_may_bring_their_unit() -> None:
    config = load.load_text(
        '[publications]\nterm_length_bytes = "64k"\nwindow_bytes = 4096\nlinger_ns = "250ms"\n'
        '[directory]\nmode = "0700"\n[sockets]\nsender_ports = [40000, 40100]\n'
        "[impairment]\nsend_loss_percent = 5\n[subscriptions]\ngroup_tag = -7\n"
    )
    assert config.publications.term_length_bytes == 65536
    assert config.publications.window_bytes == 4096
    assert config.publications.linger_ns == 250_000_000
    assert config.directory.mode == 0o700
    assert config.sockets.sender_ports == (40000, 40100)
    assert config.impairment.send_loss_percent == 5.0
    assert config.impairment.active
    assert config.subscriptions.group_tag == -7
    assert not DaemonConfig().impairment.active
    assert not attrs.evolve(ImpairmentConfig(), seed=9).active


def test_threading_is_decided_for_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0, 1})
    assert DaemonConfig().threading == "shared"
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0, 1, 2})
    assert DaemonConfig().threading == "dedicated"
    assert DaemonConfig(agents=AgentsConfig(threading="shared")).threading == "shared"


def test_models_check_what_programs_give_them() -> None:
    with pytest.raises(FieldError, match="mtu_bytes"):
        PublicationsConfig(mtu_bytes=1400)


# ---- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "key", "got", "expected"), [
    ('[publications]\nterm_length_bytes = "65k"', "publications.term_length_bytes", "'65k'",
     "a power of two"),
    ("[publications]\nmtu_bytes = true", "publications.mtu_bytes", "True", "a multiple of 32"),
    ('[timeouts]\nsetup_interval_ns = "5 s"', "timeouts.setup_interval_ns", "'5 s'", "a duration"),
    ("[timeouts]\nsetup_interval_ns = 0", "timeouts.setup_interval_ns", "0", "at least 1ns"),
    ('[agents]\nidle = "sleep"', "agents.idle", "'sleep'", '"park"'),
    ('[directory]\nmode = "0999"', "directory.mode", "'0999'", "octal"),
    ("[directory]\nmode = 770", "directory.mode", "770", "octal"),
    ('[directory]\npath = "relative"', "directory.path", "'relative'", "an absolute path"),
    ("[sockets]\nsender_ports = [9, 1]", "sockets.sender_ports", "[9, 1]", "low <= high"),
    ("[impairment]\nsend_loss_percent = 101", "impairment.send_loss_percent", "101", "0..100"),
    ('[metrics]\nlisten = "here"', "metrics.listen", "'here'", "host:port"),
    ("agents = 1", "agents", "1", "a table"),
    ("[publications]\nterm_lenght_bytes = 1", "publications.term_lenght_bytes", "",
     "did you mean term_length_bytes?"),
    ("[timeout]\nx = 1", "timeout", "", "did you mean timeouts?"),
    ("[[stream]]\nstreamid = 1", "stream[1].streamid", "", "did you mean stream_id?"),
    ("stream = 1", "stream", "1", "array of tables"),
    ('[[stream]]\nflow_control = "fastest"', "stream[1].flow_control", "'fastest'",
     "fastest is not a flow control: max, min"),
    ('[[stream]]\n[[stream]]\nflow_control = "min,t:soon"', "stream[2].flow_control",
     "'min,t:soon'", "not a duration"),
    ('[[stream]]\nflow_control = "nak,g:5"', "stream[1].flow_control", "'nak,g:5'",
     "nak follows no group"),
    ('[[stream]]\nrate = "1k,2k"', "stream[1].rate", "'1k,2k'", "states one rate twice"),
    ('[[stream]]\nrate = "fast"', "stream[1].rate", "'fast'", "a rate as in ps-rate="),
    ("[[stream]]\nrate = 5", "stream[1].rate", "5", "a rate as in ps-rate="),
    ('[[stream]]\ncongestion_control = "reno"', "stream[1].congestion_control", "'reno'", "cubic"),
    ("[[stream]]\nreceiver_window_bytes = -1", "stream[1].receiver_window_bytes", "-1", "bytes"),
    ('[[stream]]\nchannel = ""', "stream[1].channel", "''", "a pattern of a channel"),
    ('[publications]\nunicast_flow_control = "min"', "publications.unicast_flow_control", "'min'",
     "min chooses among receivers"),
    ('[publications]\nmulticast_flow_control = "max,t:1s"',
     "publications.multicast_flow_control", "'max,t:1s'", "max has no option except rrwm"),
    ("stream = [1]", "stream[1]", "1", "a table"),
    ("[agents]\nmax_gaps = 3", "agents.max_gaps", "3", "an integer in 4..16384"),
    ('[publications]\nwindow_bytes = "16m"', "publications.window_bytes", "16777216",
     "at most half"),
    ("[publications]\nwindow_bytes = 64", "publications.window_bytes", "64", "at least mtu_bytes"),
    ("[limits]\npublications = 100", "limits.publications", "100", "a multiple of 64"),
])
def test_a_mistake_is_named_by_key_got_and_expected(
    text: str, key: str, got: str, expected: str
) -> None:
    found = problems_of(text)
    assert list(found) == [key]
    assert found[key].got == got
    assert expected in found[key].expected
    assert str(found[key]).startswith(f"test.toml: {key}:")


def test_all_mistakes_are_reported_at_once() -> None:
    found = problems_of("[agents]\nmax_gaps = 0\nmax_gap = 1\n[sockets]\ngso = 1\n")
    assert set(found) == {"agents.max_gaps", "agents.max_gap", "sockets.gso"}


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    assert "No such file" in str(load.check_file(missing)[0])
    broken = tmp_path / "broken.toml"
    broken.write_text("[agents\n", encoding="utf-8")
    assert "is not TOML" in str(load.check_file(broken)[0])
    broken.write_text("a = " + "[" * 5000, encoding="utf-8")
    assert "is not TOML" in str(load.check_file(broken)[0])
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    assert "UTF-8" in str(load.check_file(binary)[0])
    assert load.check_file(load.DEFAULT_FILE) == ()


_VALUES = st.one_of(
    st.integers(-(2**65), 2**65), st.booleans(), st.floats(allow_nan=False), st.text(max_size=12),
    st.lists(st.integers(), max_size=3), st.sampled_from(["64k", "5s", "0660", "shared", ""]),
)


@given(st.data())
def test_any_value_is_accepted_or_a_config_file_error(data: st.DataObject) -> None:
    tables: dict[str, type | None] = {
        a.name: a.type for a in attrs.fields(DaemonConfig) if a.name not in ARRAYS
    }
    tables |= {f"[{name}]": kind for name, kind in ARRAYS.items()}
    table = data.draw(st.sampled_from(sorted(tables)))
    model = tables[table]
    assert model is not None
    key = data.draw(st.sampled_from([a.name for a in attrs.fields(model)]))
    value = data.draw(_VALUES)
    text = repr(value).lower() if not isinstance(value, str) else _toml_text(value)
    with contextlib.suppress(ConfigFileError):
        load.load_text(f"[{table}]\n{key} = {text}\n")


def _toml_text(value: str) -> str:
    return '"' + "".join(f"\\U{ord(c):08X}" for c in value if not 0xD800 <= ord(c) < 0xE000) + '"'
