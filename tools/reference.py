# SPDX-License-Identifier: Apache-2.0
"""Write the pages and files that repeat tables of the code: docs/reference.md (channel parameters,
metrics, events, status), docs/configuration.md and config/penstock.toml.

    python tools/reference.py            write them
    python tools/reference.py --check    exit with 1 and name the files that differ
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
from prometheus_client.core import Metric

from penstock.config import uri
from penstock.config.settings._fields import description
from penstock.config.settings.annotate import annotated_toml, reference_markdown
from penstock.config.settings.models import DaemonConfig
from penstock.config.uri.meanings import MEANINGS
from penstock.core.pressure import NO_SAMPLE
from penstock.daemon.observe.event_table import EVENTS, TRACE_ONLY
from penstock.daemon.observe.exposition import Family
from penstock.daemon.observe.metrics import families
from penstock.daemon.observe.status import DaemonStatus, scheduler_status
from penstock.daemon.observe.status_table import KEYS, rows

ROOT = Path(__file__).parents[1]
DAEMON = ROOT / "daemon"

_HEAD = """\
# Reference of names

`tools/reference.py` writes this page from the tables in the code. The page lists every channel
parameter, every metric, every event and every status key of the daemon. Other pages list the
[keys of the configuration file](configuration.md), the [offer codes](offer-codes.md), the
[commands](command-line.md) and the [Python API](api.md).
"""


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def accepted(key: str) -> str:
    """Return the accepted values of a parameter, as its reader states them in an error."""
    try:
        uri.parse(f"aeron:udp?{key}=\\")
    except uri.ChannelError as error:
        return error.accepted
    return "text"


def default_of(setting: str) -> str:
    """Return a configuration key with its default value. Raise AttributeError for a wrong key."""
    name, key = setting.split(".")
    table = getattr(DaemonConfig(), name)
    value = getattr(table, key)
    about = description(getattr(attrs.fields(type(table)), key))
    shown = "not set" if value is None else about.write(value)
    return f"`{setting}` ({shown})"


def channel_parameters() -> str:
    parts = [
        "\n## Channel parameters\n\nIn the table, P stands for publication and S for "
        "subscription. [Channels](channels.md) explains the forms of a channel.\nIf a channel "
        "does not state a parameter, the daemon uses the value of the configuration key in the "
        "table. The default of the key is in parentheses.\n\n",
        _row("key", "on", "accepted", "meaning", "configuration key"), "|---|---|---|---|---|\n",
    ]
    for key in uri.PARAMETERS:
        about = MEANINGS[key]
        setting = default_of(about.setting) if about.setting else ""
        values = about.accepted or accepted(key)
        parts.append(_row(f"`{key}`", about.on, values, about.text, setting))
    parts.append("\nThe daemon refuses channels with the following parameters, and names the "
                 "parameter:\n\n")
    parts += [_row("key", "reason"), "|---|---|\n"]
    parts += [_row(f"`{key}`", reason) for key, reason in sorted(uri.REFUSED.items())]
    return "".join(parts)


def metric_families() -> list[Metric | Family]:
    """Return every family of a scrape; none has a sample of a stream."""
    status = DaemonStatus(
        version="", pid=0, directory="", daemon_id=0, epoch=0, threading="", uptime_s=0.0,
        storage_budget_bytes=0, storage_used_bytes=0, malformed_messages=0, duty_cycles={},
        clients=[], publications=[], images=[], subscriptions=[], endpoints=[], groups=[],
        groups_expired=0, scheduler=scheduler_status(NO_SAMPLE, []),
    )
    return families(status)


def metrics() -> str:
    parts = [
        "\n## Metrics\n\nThe daemon serves metrics to Prometheus ([how](operating.md#metrics)). "
        "The name of a metric that is a counter ends in `_total`.\n\n",
        _row("metric", "type", "labels", "meaning"), "|---|---|---|---|\n",
    ]
    for family in metric_families():
        name = family.name + ("_total" if family.type == "counter" else "")
        names = getattr(family, "_labelnames", ())
        labels = ", ".join(f"`{label}`" for label in names)
        parts.append(_row(f"`{name}`", family.type, labels, family.documentation))
    return "".join(parts)


def _fields(call: ast.Call, scope: ast.AST) -> list[str]:
    names = []
    for keyword in call.keywords:
        if keyword.arg is not None:
            names.append(keyword.arg)
            continue
        wanted = ast.unparse(keyword.value)     # **fields: a dict displayed in the same function
        for node in ast.walk(scope):
            if (
                isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)
                and ast.unparse(node.targets[0]) == wanted
            ):
                names += [str(ast.literal_eval(key)) for key in node.value.keys if key]
    return names


def _calls(tree: ast.AST) -> Iterator[tuple[ast.AST, ast.Call]]:
    for scope in ast.walk(tree):
        if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for node in ast.walk(scope):
                if (
                    isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
                    and node.func.attr == "event" and node.args
                ):
                    yield scope, node


def notified() -> dict[str, list[str]]:
    """Return the events of the conductor's calls, and the fields that the calls state."""
    found: dict[str, list[str]] = {}
    for path in sorted((DAEMON / "conductor").rglob("*.py")):
        for scope, call in _calls(ast.parse(path.read_text(encoding="utf-8"))):
            name = call.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                names = [name.value]
            elif isinstance(name, ast.JoinedStr) and ast.unparse(name) == "f'group_{reason}'":
                names = ["group_closed", "group_expired"]
            else:
                raise SystemExit(f"{path}: {ast.unparse(name)} is an event without a constant name")
            for each in names:
                fields = found.setdefault(each, [])
                fields += [field for field in _fields(call, scope) if field not in fields]
    return found


def events() -> str:
    fields = notified()
    parts = [
        "\n## Events\n\nThe daemon publishes the following events on a ZeroMQ socket and writes "
        "them to its trace ([how](operating.md#events)).\n\n",
        _row("event", "fields", "meaning"), "|---|---|---|\n",
    ]
    for name, words in EVENTS.items():
        shown = ", ".join(f"`{field}`" for field in fields.get(name, []))
        parts.append(_row(f"`{name}`", shown, words))
    parts.append("\nOnly a [trace](operating.md#traces) contains these:\n\n")
    parts += [_row("event", "meaning"), "|---|---|\n"]
    parts += [_row(f"`{name}`", words) for name, words in TRACE_ONLY.items()]
    return "".join(parts)


def status() -> str:
    parts = [
        "\n## Status\n\n`client.status()` returns these keys, and `penstock stat --once --json` "
        "prints them. `GET /flows/{id}` returns the keys of one publication. Positions, windows "
        "and lengths are in bytes. Keys that end in `_ns` are times in nanoseconds.\n",
    ]
    for title, kind in KEYS:
        parts += [f"\n### Keys of {title}\n\n", _row("key", "meaning"), "|---|---|\n"]
        parts += [_row(f"`{key}`", meaning) for key, meaning in rows(kind)]
    return "".join(parts)


def reference() -> str:
    return _HEAD + channel_parameters() + metrics() + events() + status()


def pages() -> dict[Path, str]:
    """Return each generated file with its text."""
    return {
        ROOT / "docs" / "reference.md": reference(),
        ROOT / "docs" / "configuration.md": reference_markdown(),
        ROOT / "config" / "penstock.toml": annotated_toml(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; compare")
    only_check = parser.parse_args().check
    differing = [
        path for path, text in pages().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    for path in differing:
        print(path.relative_to(ROOT))
        if not only_check:
            path.write_text(pages()[path], encoding="utf-8")
    return int(only_check and bool(differing))


if __name__ == "__main__":
    sys.exit(main())
