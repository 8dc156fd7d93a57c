# SPDX-License-Identifier: Apache-2.0
"""The table of driver calls (``daemon/driver_calls.py``) against actions and header."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from penstock.core._lib import CORE
from penstock.daemon.conductor import actions as a
from penstock.daemon.driver_calls import DRIVER_CALLS
from penstock.daemon.executor import Executor

IDS = [action.__name__ for action in DRIVER_CALLS]


@pytest.mark.parametrize("action", DRIVER_CALLS, ids=IDS)
def test_a_call_passes_every_field_of_its_action(action: type[a.Action]) -> None:
    call = DRIVER_CALLS[action]
    assert sorted(call.fields) == sorted(field.name for field in attrs.fields(action))


@pytest.mark.parametrize("action", DRIVER_CALLS, ids=IDS)
def test_a_call_has_the_arguments_of_its_function(action: type[a.Action]) -> None:
    call = DRIVER_CALLS[action]
    signature = CORE.ffi.typeof(getattr(CORE.lib, call.function))
    assert len(signature.args) == 1 + len(call.fields)
    assert signature.args[1].item.cname == f"struct ps_{call.kind.name.lower()}"
    assert signature.args[0].item.cname == "struct ps_driver"


def test_an_operation_names_fields_of_the_action() -> None:
    for action, call in DRIVER_CALLS.items():
        value = object.__new__(action)
        for field in attrs.fields(action):
            object.__setattr__(value, field.name, f"<{field.name}>")
        assert "{" not in call.operation.format(value), action


def test_every_action_has_a_handler() -> None:
    def below(base: type[a.Action]) -> set[type[a.Action]]:
        return {base}.union(*(below(kind) for kind in base.__subclasses__()))

    # attrs leaves the class behind that it made one with slots of: names, not classes.
    stated = {kind.__name__ for kind in below(a.Action) if kind.__module__.startswith("penstock.")}
    assert stated - {"Action"} == {kind.__name__ for kind in handlers()}


def handlers() -> set[type[a.Action]]:
    class Anything:
        def __getattr__(self, name: str) -> Anything:
            return self

    stub: Any = Anything()
    return set(Executor(driver=stub, cnc=stub, shared=stub, port=stub)._handlers)
