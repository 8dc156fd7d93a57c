# SPDX-License-Identifier: Apache-2.0
"""Tests that a machine cannot run: said loudly by their reason, and a failure under ``CI=true``,
where whatever they need must be."""

from __future__ import annotations

import importlib
import os
import shutil
from typing import Any, NoReturn

import pytest


def not_run(reason: str) -> NoReturn:
    """Ends the test, or what a fixture was to set up for tests."""
    text = f"NOT RUN: {reason}"
    if os.environ.get("CI") == "true":
        pytest.fail(text, pytrace=False)
    pytest.skip(text)


def need_root(what: str) -> None:
    """``what`` the test does, such as ``network namespaces``."""
    if os.geteuid() != 0:
        not_run(f"{what} need root")


def need_command(name: str, package: str) -> None:
    """``package`` is Debian's."""
    if shutil.which(name) is None:
        not_run(f"the command {name} is missing (Debian: {package})")


def need_java() -> None:
    need_command("java", "default-jdk-headless, for Spark")


def module(name: str) -> Any:
    """An optional dependency, or an extension that may not have been built."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        not_run(f"{name}: {error}")
