# SPDX-License-Identifier: Apache-2.0
"""Multi-step work as generators.

A saga is a generator that yields an :class:`Action`. The saga's runner requests the action from the
daemon. When the action has ended, the runner resumes the saga with the result. If the action
failed, the runner raises :class:`Refused` in the saga. A saga that yields ``EXCLUSIVE`` waits for
the exclusive right to change the conductor's objects. Only one saga at a time has the exclusive
right, which lasts until this saga ends. Sagas get the exclusive right in the order of their
requests. If a saga yields ``EXCLUSIVE_LAST``, all waiting sagas that yielded ``EXCLUSIVE`` get the
exclusive right first. The value ``EXCLUSIVE_LAST`` is for sagas that were started because of a
datagram from another host. A saga resolves host names before it requests the exclusive right. A
resolver that does not answer therefore delays only the client whose request needs the address. A
saga that yields ``UNTIL_RELEASE`` waits until the sender or the receiver has released an object.
For example, a saga waits for the release of a socket before it opens the socket's address again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar

import attrs

from penstock.daemon.conductor.actions import Action, Operation, Outcome

T = TypeVar("T")


class Refused(Exception):
    """Raised if the conductor refuses a request. The client gets ``code`` and ``message`` in the
    reply Failure."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class _Exclusive:
    """Type of :data:`EXCLUSIVE`."""


class _ExclusiveLast:
    """Type of :data:`EXCLUSIVE_LAST`."""


class _UntilRelease:
    """Type of :data:`UNTIL_RELEASE`."""


EXCLUSIVE: Final = _Exclusive()
EXCLUSIVE_LAST: Final = _ExclusiveLast()
UNTIL_RELEASE: Final = _UntilRelease()

Request = Action | _Exclusive | _ExclusiveLast | _UntilRelease
Saga = Generator[Request, Any, T]
OnDone = Callable[[Any, Refused | None], None]


@attrs.define(eq=False)
class _Running:
    saga: Saga[Any]
    on_done: OnDone


class SagaRunner:
    """Runs sagas, and collects the operations that sagas and other code request."""

    def __init__(self) -> None:
        self._outbox: list[Operation] = []
        self._waiting: dict[int, _Running] = {}
        self._queue: deque[_Running] = deque()
        self._last: deque[_Running] = deque()           # after all sagas in the queue
        self._holder: _Running | None = None
        self._ready: deque[tuple[_Running, Any, Refused | None]] = deque()
        self._parked: list[_Running] = []
        self._pumping = False
        self._next_operation = 1

    @property
    def pending(self) -> int:
        """Sagas in progress."""
        return len(self._waiting) + len(self._queue) + len(self._last) + len(self._parked)

    def emit(self, action: Action) -> None:
        """Request an action; no saga waits for its result."""
        self._outbox.append(Operation(0, action))

    def take(self) -> list[Operation]:
        """Return the collected operations, and remove them from this object. The caller must
        perform the operations in the returned order."""
        out, self._outbox = self._outbox, []
        return out

    def start(self, saga: Saga[Any], on_done: OnDone) -> None:
        self._ready.append((_Running(saga, on_done), None, None))
        self._pump()

    def on_result(self, operation_id: int, outcome: Outcome) -> None:
        """Resume the saga that waits for the result of the operation."""
        running = self._waiting.pop(operation_id)
        error = outcome.error
        refused = Refused(error.code, error.message) if error else None
        self._ready.append((running, outcome.value, refused))
        self._pump()

    def on_release(self) -> None:
        """Resume all sagas that yielded ``UNTIL_RELEASE``, because the sender or the receiver has
        released an object."""
        self._ready.extend((running, None, None) for running in self._parked)
        self._parked.clear()
        self._pump()

    def _pump(self) -> None:
        """Run all sagas that can continue; not re-entered when a saga's end starts another."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while self._ready or self._take_last():
                self._step(*self._ready.popleft())
        finally:
            self._pumping = False

    def _take_last(self) -> bool:
        """Continue a saga that waits after all others, if no other waits."""
        if self._holder is not None or not self._last:
            return False
        self._holder = self._last.popleft()
        self._ready.append((self._holder, None, None))
        return True

    def _step(self, running: _Running, value: Any, error: Refused | None) -> None:
        try:
            request = running.saga.throw(error) if error else running.saga.send(value)
        except StopIteration as stop:
            self._finish(running, stop.value, None)
            return
        except Refused as refused:
            self._finish(running, None, refused)
            return
        if isinstance(request, _Exclusive | _ExclusiveLast):
            if self._holder is None:
                self._holder = running
            if self._holder is running:
                self._ready.appendleft((running, None, None))
            else:
                queue = self._queue if isinstance(request, _Exclusive) else self._last
                queue.append(running)
            return
        if isinstance(request, _UntilRelease):
            self._parked.append(running)
            return
        operation_id = self._next_operation
        self._next_operation += 1
        self._waiting[operation_id] = running
        self._outbox.append(Operation(operation_id, request))

    def _finish(self, running: _Running, value: Any, error: Refused | None) -> None:
        if self._holder is running:
            self._holder = None
        running.on_done(value, error)
        if self._holder is None and self._queue:
            self._holder = self._queue.popleft()
            self._ready.append((self._holder, None, None))


class Undo:
    """If a step of a saga fails, the completed steps must be undone. This class collects the
    actions that undo the completed steps. The actions run in reverse order."""

    def __init__(self, runner: SagaRunner) -> None:
        self._runner = runner
        self._actions: list[Action] = []

    def on_failure(self, action: Action) -> None:
        self._actions.append(action)

    def roll_back(self) -> None:
        while self._actions:
            self._runner.emit(self._actions.pop())
