# SPDX-License-Identifier: Apache-2.0
"""Instructions a message on the path from offer to poll, against ``instructions/table.json``."""

from __future__ import annotations

import pytest
from instructions import measure

MOST_MORE = 2.0         # what a capability that is off may cost, a message
OF_ANOTHER_COMPILER = 0.15


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
