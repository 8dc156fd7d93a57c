# SPDX-License-Identifier: Apache-2.0
"""Writes kept corpora of Python targets: ``python tests/fuzz/make_corpus.py``.

What is there stays; a control message that has no input yet gets one.  The corpora of channels and
markers were written by hand.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import fuzz_journal
import fuzz_keys
import pyarrow as pa

from penstock.config import uri
from penstock.config.protocol import codec, control
from penstock.core.driver_types import Address, SocketParams
from penstock.daemon.conductor.state.model import Destination, LogFile
from penstock.daemon.restart import journal

CORPUS = Path(__file__).resolve().parent / "corpus"

#: A value by a field's name, else by its type.
_NAMED: dict[str, Any] = {
    "channel": "aeron:udp?endpoint=10.0.0.1:40456", "starting": "earliest", "sessions": [-7],
    "initial_term_ids": [5], "positions": [4096], "credit": 4, "pieces": 4, "code": "storage",
    "action": "withhold",
}
_TYPED: dict[Any, Any] = {
    int: 96, bool: True, str: "text", bytes: b"\1\2", list[str]: ["127.0.0.1:7"],
    list[int]: [3, 4], dict[str, Any]: {"a": [1, {"b": None}], "c": 1.5},
}


def put(target: str, name: str, data: bytes) -> None:
    path = CORPUS / target / name
    path.parent.mkdir(exist_ok=True)
    if not path.exists():
        path.write_bytes(data)


def control_messages() -> None:
    for name, kind in control.MESSAGE_TYPES.items():
        fields = {
            a.name: _NAMED.get(a.name, _TYPED[a.type])
            for a in attrs.fields(attrs.resolve_types(kind))
        }
        if name == "PublicationError":
            fields["code"] = 3
        put("control", name, codec.encode(kind(**fields), 17))


def journals() -> None:
    log = LogFile(path="/dev/shm/p/1.logbuffer", term_length=65536, page_size=4096,
                  reserved_position=65536, reserved_terms=2)
    records = [
        journal.encode("daemon", (0,), {"daemon_id": 77}),
        journal.encode("client", (1,), {"name": "one", "token": b"\1\2", "pid": 5, "none": None}),
        journal.encode("publication", (3, -4), {
            "log": log, "socket": SocketParams(bind=Address(ip="10.0.0.2", port=0)),
            "to": [Address(ip="10.0.0.1", port=7)],
            "name": uri.parse("aeron:udp?endpoint=host:7").endpoint, "pair": (1, 2),
        }),
        journal.encode("client", (1,), None),
    ]
    whole = b"".join(records)
    put("journal", "whole", b"W" + whole)
    put("journal", "repaired", b"R" + whole)
    put("journal", "broken_off", b"W" + whole[:-5])
    put("journal", "empty", fuzz_journal.HEAD)
    put("journal", "of_another_version", b"PENSTOCK-REGISTRY 0\n" + whole)
    destination = attrs.fields(Destination)
    put("journal", "names", b"R" + journal.encode(
        "destination", (1,), {field.name: field.name for field in destination}))


def keys() -> None:
    key, secret = fuzz_keys.KEY, fuzz_keys.SECRET
    certificate = b'#   comment\n\nmetadata\n    host = "a"\ncurve\n    public-key = "%s"\n' % key
    put("keys", "list", b"# those who may come\n%s spark\n\n  %s\n" % (key, secret))
    put("keys", "public", certificate)
    put("keys", "secret", certificate + b'    secret-key = "%s"\n' % secret)


def offsets() -> None:
    session = "aeron:udp?endpoint=10.0.0.1:40456|1001|-77|12"
    plain = {
        session: 40960, f"from|{session}": 32, "end|aeron:ipc|7|5|6": 64,
        "group|aeron:ipc|7": "g@1.2",
    }
    put("offsets", "whole", json.dumps(plain).encode())
    put("offsets", "starting", json.dumps({session: 4096}).encode())
    put("offsets", "streams", b'[{"channel": "aeron:ipc", "streamId": 1001}]')
    put("offsets", "latest", b"latest")


def payloads() -> None:
    batch = pa.RecordBatch.from_pydict({"id": [1, None, 3], "name": ["a", None, "ccc"]})
    empty = batch.slice(0, 0)
    for name, one in (("three", batch), ("none", empty)):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, one.schema) as writer:
            writer.write_batch(one)
        put("payload", f"stream_of_{name}", sink.getvalue().to_pybytes())
        put("payload", f"batch_of_{name}", one.serialize().to_pybytes())
    other = pa.RecordBatch.from_pydict({
        "id": pa.array([1, 2]), "name": pa.array(["x", "y"]).dictionary_encode(),
    })
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, other.schema) as writer:
        writer.write_batch(other)
    put("payload", "dictionary", sink.getvalue().to_pybytes())
    put("payload", "schema_only", batch.schema.serialize().to_pybytes())


if __name__ == "__main__":
    control_messages()
    journals()
    keys()
    offsets()
    payloads()
