# SPDX-License-Identifier: Apache-2.0
"""The scenarios that come with penstock: ``scenarios/*.toml`` beside this file."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.core.errors import ConfigurationError

_DIRECTORY: Final = Path(__file__).parent / "scenarios"


def names() -> list[str]:
    return sorted(path.stem for path in _DIRECTORY.glob("*.toml"))


def path_of(name: str) -> Path:
    """Return the file of a scenario. Raise ConfigurationError if no scenario has that name."""
    if name not in names():
        raise ConfigurationError(
            f"{name}: there is no such file and no such scenario; scenarios: {', '.join(names())}"
        )
    return _DIRECTORY / f"{name}.toml"
