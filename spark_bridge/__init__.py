# SPDX-License-Identifier: Apache-2.0
"""The data source ``penstock``, with which Spark reads and writes streams.

Needs the extra ``spark``. If the wheel of penstock is installed, Spark finds the source
``format("penstock")`` by itself. Without an installed wheel, first register the source in the Spark
session with :func:`register`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.spark_bridge._committed import Committed, committed
    from penstock.spark_bridge._locality import read_local
    from penstock.spark_bridge._publish import publish
    from penstock.spark_bridge._settings import register, tuned_settings
    from penstock.spark_bridge._source import DefaultSource

__all__ = [
    "Committed",
    "DefaultSource",
    "committed",
    "publish",
    "read_local",
    "register",
    "tuned_settings",
]

# The module of each public name: PySpark is imported only when one of them is used.
_HOMES = {
    "Committed": "_committed",
    "DefaultSource": "_source",
    "committed": "_committed",
    "publish": "_publish",
    "read_local": "_locality",
    "register": "_settings",
    "tuned_settings": "_settings",
}

_EXTRA = frozenset({"numpy", "pyarrow", "pyspark"})


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{__name__}.{home}"), name)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRA:
            raise
        raise ModuleNotFoundError(
            f"penstock.spark_bridge needs {package}: pip install 'penstock[spark]'", name=package
        ) from None
