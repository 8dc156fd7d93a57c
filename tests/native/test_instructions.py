# SPDX-License-Identifier: Apache-2.0
"""Instructions a message on the path from offer to poll, against ``instructions/table.json``."""

from __future__ import annotations

import pytest
from instructions import measure

MOST_MORE = 2.0         # what a capability that is off may cost, a message
OF_ANOTHER_COMPILER = 0.15
SAMPLE = 1000           # open streams; 10,000 take too long for each run of the tests
#: Instructions a second of an idle stream, of each host.
IDLE_MOST = {"sender": 700.0, "receiver": 1300.0}


@pytest.mark.slow
@pytest.mark.parametrize("row", measure.ROWS)
def test_a_message_costs_no_more_than_the_table_says(row: str) -> None:
    table = measure.read_table()
    stated = float(table["rows"][row]["core"])
    same = table["compiler"] == measure.compiler()
    more = MOST_MORE if same else OF_ANOTHER_COMPILER * stated
    found = measure.count(measure.build(), row)
    assert found["core"] <= stated + more, (found, table["rows"][row])


def test_a_count_attributes_instructions_to_folders_of_the_core() -> None:
    found = measure.count(measure.build(), "ipc-32")
    assert {"client", "sender", "wire"} <= set(found)
    parts = sum(value for name, value in found.items() if name != "core")
    assert found["core"] == pytest.approx(parts, abs=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("host", measure.HOSTS)
def test_an_idle_stream_costs_a_few_hundred_instructions_a_second(host: str) -> None:
    program = measure.build("streams")
    few, many = (measure.count_streams(program, host, streams) for streams in (10, SAMPLE))
    a_second = (many["core"] - few["core"]) * measure.STREAMS_RATE * 1000 / (SAMPLE - 10)
    assert a_second <= IDLE_MOST[host], (few, many)
