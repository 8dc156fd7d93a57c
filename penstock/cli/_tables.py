# SPDX-License-Identifier: Apache-2.0
"""Make tables that fit the terminal. If a table is wider than the terminal, the least important
columns are omitted, and the middle of long channels is replaced by an ellipsis. A pipe gets all
columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import attrs

from penstock.cli._records import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

#: Spaces between two columns of a table.
_GAP: Final = 2
_ELLIPSIS: Final = "…"


@attrs.frozen
class Column:
    """A column of a table."""

    name: str
    right: bool = False
    drop: int = 0
    """Order in which columns are left out on a narrow terminal, the largest first; 0: never."""
    shrink: int = 0
    """Width down to which the cells may be shortened in the middle; 0: not at all."""


def console(pipe_columns: int = 250) -> Console:
    """Return the console for tables. On a terminal, tables are as wide as the terminal. If standard
    output is not a terminal, for example a pipe, tables are ``pipe_columns`` characters wide.
    """
    from rich.console import Console

    made = Console()
    return made if made.is_terminal else Console(width=pipe_columns)


def shorten(text: str, width: int) -> str:
    """Return ``text`` in at most ``width`` characters. If the text is longer than ``width``, an
    ellipsis replaces its middle."""
    if len(text) <= width:
        return text
    if width < 2:
        return _ELLIPSIS[:width]
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}{_ELLIPSIS}{text[len(text) - tail :] if tail else ''}"


def fit(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int
) -> tuple[list[int], list[int]]:
    """Choose the columns of a table of ``width`` characters; return the indices and the widths of
    the chosen columns.

    A column with ``shrink`` may be narrower than its cells, down to a smallest width. If the
    columns do not fit even at their smallest widths, the function omits columns until the remaining
    columns fit: first the column with the largest ``drop``. The columns with ``shrink`` then share
    the remaining width.
    """
    natural = [
        max([len(column.name), *(len(row[i]) for row in rows)]) for i, column in enumerate(columns)
    ]
    least = [
        min(natural[i], max(column.shrink, len(column.name))) if column.shrink else natural[i]
        for i, column in enumerate(columns)
    ]
    shown = list(range(len(columns)))

    def needed(widths: list[int]) -> int:
        return sum(widths[i] for i in shown) + _GAP * (len(shown) - 1)

    while needed(least) > width and any(columns[i].drop for i in shown):
        shown.remove(max(shown, key=lambda i: columns[i].drop))
    widths = list(least)
    room = width - needed(least)
    for i in sorted(shown, key=lambda i: natural[i] - least[i]):
        more = min(natural[i] - least[i], max(0, room))
        widths[i] += more
        room -= more
    return shown, [widths[i] for i in shown]


def table(
    title: str, columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int
) -> Table:
    """Return a table of at most ``width`` characters. Columns whose ``drop`` is 0 are never
    omitted; if these columns need more than ``width`` characters, the table is wider.

    The table escapes unprintable characters in names, because other processes choose the names.
    """
    from rich.table import Table
    from rich.text import Text

    rows = [[printable(cell.encode()) for cell in row] for row in rows]
    shown, widths = fit(columns, rows, width)
    made = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False,
                 padding=(0, _GAP, 0, 0), header_style="dim")
    for i in shown:
        made.add_column(columns[i].name, justify="right" if columns[i].right else "left",
                        no_wrap=True, overflow="ellipsis")
    for row in rows:
        made.add_row(
            *(Text(shorten(row[i], w)) for i, w in zip(shown, widths, strict=True))
        )
    return made
