# SPDX-License-Identifier: Apache-2.0
"""The end of the process that plans, with ``withholdOnCheckpoint``: whenever ``query.stop()``
sends its SIGTERMs, the publishers continue."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable

import pytest
from support.hosts import PenstockHost
from support.processes import Peer

import penstock
from loopback.streams import eventually
from penstock import Offer
from penstock.client import GroupControl

STREAM = 9
RUNNER = """
import json, signal, sys
from pyspark.sql.types import StructType
from penstock.spark_bridge._checkpoints import Checkpoints
from penstock.spark_bridge._options import read_options
from penstock.spark_bridge._source import StreamReader

PLACES = {"resume": Checkpoints.end.__code__, "stop": StreamReader.stop.__code__}

def say(event):
    print(json.dumps({"event": event}), flush=True)

def terminate(frame, event, _argument):
    if event == "call" and frame.f_code is PLACES[sys.argv[2]]:
        sys.setprofile(None)
        say("SIGTERM")
        signal.raise_signal(signal.SIGTERM)

reader = StreamReader(read_options(json.loads(sys.argv[1])), StructType())
try:                                    # as Spark's runner does
    start = reader.initialOffset()
    say("runs")
    end = start
    while end == start:
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
    say("planned")
    sys.stdin.readline()
    raise EOFError("the connection to Spark")
finally:
    sys.setprofile(terminate)           # before the first instruction of the place
    reader.stop()
"""


@pytest.mark.parametrize(("first", "place"), [
    ("SIGTERM", "resume"), ("SIGTERM", "stop"), ("EOF", "resume"), ("EOF", "stop"),
])
def test_a_sigterm_while_a_query_stops_leaves_no_publisher_waiting(
    host: PenstockHost, remote: penstock.Client, port: Callable[[], int], first: str, place: str,
) -> None:
    """A stopped query gets two SIGTERMs, a few milliseconds apart. If the connection to Spark
    breaks first, both can arrive in ``stop``."""
    name = f"stops-{first}-{place}"
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=1m|ps-credits=20"
    options = {
        "channel": channel, "streamId": str(STREAM), "subscription": name,
        "daemonDir": str(host.directory), "startingOffsets": "earliest",
        "withholdOnCheckpoint": "true",
    }
    group = {"name": name, "channel": channel, "stream_id": STREAM}
    with (
        GroupControl(directory=str(host.directory)) as control,
        remote.add_publication(channel, STREAM) as publication,
        Peer([sys.executable, "-c", RUNNER, json.dumps(options), place]) as runner,
    ):
        runner.wait("runs")
        publication.send(b"one", 60.0)
        runner.wait("planned")
        assert publication.offer(b"withheld") == Offer.NO_CREDIT
        if first == "SIGTERM":
            runner.signal(signal.SIGTERM)
        else:
            runner.say()
        runner.wait("SIGTERM")
        runner.finish()
        eventually(lambda: publication.offer(b"x") > 0, "the publisher waits for a stopped query")
        control.close_group(**group)
