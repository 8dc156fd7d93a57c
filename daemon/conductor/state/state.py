# SPDX-License-Identifier: Apache-2.0
"""State that all parts of the conductor share: the registered objects, settings, time, random
numbers, the storage budget, and the outbox of actions."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from penstock.config.protocol.control import Message
from penstock.core.driver_types import Address
from penstock.daemon.conductor.actions import Action, LogError, Notify, PublishEvent, SetStorage
from penstock.daemon.conductor.saga import Refused, SagaRunner
from penstock.daemon.conductor.settings import ConductorSettings
from penstock.daemon.conductor.state.brief_logs import BriefLogs
from penstock.daemon.conductor.state.by_stream import ByStream
from penstock.daemon.conductor.state.error_book import ErrorBook
from penstock.daemon.conductor.state.model import (
    Client,
    Group,
    Image,
    LogFile,
    Publication,
    RecvEndpoint,
    SendEndpoint,
    Subscription,
)
from penstock.daemon.conductor.state.timers import Timers

_SMALL_TERM = 1 << 20
_FIRST_IMAGE_BYTES = 256 * 1024
PAGE = 4096


def first_terms(term_length: int, position: int) -> int:
    """Return the number of terms to allocate for a new log that starts at ``position``. The
    function returns 2 if terms are small, or if ``position`` lies in the second half of a term;
    otherwise it returns 1. Later, each time the writer reaches the middle of a term, the daemon
    allocates the next term."""
    soon = position % term_length > term_length // 2
    return 2 if soon or term_length <= _SMALL_TERM else 1


class Storage:
    """Counts the bytes that are allocated for log buffers, and compares them with the storage
    budget."""

    def __init__(self, runner: SagaRunner, budget_bytes: int) -> None:
        self._runner = runner
        self.budget_bytes = budget_bytes
        self.used_bytes = 0

    def take(self, amount: int, what: str) -> None:
        """Subtract ``amount`` bytes from the storage budget, before these bytes are allocated.
        Raise Refused if the budget has fewer bytes left."""
        left = self.budget_bytes - self.used_bytes
        if amount > left:
            raise Refused(
                "storage",
                f"{what} needs {amount} bytes of shared memory, and {max(left, 0)} bytes of the "
                f"storage budget of {self.budget_bytes} bytes are left: choose a smaller "
                "term-length, or raise storage.budget, or enlarge the file system",
            )
        self.used_bytes += amount
        self._publish()

    def adopt(self, amount: int) -> None:
        """Count memory that a dead daemon has already allocated, even if this memory exceeds the
        budget."""
        self.used_bytes += amount
        self._publish()

    def release(self, amount: int) -> None:
        self.used_bytes -= amount
        self._publish()

    def _publish(self) -> None:
        self._runner.emit(SetStorage(budget_bytes=self.budget_bytes, used_bytes=self.used_bytes))


class State:
    def __init__(
        self, settings: ConductorSettings, *, rng: random.Random, next_id: Callable[[], int]
    ) -> None:
        self.settings = settings
        self.rng = rng
        self.next_id = next_id
        self.runner = SagaRunner()
        self.timers = Timers()
        self.storage = Storage(self.runner, settings.storage_budget_bytes)
        self.errors = ErrorBook()
        self.now_ns = 0
        self.clients: dict[int, Client] = {}
        self.send_endpoints: dict[int, SendEndpoint] = {}
        self.recv_endpoints: dict[int, RecvEndpoint] = {}
        self.publications: ByStream[int, Publication] = ByStream()
        self.images: dict[int, Image] = {}
        self.subscriptions: ByStream[int, Subscription] = ByStream()
        self.groups: dict[int, Group] = {}
        self.groups_expired = 0
        self.brief_logs = BriefLogs(settings.storage_budget_bytes)
        self.half_open_bytes = 0    # storage of images without an accepted frame
        # Log id -> group id -> acknowledged; read by the thread that serves fetches.
        self.holdings: dict[int, dict[int, int]] = {}
        self.watched: set[int] = set()      # logs that may have idle terms, by their owners' ids
        self.next_session = rng.randrange(-(2**31), 2**31)
        self.next_receiver = settings.receiver_id_base

    def emit(self, action: Action) -> None:
        self.runner.emit(action)

    def notify(self, client: Client, notice: Message) -> None:
        if client.alive:
            self.emit(Notify(client_id=client.id, notice=notice))

    def event(self, name: str, /, **fields: Any) -> None:
        """Publish an event in the event feed. Names of events in the event feed do not change
        between versions."""
        self.emit(PublishEvent(name=name, fields=fields))

    def error(self, kind: str, source: Address | str, text: str) -> None:
        """Record an error in the error log, which has one entry for each kind and source.

        :param source: an address if a datagram caused it, else the name of an object of this
            daemon.
        """
        if isinstance(source, Address):
            entry = self.errors.stranger(kind, source.ip, text)
        else:
            entry = self.errors.local(kind, source, text)
        self.emit(LogError(text=entry, stranger=isinstance(source, Address)))

    def hold(self, log_id: int, group_id: int, position: int) -> None:
        """Record that a consumer group needs the data of a log from ``position`` on. The recorded
        position never decreases."""
        held = self.holdings.setdefault(log_id, {})
        held[group_id] = max(position, held.get(group_id, 0))

    def let_go(self, log_id: int, group_id: int) -> None:
        """Record that a consumer group no longer needs the data of a log."""
        held = self.holdings.get(log_id)
        if held is not None:
            held.pop(group_id, None)
            if not held:
                self.holdings.pop(log_id, None)

    def floor(self, log_id: int) -> int | None:
        """Return the position of the oldest needed data of a log; None: no consumer group needs the
        log. Any thread."""
        held = self.holdings.get(log_id)
        positions = [] if held is None else list(held.values())
        return min(positions) if positions else None

    def receiver_id(self) -> int:
        """Return a receiver id that this daemon has not used."""
        value = self.next_receiver
        self.next_receiver = value + 1 if value + 1 < 2**63 else -(2**63)
        return value

    def new_log(self, path: str, term_length: int, position: int) -> LogFile:
        """Return the record of a new log. The record counts the log's first terms as allocated."""
        terms = first_terms(term_length, position)
        return LogFile(
            path=path,
            term_length=term_length,
            page_size=self.settings.page_size,
            reserved_position=position - position % term_length + terms * term_length,
            reserved_terms=terms,
        )

    def new_image_log(
        self, path: str, term_length: int, position: int, window_bytes: int
    ) -> LogFile:
        """Return the record of a new image's log. Any host can make the daemon create an image, by
        sending a SETUP. The daemon therefore allocates only one window of the log at first, at most
        256 KiB."""
        first = position - position % term_length
        low = position - position % PAGE
        end = position + min(window_bytes, _FIRST_IMAGE_BYTES) + 1      # and the word at its end
        end = min(-(-end // PAGE) * PAGE, first + 2 * term_length)
        return LogFile(
            path=path,
            term_length=term_length,
            page_size=self.settings.page_size,
            reserved_position=end,
            reserved_terms=-(-end // term_length) - first // term_length,
            low_missing=low - first,
        )

    def log_bytes(self, term_length: int, position: int) -> int:
        """Return the number of bytes to allocate when a new log is created."""
        return self.new_log("", term_length, position).reserved_bytes
