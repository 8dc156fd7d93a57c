# SPDX-License-Identifier: Apache-2.0
"""What the guide's pictures have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams.update({
    "svg.hashsalt": "penstock",         # the same run gives the same file
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "legend.frameon": False,
})

from matplotlib import pyplot as plt  # noqa: E402

BLUE, RED, YELLOW, NAVY, GREY = "#0b6e99", "#d1495b", "#edae49", "#30638e", "#8a8a8a"
GREEN = "#5aa05a"
COLOURS = (BLUE, RED, YELLOW, GREEN)


def save(figure: Any, path: Path, *, tight: bool = True) -> None:
    """Write the picture without a date, so that the file changes only with its content."""
    if tight:
        figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    print(path)
