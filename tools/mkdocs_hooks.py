# SPDX-License-Identifier: Apache-2.0
"""What the site needs beside its configuration: the decision records in the navigation, in their
order, without a list that somebody has to keep; and docstrings whose references read as words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):<code>~?")


def on_config(config: Any) -> Any:
    docs = Path(config["docs_dir"])
    records = sorted((docs / "decisions").glob("*.md"))
    config["nav"].append({"Decisions": [str(path.relative_to(docs)) for path in records]})
    return config


def on_page_content(html: str, **_page: Any) -> str:
    return _ROLE.sub("<code>", html)
