# SPDX-License-Identifier: Apache-2.0
"""Whether Spark can run here."""

from __future__ import annotations

import pytest

#: For ``pytestmark``; the fixture is in ``tests/conftest.py``.
needs_java = pytest.mark.usefixtures("java")
