# SPDX-License-Identifier: Apache-2.0
"""What the site needs beside its configuration: the decision records in the navigation, in their
order, without a list that somebody has to keep; docstrings whose references read as words; and a
search that needs no internet, also in pages that were opened as files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.utils import get_relative_url

_ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):<code>~?")


#: Script that the theme loads for its search in files, and ours instead.
_SHIM = "https://unpkg.com/iframe-worker/shim"
_OWN_SHIM = "javascripts/frame-worker.js"


def on_config(config: Any) -> Any:
    docs = Path(config["docs_dir"])
    records = sorted((docs / "decisions").glob("*.md"))
    config["nav"].append({"Decisions": [str(path.relative_to(docs)) for path in records]})
    return config


def on_page_markdown(markdown: str, page: Any, **_site: Any) -> str:
    if page.file.src_uri.startswith("decisions/"):      # below the guide in results of the search
        page.meta["search"] = {"boost": 0.2}
    return markdown


def on_page_content(html: str, **_page: Any) -> str:
    return _ROLE.sub("<code>", html)


def on_post_page(output: str, page: Any, **_site: Any) -> str:
    return output.replace(_SHIM, get_relative_url(_OWN_SHIM, page.url))


def on_post_template(output_content: str, template_name: str, **_site: Any) -> str:
    return output_content.replace(_SHIM, f"/{_OWN_SHIM}")
