# SPDX-License-Identifier: Apache-2.0
"""What a relay notes: places that survive a kill between any two stores, and damaged files."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any

import pytest

from penstock.client._relay import default_name, relay
from penstock.client._relay_state import CELLS, Cell, Point, RelayFiles
from penstock.core.errors import ConfigurationError, InvalidArgument

CELL_BYTES = 128


class Killed(Exception):
    """The process ends here."""



class Stores:
    """A layout that writes; the process is killed before its n-th store."""

    left = 0

    def __init__(self, layout: str) -> None:
        self._format = layout
        self.size = struct.calcsize(layout)

    def pack_into(self, *arguments: Any) -> None:
        if Stores.left == 0:
            raise Killed
        Stores.left -= 1
        struct.pack_into(self._format, *arguments)

    def unpack_from(self, *arguments: Any) -> Any:
        return struct.unpack_from(self._format, *arguments)


@pytest.mark.parametrize("stores", [0, 1, 2])
def test_a_killed_writer_leaves_the_place_before_or_the_new_one(
    stores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = Point(64, 96, 1, 0), Point(128, 160, 2, 3)
    memory: Any = bytearray(CELL_BYTES)
    cell = Cell(memory, 0)
    cell.write(old.source, old.target, old.ordinal, old.source_ordinal)
    monkeypatch.setattr("penstock.client._relay_state._NUMBER", Stores("=q"))
    monkeypatch.setattr("penstock.client._relay_state._POINT", Stores("=qqqq"))
    monkeypatch.setattr(Stores, "left", stores)
    if stores == 2:                     # the place, then which of the two counts
        cell.write(new.source, new.target, new.ordinal, new.source_ordinal)
        assert cell.read() == new
        return
    with pytest.raises(Killed):
        cell.write(new.source, new.target, new.ordinal, new.source_ordinal)
    assert cell.read() == old


def test_a_name_has_one_process(tmp_path: Path) -> None:
    files = RelayFiles(tmp_path, "r")
    with pytest.raises(ConfigurationError, match="another process runs the relay 'r'"):
        RelayFiles(tmp_path, "r")
    RelayFiles(tmp_path, "s").close(remove=True)
    files.close(remove=False)
    RelayFiles(tmp_path, "r").close(remove=True)
    assert not list((tmp_path / "relays").iterdir())


def test_the_next_process_reads_what_the_last_one_wrote(tmp_path: Path) -> None:
    files = RelayFiles(tmp_path, "r")
    cell = files.free_cell()
    assert cell is not None
    cell.write(64, 96, 1, 0)
    cell.intend(128)
    files.plain["legs"]["7"] = {"cell": cell.index}
    files.write()
    identity = files.plain["relay_id"]
    files.close(remove=False)
    again = RelayFiles(tmp_path, "r")
    assert again.plain["relay_id"] == identity
    assert again.cell(cell.index).read() == Point(64, 96, 1, 0)
    assert again.cell(cell.index).intent == 128
    other = again.free_cell()
    assert other is not None
    assert other.index != cell.index
    again.close(remove=True)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format": 1, "legs": {}}', "7"])
def test_a_damaged_file_is_that_of_a_new_relay(tmp_path: Path, text: str) -> None:
    (tmp_path / "relays").mkdir()
    (tmp_path / "relays" / "r.json").write_text(text)
    files = RelayFiles(tmp_path, "r")
    assert files.plain["legs"] == {}
    files.close(remove=True)


def test_cells_run_out(tmp_path: Path) -> None:
    files = RelayFiles(tmp_path, "r")
    files.plain["legs"] = {str(n): {"cell": n} for n in range(CELLS)}
    assert files.free_cell() is None
    assert isinstance(files._memory, mmap.mmap)
    files.close(remove=True)


def test_arguments_are_checked(tmp_path: Path) -> None:
    for arguments, words in (
        ({"name": "a/b"}, "a relay's name has"), ({"linger_s": 0}, "linger_s is above 0"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            relay("aeron:ipc", 1, "aeron:ipc", 2, directory=str(tmp_path), **arguments)
    with pytest.raises(InvalidArgument, match="must not drop"):
        relay("aeron:ipc", 1, "aeron:ipc?ps-policy=drop-newest", 2, directory=str(tmp_path))
    assert default_name("a", 1, "b", 2) != default_name("a", 1, "b", 3)
