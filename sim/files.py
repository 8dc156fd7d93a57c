# SPDX-License-Identifier: Apache-2.0
"""Read and write scenarios as TOML. The text of an error states the file, the key and the reason.

Hosts have names. In a channel, ``{name}`` stands for the address of the host with this name. Each
member of a ``[[group]]`` gets a subscription; publishers that name the group send to the address of
the group. Values in seconds, milliseconds and Mbit/s, and shares between 0 and 1, may have decimal
places. This module keeps values with decimal places as exact decimals, and converts them directly
to whole nanoseconds, parts per million or bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, NoReturn

import attrs

from penstock.config.toml_text import parse_toml
from penstock.core.errors import ConfigurationError
from penstock.sim.core import Link
from penstock.sim.file_keys import (
    BUDGET,
    DROP,
    FACTORS,
    HOST,
    LINK,
    LISTS,
    MISFIT,
    NUMBERED,
    PACE,
    PARAMETERS,
    PUBLISHER,
    RELAY,
    RULE,
    SCENARIO,
    SHARES,
    SUBSCRIBER,
    Keys,
)
from penstock.sim.scenario import (
    GROUP_RECEIVERS,
    MS_NS,
    Budget,
    Drop,
    HostScript,
    LinkRule,
    MisfitScript,
    PublisherScript,
    RelayScript,
    Scenario,
    SubscriberScript,
    host_ip,
)

_MAX_HOSTS: Final = 64
_MAX_DROPS: Final = 10_000
_BYTES: Final = re.compile(r"^(\d+)([kmg]?)$")
_SCALES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class _Reader:
    """Reader of one file, with its name for errors and its hosts by name."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.hosts: dict[str, int] = {}

    def fail(self, key: str, reason: str) -> NoReturn:
        raise ConfigurationError(f"{self.source}: {key}: {reason}")

    def host(self, key: str, value: Any) -> int:
        if value not in self.hosts:
            known = ", ".join(self.hosts)
            self.fail(key, f"there is no host {value!r}; hosts are {known}")
        return self.hosts[value]

    def number(self, key: str, value: Any, factor: Decimal) -> int:
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            self.fail(key, f"{value!r} is not a number")
        if value < 0:
            self.fail(key, f"{value} is negative")
        exact = Decimal(value) * factor
        if exact != exact.to_integral_value():
            self.fail(key, f"{value} is too fine: {factor} of it must be a whole number")
        return int(exact)

    def bytes(self, key: str, value: Any) -> int:
        if isinstance(value, int) and not isinstance(value, bool):
            return self.number(key, value, Decimal(1))
        match = _BYTES.match(value) if isinstance(value, str) else None
        if match is None:
            self.fail(key, f"{value!r} is not a length: give one such as 1408, 64k or 16m")
        return int(match[1]) * _SCALES[match[2]]

    def value(self, key: str, kind: str, value: Any) -> Any:
        if kind in FACTORS:
            return self.number(key, value, FACTORS[kind])
        if kind == "host":
            return -1 if value == "*" else self.host(key, value)
        if kind == "bytes":
            return self.bytes(key, value)
        if kind == "spans":
            return self.spans(key, value)
        if kind == "paces":
            return self.paces(key, value)
        if kind == "parameters":
            return self.parameters(key, value)
        if kind in LISTS:
            if not isinstance(value, list):
                self.fail(key, f"{value!r} is not a list")
            inner = LISTS[kind]
            return tuple(self.value(key, inner, item) for item in value)
        wanted: type = bool if kind == "bool" else str
        if not isinstance(value, wanted):
            self.fail(key, f"{value!r} is not {'true or false' if wanted is bool else 'a text'}")
        return value

    def parameters(self, key: str, value: Any) -> tuple[tuple[str, int], ...]:
        if not isinstance(value, dict):
            self.fail(key, f"{value!r} is not a table of parameters")
        for name in value:
            if name not in PARAMETERS:
                known = ", ".join(sorted(PARAMETERS))
                self.fail(f"{key}.{name}", f"unknown key; known are {known}")
        return tuple(
            (name, self.number(f"{key}.{name}", number, Decimal(1)))
            for name, number in value.items()
        )

    def spans(self, key: str, value: Any) -> tuple[tuple[int, int], ...]:
        if not isinstance(value, list):
            self.fail(key, f"{value!r} is not a list of [from, until]")
        found = []
        for span in value:
            if not isinstance(span, list) or len(span) != 2:
                self.fail(key, f"{span!r} is not [from, until] in seconds")
            low, high = (self.number(key, item, FACTORS["seconds"]) for item in span)
            if high <= low:
                self.fail(key, f"{low} ns to {high} ns is no time at all")
            found.append((low, high))
        return tuple(found)

    def paces(self, key: str, value: Any) -> tuple[tuple[int, int, int], ...]:
        if not isinstance(value, list):
            self.fail(key, f"{value!r} is not a list of [from, interval, batch]")
        found = []
        for pace in value:
            if not isinstance(pace, list) or len(pace) != 3:
                self.fail(key, f"{pace!r} is not [seconds, microseconds, messages]")
            from_ns, interval_ns, batch = (
                self.number(key, item, FACTORS[kind])
                for item, kind in zip(pace, PACE, strict=True)
            )
            if interval_ns == 0:
                self.fail(key, f"{pace!r} has an interval of 0 us")
            found.append((from_ns, interval_ns, batch))
        return tuple(found)

    def table(self, where: str, table: Any, keys: Keys) -> dict[str, Any]:
        """Return the values of one TOML table; the keys of the result are the names of the
        scenario's fields.
        """
        if not isinstance(table, dict):
            self.fail(where, "is not a table")
        fields = {}
        for key, value in table.items():
            if key not in keys:
                self.fail(f"{where}.{key}", f"unknown key; known are {', '.join(keys)}")
            field, kind = keys[key]
            fields[field] = self.value(f"{where}.{key}", kind, value)
            if key in SHARES and fields[field] > 10**6:
                self.fail(f"{where}.{key}", f"{value} is more than 1")
        return fields

    def require(self, where: str, fields: Mapping[str, Any], keys: Keys, *needed: str) -> None:
        for key in needed:
            if keys[key][0] not in fields:
                self.fail(f"{where}.{key}", "is missing")

    def channel(self, where: str, text: str) -> str:
        def address(match: re.Match[str]) -> str:
            return host_ip(self.host(f"{where}.channel", match[1]))

        return re.sub(r"\{([^}]*)\}", address, text)


def _tables(reader: _Reader, document: dict[str, Any], key: str) -> list[tuple[str, Any]]:
    tables = document.pop(key, [])
    if not isinstance(tables, list):
        reader.fail(key, f"write [[{key}]]: there may be several")
    return [(f"{key}[{number}]", table) for number, table in enumerate(tables)]


def _read_hosts(reader: _Reader, document: dict[str, Any]) -> tuple[HostScript, ...]:
    scripts = []
    for where, table in _tables(reader, document, "host"):
        if not isinstance(table, dict) or not isinstance(table.get("name"), str):
            reader.fail(f"{where}.name", "is missing")
        name = table["name"]
        if name in reader.hosts or not name.isidentifier():
            reader.fail(f"{where}.name", f"{name!r} is taken, or not letters and digits")
        if len(reader.hosts) == _MAX_HOSTS:
            reader.fail(where, f"at most {_MAX_HOSTS} hosts")
        reader.hosts[name] = len(reader.hosts)
        rest = {key: value for key, value in table.items() if key != "name"}
        script = HostScript(host=reader.hosts[name], **reader.table(where, rest, HOST))
        if script.cycle_ns < 1:
            reader.fail(f"{where}.cycle_us", "must be positive")
        if script.restart_ns is not None and (
            script.crash_ns is None or script.restart_ns <= script.crash_ns
        ):
            reader.fail(f"{where}.restart_s", "is not after crash_s")
        scripts.append(script)
    if not scripts:
        reader.fail("host", "a scenario needs at least one [[host]]")
    return tuple(scripts)


def _read_links(
    reader: _Reader, document: dict[str, Any]
) -> tuple[Link, tuple[LinkRule, ...], tuple[Drop, ...]]:
    link = Link(**reader.table("network", document.pop("network", {}), LINK))
    rules = []
    for where, table in _tables(reader, document, "link"):
        fields = reader.table(where, table, {**LINK, **RULE})
        mine = {field for field, _ in RULE.values()}
        changed = {name: value for name, value in fields.items() if name not in mine}
        rule = LinkRule(
            link=attrs.evolve(link, **changed),
            **{name: value for name, value in fields.items() if name in mine},
        )
        if rule.until_ns is not None and rule.until_ns <= rule.from_ns:
            reader.fail(f"{where}.until_s", "is not after start_s")
        rules.append(rule)
    drops = []
    for where, table in _tables(reader, document, "drop"):
        fields = reader.table(where, table, DROP)
        reader.require(where, fields, DROP, "from", "to")
        if -1 in (fields["sender"], fields["receiver"]):
            reader.fail(where, "needs two hosts, not *")
        every, times = fields.pop("every", 0), fields.pop("times", 0)
        first = fields.pop("first", every)
        if ("numbers" in fields) == (every > 0 and 0 < times <= _MAX_DROPS):
            reader.fail(where, f"needs numbers, or every and times (at most {_MAX_DROPS})")
        numbers = range(first, first + every * times, max(1, every))
        fields.setdefault("numbers", tuple(numbers))
        drops.append(Drop(**fields))
    return link, tuple(rules), tuple(drops)


@attrs.frozen(kw_only=True)
class _Group:
    channel: str
    stream_id: int
    members: tuple[int, ...]
    where: str


def _read_groups(reader: _Reader, document: dict[str, Any]) -> dict[str, _Group]:
    keys: Keys = {
        "name": ("name", "text"), "endpoint": ("endpoint", "text"), "members": ("members", "texts"),
        "stream": ("stream_id", "count"),
    }
    groups = {}
    for where, table in _tables(reader, document, "group"):
        fields = reader.table(where, table, keys)
        reader.require(where, fields, keys, "name", "endpoint")
        members = fields.get("members", ())
        groups[fields["name"]] = _Group(
            channel=f"aeron:udp?endpoint={fields['endpoint']}|interface=10.0.0.0/24",
            stream_id=fields.get("stream_id", 1001),
            members=tuple(reader.host(f"{where}.members", member) for member in members),
            where=where,
        )
    return groups


def _join_group(
    reader: _Reader, where: str, table: Any, groups: Mapping[str, _Group], options: str
) -> Any:
    """A table that names a group gets its channel and stream."""
    if not isinstance(table, dict) or "group" not in table:
        return table
    name = table["group"]
    if name not in groups:
        reader.fail(f"{where}.group", f"there is no group {name!r}")
    rest = {key: value for key, value in table.items() if key not in ("group", options)}
    channel = groups[name].channel
    if isinstance(table.get(options), str):
        channel = f"{channel}|{table[options]}"
    return {"channel": channel, "stream": groups[name].stream_id, **rest}


def _read_publishers(
    reader: _Reader, document: dict[str, Any], groups: Mapping[str, _Group]
) -> tuple[PublisherScript, ...]:
    found = []
    for where, given in _tables(reader, document, "publisher"):
        table = _join_group(reader, where, given, groups, "options")
        fields = reader.table(where, table, PUBLISHER)
        reader.require(where, fields, PUBLISHER, "host", "channel", "count")
        fields["channel"] = reader.channel(where, fields["channel"])
        script = PublisherScript(**fields)
        if script.size_high < script.size_low:
            reader.fail(f"{where}.size_high", f"{script.size_high} is less than size_low")
        found.append(script)
    return tuple(found)


def _read_subscribers(
    reader: _Reader, document: dict[str, Any], groups: Mapping[str, _Group]
) -> tuple[SubscriberScript, ...]:
    found = [
        SubscriberScript(
            host=member, channel=group.channel, stream_id=group.stream_id, may_join_late=True
        )
        for group in groups.values()
        for member in group.members
    ]
    joined = {name for name, group in groups.items() if group.members}
    for where, given in _tables(reader, document, "subscriber"):
        if isinstance(given, dict) and "group" in given:
            joined.add(given["group"])
        table = _join_group(reader, where, given, groups, "options")
        fields = reader.table(where, table, SUBSCRIBER)
        reader.require(where, fields, SUBSCRIBER, "host", "channel")
        fields["channel"] = reader.channel(where, fields["channel"])
        script = SubscriberScript(**fields)
        if not 1 <= script.poll_limit <= 256:
            reader.fail(f"{where}.poll_limit", f"{script.poll_limit} is not in 1 to 256")
        if script.batch > 0 and script.interval_ns == 0:
            reader.fail(f"{where}.batch", "needs interval_us: the time from batch to batch")
        found.append(script)
    for name, group in groups.items():
        if name not in joined:
            reader.fail(f"{group.where}.members", f"group {name!r} has no members")
    return tuple(found)


def _read_relays(reader: _Reader, document: dict[str, Any]) -> tuple[RelayScript, ...]:
    found = []
    for where, table in _tables(reader, document, "relay"):
        fields = reader.table(where, table, RELAY)
        reader.require(
            where, fields, RELAY, "host", "source", "source_stream", "target", "target_stream"
        )
        for name in ("source", "target"):
            fields[name] = reader.channel(where, fields[name])
        script = RelayScript(**fields)
        if script.source_stream == script.target_stream:
            reader.fail(f"{where}.target_stream", "needs another stream than the source")
        found.append(script)
    return tuple(found)


def _read_misfits(reader: _Reader, document: dict[str, Any]) -> tuple[MisfitScript, ...]:
    found = []
    for where, table in _tables(reader, document, "misfit"):
        fields = reader.table(where, table, MISFIT)
        reader.require(where, fields, MISFIT, "host", "kind", "until_s")
        script = MisfitScript(**fields)
        if script.kind not in GROUP_RECEIVERS:
            known = ", ".join(GROUP_RECEIVERS)
            reader.fail(f"{where}.kind", f"{script.kind!r} is unknown; known: {known}")
        if script.host < 0:
            reader.fail(f"{where}.host", "needs a host, not *")
        if script.until_ns <= script.from_ns or script.interval_ns < MS_NS:
            reader.fail(where, "needs until_s after start_s, and an interval of 1 ms at least")
        found.append(script)
    return tuple(found)


def parse(text: str, source: str) -> Scenario:
    """Return a scenario from TOML.  ConfigurationError: "file: key: reason"."""
    reader = _Reader(source)
    try:
        document: dict[str, Any] = parse_toml(text, parse_float=Decimal)
    except ValueError as error:
        raise ConfigurationError(f"{source}: {error}") from error
    machines = _read_hosts(reader, document)
    link, links, drops = _read_links(reader, document)
    groups = _read_groups(reader, document)
    publishers = _read_publishers(reader, document, groups)
    subscribers = _read_subscribers(reader, document, groups)
    relays = _read_relays(reader, document)
    misfits = _read_misfits(reader, document)
    budget = Budget(**reader.table("budget", document.pop("budget", {}), BUDGET))
    top = {}
    for key, value in document.items():
        if key not in SCENARIO:
            known = [*SCENARIO, "network", "host", "link", "drop", "group", "publisher",
                     "subscriber", "relay", "misfit", "budget"]
            reader.fail(key, f"unknown key; known are {', '.join(known)}")
        top[SCENARIO[key][0]] = reader.value(key, SCENARIO[key][1], value)
    if not publishers or not subscribers:
        reader.fail("publisher", "a scenario needs publishers and subscribers")
    return Scenario(
        **{"name": Path(source).stem, **top},
        link=link,
        hosts=len(reader.hosts),
        host_names=tuple(reader.hosts),
        machines=machines,
        links=links,
        drops=drops,
        publishers=publishers,
        subscribers=subscribers,
        relays=relays,
        misfits=misfits,
        budget=budget,
    )


def load(path: Path) -> Scenario:
    """Read a file.  ConfigurationError, OSError."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path}: is not UTF-8 text") from None
    return parse(text, str(path))


# ---- writing -------------------------------------------------------------------------------------


def _number(value: int, factor: Decimal) -> str:
    return format((Decimal(value) / factor).normalize(), "f")


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _written(kind: str, value: Any, scenario: Scenario) -> str:
    if kind in FACTORS:
        return _number(value, FACTORS[kind])
    if kind == "host":
        return '"*"' if value == -1 else _text(scenario.host_name(value))
    if kind == "bool":
        return "true" if value else "false"
    if kind == "spans":
        seconds = FACTORS["seconds"]
        spans = [f"[{_number(a, seconds)}, {_number(b, seconds)}]" for a, b in value]
        return f"[{', '.join(spans)}]"
    if kind == "paces":
        paces = [[_number(n, FACTORS[k]) for n, k in zip(p, PACE, strict=True)] for p in value]
        return f"[{', '.join('[' + ', '.join(pace) + ']' for pace in paces)}]"
    if kind == "parameters":
        return "{" + ", ".join(f"{name} = {number}" for name, number in value) + "}"
    if kind in LISTS:
        return f"[{', '.join(_written(LISTS[kind], item, scenario) for item in value)}]"
    return _text(value) if kind == "text" else str(value)


def _lines(item: Any, keys: Keys, scenario: Scenario) -> list[str]:
    defaults = {field.name: field.default for field in attrs.fields(type(item))}
    found = []
    for key, (field, kind) in keys.items():
        value = getattr(item, field)
        if value is not None and value != defaults[field]:
            found.append(f"{key} = {_written(kind, value, scenario)}")
    return found


def dump(scenario: Scenario) -> str:
    """Return the scenario as TOML that :func:`parse` can read."""
    lines = _lines(scenario, SCENARIO, scenario)
    lines += ["", "[network]", *_lines(scenario.link, LINK, scenario)]
    machines = {machine.host: machine for machine in scenario.machines}
    for host in range(scenario.hosts):
        lines += ["", "[[host]]", f"name = {_text(scenario.host_name(host))}"]
        lines += _lines(machines.get(host, HostScript(host=host)), HOST, scenario)
    for rule in scenario.links:
        lines += ["", "[[link]]", *_lines(rule, RULE, scenario)]
        for key, (field, kind) in LINK.items():
            value = getattr(rule.link, field)
            if value != getattr(scenario.link, field):
                lines.append(f"{key} = {_written(kind, value, scenario)}")
    for drop in scenario.drops:
        lines += ["", "[[drop]]", *_lines(drop, NUMBERED, scenario)]
    for publisher in scenario.publishers:
        lines += ["", "[[publisher]]", *_lines(publisher, PUBLISHER, scenario)]
    for subscriber in scenario.subscribers:
        lines += ["", "[[subscriber]]", *_lines(subscriber, SUBSCRIBER, scenario)]
    for relay in scenario.relays:
        lines += ["", "[[relay]]", *_lines(relay, RELAY, scenario)]
    for misfit in scenario.misfits:
        lines += ["", "[[misfit]]", *_lines(misfit, MISFIT, scenario)]
    lines += ["", "[budget]", *_lines(scenario.budget, BUDGET, scenario)]
    return "\n".join(lines) + "\n"
