# SPDX-License-Identifier: Apache-2.0
"""Whether Spark can run here."""

from __future__ import annotations

import shutil

import pytest

#: For ``pytestmark``.
needs_java = pytest.mark.skipif(
    shutil.which("java") is None,
    reason="NOT RUN: Spark needs Java 17 (Debian: default-jdk-headless)",
)
