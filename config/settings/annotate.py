# SPDX-License-Identifier: Apache-2.0
"""Write the annotated configuration file and the reference page of the configuration, from the
classes that the daemon itself uses."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

import attrs

from penstock.config.settings._fields import description
from penstock.config.settings.models import ARRAYS, DaemonConfig

_HEAD = """\
# SPDX-License-Identifier: Apache-2.0
#
# Configuration of the penstock daemon: every key, at its default.
#
# The name of a key ends in its unit. A plain number is in this unit; a text may state another
# unit ("64k", "16m", "100ms", "5s"). Parameters of a channel take precedence over this file.
# Check a file with: penstock config check FILE
"""


def _tables() -> Iterator[tuple[str, Any]]:
    config = DaemonConfig()
    for attribute in attrs.fields(DaemonConfig):
        if attribute.name not in ARRAYS:
            yield attribute.name, getattr(config, attribute.name)


def annotated_toml() -> str:
    """Return the text of ``penstock.toml``."""
    parts = [_HEAD]
    for name, table in _tables():
        parts.append(f"\n[{name}]\n{_comment(_summary(table))}")
        for attribute in attrs.fields(type(table)):
            about = description(attribute)
            value = getattr(table, attribute.name)
            parts.append("\n" + _comment(about.doc) + _comment(f"When to change: {about.change}"))
            if value is None:
                parts.append(f"# {attribute.name} =          # {about.expected}; not set\n")
            else:
                parts.append(f"{attribute.name} = {about.write(value)}\n")
    for name, kind in ARRAYS.items():
        rule = kind()
        parts.append(f"\n# [[{name}]]\n{_comment(_summary(rule))}")
        for attribute in attrs.fields(kind):
            about = description(attribute)
            value = getattr(rule, attribute.name)
            shown = f"# {attribute.name} = {'' if value is None else about.write(value)}".rstrip()
            parts.append("\n" + _comment(about.doc) + shown + "\n")
    return "".join(parts)


def reference_markdown() -> str:
    """Return the reference page, with a table of keys for each table of the configuration file."""
    parts = [
        "# Configuration reference\n\n`tools/reference.py` writes this page from the models in "
        "`config/settings/models.py`. The file `config/penstock.toml` has the same content as "
        "an annotated configuration.\n\nThe name of a key ends in the unit of its value. A plain "
        "number has the unit of the key's name; a text may state another unit (`\"64k\"`, "
        "`\"5s\"`). "
        "Parameters of a channel take precedence over this configuration.\n"
    ]
    for name, table in _tables():
        parts.append(f"\n## [{name}]\n\n{_summary(table)}\n\n| key | default | accepted | what "
                     "it does | when to change it |\n|---|---|---|---|---|\n")
        for attribute in attrs.fields(type(table)):
            about = description(attribute)
            value = getattr(table, attribute.name)
            shown = "not set" if value is None else f"`{about.write(value)}`"
            cells = (f"`{attribute.name}`", shown, about.expected, about.doc, about.change)
            parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
    for name, kind in ARRAYS.items():
        rule = kind()
        parts.append(f"\n## [[{name}]]\n\n{_summary(rule)}\n\n| key | default | accepted | what "
                     "it does | when to set it |\n|---|---|---|---|---|\n")
        for attribute in attrs.fields(kind):
            about = description(attribute)
            value = getattr(rule, attribute.name)
            shown = "not set" if value is None else f"`{about.write(value)}`"
            cells = (f"`{attribute.name}`", shown, about.expected, about.doc, about.change)
            parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
    return "".join(parts)


def _summary(table: Any) -> str:
    return " ".join((type(table).__doc__ or "").split())


def _comment(text: str) -> str:
    return textwrap.fill(
        text, width=98, initial_indent="# ", subsequent_indent="# ",
        break_long_words=False, break_on_hyphens=False,
    ) + "\n"
