# SPDX-License-Identifier: Apache-2.0
"""Parts of client and command line that need neither daemon nor shared memory."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.cli import main
from penstock.cli._common import parse_count, parse_rate
from penstock.cli._records import Digest, generated, read_lines, read_records, writer
from penstock.cli.daemon import parse_impairment
from penstock.cli.ping import summary
from penstock.cli.pub import _paced
from penstock.client._directory import daemon_directory
from penstock.client._offer import Offer, offer_code
from penstock.core import errors


def test_the_directory_is_the_argument_then_the_environment_then_the_users() -> None:
    env = {"PENSTOCK_DIR": "/a/b", "USER": "joe"}
    assert daemon_directory("/x", environ=env) == Path("/x")
    assert daemon_directory(environ=env) == Path("/a/b")
    assert daemon_directory(environ={"USER": "joe"}) == Path("/dev/shm/penstock-joe")
    assert daemon_directory("relative", environ={}).is_absolute()
    with pytest.raises(errors.InvalidArgument, match="too long"):
        daemon_directory("/" + "x" * 100, environ={})


def test_offer_values_are_aerons_and_ours() -> None:
    assert [int(code) for code in Offer] == [-1, -2, -3, -4, -5, *range(-100, -107, -1)]
    assert offer_code(-2) is Offer.BACK_PRESSURED
    assert offer_code(-6) is None
    assert offer_code(64) is None


def test_every_native_code_has_a_typed_error() -> None:
    assert isinstance(errors.native_error(errors.E_FORKED), errors.ForkedError)
    assert isinstance(errors.native_error(errors.E_NO_SPACE, "full"), errors.StorageError)
    refused = errors.native_error(errors.E_ADDRESS_IN_USE, "port 1", operation="bind")
    assert isinstance(refused, errors.ChannelRefused)
    assert (refused.code, str(refused)) == ("address_in_use", "bind: port 1")
    system = errors.native_error(errors.E_SYSTEM)
    assert isinstance(system, errors.NativeError)
    assert system.native_code == errors.E_SYSTEM


def test_the_front_door_is_light() -> None:
    code = (
        "import sys, penstock; heavy = {'zmq', 'trio', 'numpy', 'rich', 'penstock._core'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert shown.stdout.strip() == b"[]"


@pytest.mark.parametrize(("missing", "code", "words"), [
    ("pyspark", "from penstock.spark_bridge import register; register(None)",
     "penstock.spark_bridge needs pyspark: pip install 'penstock[spark]'"),
    ("numpy", "from penstock.client import _message; _message._import('numpy', 'columns need')",
     "columns need the package numpy: run 'pip install numpy', or install 'penstock[arrow]'"),
])
def test_a_missing_extra_is_named(missing: str, code: str, words: str) -> None:
    shown = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.modules[{missing!r}] = None; {code}"],
        capture_output=True, text=True, check=False,
    )
    assert shown.stderr.endswith(f"{words}\n")


def test_every_public_name_is_there() -> None:
    for name in penstock.__all__:
        assert getattr(penstock, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        _ = penstock.nonsense


@given(st.lists(st.binary(max_size=300)), st.integers(min_value=1, max_value=64))
def test_records_survive_any_chunking(messages: list[bytes], chunk: int) -> None:
    target = io.BytesIO()
    write = writer(target, length_prefixed=True)
    for message in messages:
        write(message)
    source = _Trickle(target.getvalue(), chunk)
    assert [m for group in read_records(source) for m in group] == messages


@given(st.lists(st.binary(max_size=50).filter(lambda m: b"\n" not in m)), st.integers(1, 9))
def test_lines_survive_any_chunking(lines: list[bytes], chunk: int) -> None:
    target = io.BytesIO()
    write = writer(target, length_prefixed=False)
    for line in lines:
        write(line)
    assert [m for g in read_lines(_Trickle(target.getvalue(), chunk)) for m in g] == lines


def test_an_unfinished_line_counts_and_an_unfinished_record_does_not() -> None:
    assert list(read_lines(io.BytesIO(b"a\nb"))) == [[b"a"], [b"b"]]
    with pytest.raises(errors.PenstockError, match="ends inside a record"):
        list(read_records(io.BytesIO(b"\x05\x00\x00\x00abc")))
    with pytest.raises(errors.PenstockError, match="at byte 5"):
        list(read_records(io.BytesIO(b"\x01\x00\x00\x00a" + b"text, not records")))


class _Trickle(io.BytesIO):
    """Gives a few bytes at a time."""

    def __init__(self, data: bytes, chunk: int) -> None:
        super().__init__(data)
        self._chunk = chunk

    def read1(self, size: int | None = -1, /) -> bytes:
        return self.read(self._chunk)


def test_generated_messages_differ_and_have_the_size() -> None:
    for size in (0, 3, 8, 1000):
        messages = [m for group in generated(300, size, group=7) for m in group]
        assert [len(m) for m in messages] == [size] * 300
        assert size < 8 or len(set(messages)) == 300


def test_the_digest_sees_message_bounds() -> None:
    one, two = Digest(), Digest()
    one.add(b"ab")
    two.add(b"a")
    two.add(b"b")
    assert one.hexdigest() != two.hexdigest()


def test_pacing_loses_nothing() -> None:
    groups = [[b"%d" % i for i in range(first, first + 300)] for first in (0, 300)]
    for rate in (None, 1e7):
        paced = list(_paced(groups, rate))
        assert [m for group in paced for m in group] == [m for group in groups for m in group]
        assert all(0 < len(group) <= 256 for group in paced)


def test_quantities_have_units() -> None:
    assert [parse_rate(t) for t in ("5000", "5k/s", "1.5M")] == [5000, 5000, 1.5e6]
    assert [parse_count(t) for t in ("0", "10k", "2M")] == [0, 10_000, 2_000_000]
    for text in ("", "x", "-1", "5 apples", "0"):
        with pytest.raises(click.BadParameter):
            parse_rate(text)
    for text in ("", "x", "-1", "1.5", "5/s"):
        with pytest.raises(click.BadParameter):
            parse_count(text)


def test_impairments_are_read_from_words() -> None:
    found = parse_impairment("loss=5%, delay=10ms,seed=9")
    assert (found.send_loss_percent, found.recv_loss_percent, found.seed) == (5.0, 5.0, 9)
    assert found.delay_ns == 10_000_000
    assert parse_impairment("recv-loss=0.5").send_loss_percent == 0
    for words in ("loss", "nonsense=1", "loss=much", "loss=101%", "delay=-1ms"):
        with pytest.raises(errors.ConfigurationError):
            parse_impairment(words)


def test_a_summary_of_pings_has_percentiles() -> None:
    result = summary([1000 * n for n in range(1, 101)])
    assert result["count"] == 100
    assert result["microseconds"]["min"] == 1
    assert result["microseconds"]["p50"] == 51
    assert result["microseconds"]["max"] == 100
    assert summary([])["count"] == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["pub", "aeron:ipc", "1", "--dir", "/nowhere/at/all", "--connect-timeout", "0.1"],
            "no daemon is running in /nowhere",
        ),
        (["sub", "aeron:ipc", "x"], "'x' is not a valid stream id"),
        (["stat", "--once", "--dir", "/nowhere/at/all"], "no daemon is running in /nowhere"),
        (["pub", "aeron:ipc", "1", "/nowhere/file"], "/nowhere/file"),
        (["daemon", "--impair", "sunshine=1"], "sunshine"),
        (["daemon", "--config", "/nowhere/penstock.toml"], "/nowhere/penstock.toml"),
        (["config", "check", "/nowhere/penstock.toml"], "/nowhere/penstock.toml"),
        (["frobnicate"], "No such command"),
    ],
)
def test_trouble_is_one_line_and_status_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("penstock: ")
    assert shown.err.count("\n") == 1
    assert says in shown.err


def test_config_check_accepts_the_default_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "default"]) == 0
    file = tmp_path / "penstock.toml"
    file.write_text(capsys.readouterr().out)
    assert main(["config", "check", str(file)]) == 0
