# SPDX-License-Identifier: Apache-2.0
"""A driver port without a daemon: real files, real core, IPC streams only.

What the daemon's threads would move (limits, connection) the test moves by hand, so that every
refusal can be had when it is wanted.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from penstock.client import Client, Image, Subscription
from penstock.client._port import Lease, Listener, Notice, PortState
from penstock.config.protocol import control
from penstock.core.admin import Cnc, Shared, create_log
from penstock.core.driver_types import CncParams, LogParams, SharedParams, SlotKind
from penstock.core.errors import ChannelRefused, DaemonGone
from penstock.core.pressure import NO_SAMPLE
from penstock.daemon.observe.status import DaemonStatus, PublicationStatus, scheduler_status

TERM_LENGTH = 64 * 1024
META_BYTES = 4096
IS_CONNECTED_OFFSET = 136
END_OF_STREAM_OFFSET = 128
MTU = 1408
PUB_LIMIT_TYPE = 1
SUB_POSITION_TYPE = 4
FAR = 2**40
CHANNEL = "aeron:ipc"
STREAM = 1001


class LocalPort:
    """A :class:`penstock.client._port.DriverPort` on a directory of its own."""

    def __init__(self) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="penstock-unit-")
        self.directory = Path(self._temporary.name)
        now_ms = int(time.time() * 1000)
        self.cnc = Cnc.create(
            CncParams(
                directory=str(self.directory), client_liveness_timeout_ns=10**10, start_ms=now_ms,
                pid=os.getpid(), counter_values_bytes=64 * 1024, error_log_bytes=64 * 1024,
                file_mode=0o600, software_version=1,
            )
        )
        self.shared = Shared.create(
            SharedParams(
                directory=str(self.directory), clients=4, publications=64, images=8,
                subscribers=16, groups=1, file_mode=0o600, daemon_id=7, daemon_epoch=1,
                receiver_id_base=1, pid=os.getpid(), start_ms=now_ms,
            )
        )
        slot = self.shared.allocate_slot(SlotKind.CLIENT, 1)
        self.lease = Lease(
            directory=self.directory, client_id=1, client_slot=slot, daemon_id=7, daemon_epoch=1,
            daemon_version="0", sender_wake_fd=-1, receiver_wake_fd=-1,
        )
        self._watch_fd = -1
        self._threads: list[threading.Thread] = []
        self.state = PortState.OPEN
        self.why_gone = ""
        self.requests: list[Any] = []
        self.limits: dict[int, int] = {}
        self.logs: dict[int, str] = {}
        self.slots: dict[int, int] = {}
        self._queues: dict[int, deque[Notice]] = {}
        self._streams: dict[int, int] = {}
        self._listener: weakref.ref[Listener] | None = None
        self._next_id = 100
        self._meta: list[mmap.mmap] = []

    # ---- the port --------------------------------------------------------------------------------

    def listen(self, listener: Listener) -> None:
        self._listener = weakref.ref(listener)

    def add_publication(
        self, request: control.AddPublication, timeout_s: float
    ) -> control.PublicationReady:
        self._take(request)
        identity = self._new_id()
        path = str(self.directory / f"{identity}.logbuffer")
        create_log(
            LogParams(
                path=path, correlation_id=identity, session_id=identity * 3,
                stream_id=request.stream_id, initial_term_id=5, term_id=5, term_offset=0,
                term_length=TERM_LENGTH, mtu=MTU, type=1 if request.exclusive else 0,
                reserve_terms=3, publication_window_bytes=TERM_LENGTH // 2, file_mode=0o600,
            )
        )
        limit = self._counter(PUB_LIMIT_TYPE, identity, 0)
        slot = self.shared.allocate_slot(SlotKind.PUBLICATION, identity)
        self.limits[identity], self.logs[identity], self.slots[identity] = limit, path, slot
        self._streams[identity] = request.stream_id
        return control.PublicationReady(
            registration_id=identity, original_id=identity, session_id=identity * 3,
            stream_id=request.stream_id, log_path=path, publication_slot=slot,
            limit_counter_id=limit, channel_status_id=-1, max_message_bytes=0,
            exclusive=request.exclusive,
        )

    def add_subscription(
        self, request: control.AddSubscription, timeout_s: float
    ) -> control.SubscriptionReady:
        self._take(request)
        identity = self._new_id()
        self.notices(identity)
        for publication, stream in self._streams.items():
            if stream == request.stream_id:
                self.image_available(identity, publication)
        return control.SubscriptionReady(
            registration_id=identity, stream_id=request.stream_id, channel_status_id=-1
        )

    def add_counter(self, request: control.AddCounter, timeout_s: float) -> control.CounterReady:
        self._take(request)
        identity = self._new_id()
        return control.CounterReady(
            registration_id=identity, counter_id=self._counter(request.type_id, identity, 0)
        )

    def perform(self, request: Any, timeout_s: float) -> control.Done:
        self._take(request)
        if isinstance(request, control.AddDestination) and "bad" in request.channel:
            raise ChannelRefused("no such destination", code="invalid_channel")
        return control.Done(registration_id=self._new_id())

    def status(self, timeout_s: float) -> control.Status:
        return control.Status(snapshot=attrs.asdict(self._status()))

    def notices(self, registration_id: int) -> deque[Notice]:
        return self._queues.setdefault(registration_id, deque())

    def forget(self, registration_id: int) -> None:
        self._queues.pop(registration_id, None)

    def close(self) -> None:
        self.state = PortState.CLOSED

    def abandon_in_child(self) -> None:
        self.state = PortState.CLOSED

    # ---- what the test does ----------------------------------------------------------------------

    def client(self) -> Client:
        return Client(self, timeout_s=5)

    def watching_client(self) -> Client:
        """A client for a loop of events."""
        self.renew_watch()
        return self.client()

    def renew_watch(self) -> None:
        """As a daemon does for a client that asks for an eventfd."""
        fresh = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        if self._watch_fd < 0:
            self._watch_fd = os.dup(fresh)
        else:
            os.dup2(fresh, self._watch_fd, inheritable=False)
        self.shared.watch_client(self.lease.client_slot, self._watch_fd)
        self.lease = attrs.evolve(self.lease, watch_fd=fresh)

    def soon(self, act: Callable[..., None], *args: Any) -> None:
        """Does it in another thread, which ends before what it uses is unmapped."""
        thread = threading.Thread(target=act, args=args)
        self._threads.append(thread)
        thread.start()

    def dispose(self) -> None:
        """Unmaps and removes everything."""
        for thread in self._threads:
            thread.join()
        for meta in self._meta:
            meta.close()
        self.cnc.close()
        self.shared.close()
        if self._watch_fd >= 0:
            os.close(self._watch_fd)
        self._temporary.cleanup()

    def open_up(self, publication_id: int, *, limit: int = FAR) -> None:
        """Connects a publication and lets it publish up to ``limit``."""
        self._write_meta(publication_id, IS_CONNECTED_OFFSET, struct.pack("<i", 1))
        self.move_limit(publication_id, limit)

    def move_limit(self, publication_id: int, limit: int) -> None:
        self.cnc.set_counter(self.limits[publication_id], limit)
        self.shared.wake_client(self.lease.client_slot)

    def image_available(
        self, subscription_id: int, publication_id: int, *, position: int = 0
    ) -> None:
        counter = self._counter(SUB_POSITION_TYPE, subscription_id, position)
        self.notify(
            control.ImageAvailable(
                subscription_id=subscription_id, correlation_id=publication_id,
                session_id=publication_id * 3, stream_id=self._streams[publication_id],
                log_path=self.logs[publication_id], position_counter_id=counter,
                subscriber_slot=self.shared.allocate_slot(SlotKind.SUBSCRIBER, counter + 1),
                image_slot=-1, publication_slot=self.slots[publication_id],
                source_identity="aeron:ipc", join_position=position,
            )
        )

    def notify(self, notice: Notice) -> None:
        identity = (
            notice.registration_id
            if isinstance(notice, control.PublicationError)
            else notice.subscription_id
        )
        self._queues[identity].append(notice)
        listener = self._listener() if self._listener is not None else None
        if listener is not None:
            listener.on_notice()

    def die(self) -> None:
        """The daemon is killed."""
        self.state = PortState.GONE
        listener = self._listener() if self._listener is not None else None
        if listener is not None:
            listener.on_gone()

    # ---- inside ----------------------------------------------------------------------------------

    def _take(self, request: Any) -> None:
        if self.state is PortState.GONE:
            raise DaemonGone("the daemon is gone")
        self.requests.append(request)

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def _counter(self, type_id: int, registration_id: int, value: int) -> int:
        return self.cnc.allocate_counter(
            type_id=type_id, key=b"", label="test", registration_id=registration_id, owner_id=1,
            reference_id=0, value=value, now_ms=0,
        )

    def _status(self) -> DaemonStatus:
        return DaemonStatus(
            version="0", pid=os.getpid(), directory=str(self.directory), daemon_id=7, epoch=1,
            threading="none", uptime_s=0.0, storage_budget_bytes=0, storage_used_bytes=0,
            malformed_messages=0, duty_cycles={}, clients=[],
            publications=[self._publication_status(identity) for identity in self._streams],
            images=[], subscriptions=[], endpoints=[], groups=[], groups_expired=0,
            scheduler=scheduler_status(NO_SAMPLE, []),
        )

    def _publication_status(self, identity: int) -> PublicationStatus:
        """No thread checks the log here."""
        return PublicationStatus(
            publication_id=identity, channel=CHANNEL, stream_id=self._streams[identity],
            session_id=identity * 3, state="active", exclusive=False, clients=1,
            local_subscribers=0, connected=True, receivers=0, position=0, consumer_position=0,
            limit=self.cnc.counter(self.limits[identity]), strategy="", rate_bytes_per_s=0,
            pressure_signals=0, strategy_failures=0, cause="none", culprit="",
            culprit_client=0, culprit_name="", culprit_awaited=False, backlog_bytes=0, held_ns=0,
            blocked_ns={}, blocked_by_ns={}, refused={}, refused_ns=0, refused_episodes=0,
            queue_depth_bytes=0, queue_peak_bytes=0,
            watermark="normal", pressure_events=0, pressure_ns=0, drained_messages=0,
            policy="", dropped_messages=0, dropped_bytes=0, dropped_by={}, credits_granted=-1,
            credits_spent=-1, peers=[],
            log_bytes=0,
        )

    def _write_meta(self, publication_id: int, offset: int, data: bytes) -> None:
        with open(self.logs[publication_id], "r+b") as file:
            meta = mmap.mmap(file.fileno(), 0)
        start = len(meta) - META_BYTES + offset
        meta[start : start + len(data)] = data
        meta.close()


def collect(subscription: Subscription | Image, limit: int = 64) -> list[bytes]:
    received: list[bytes] = []
    subscription.poll(lambda message, _header: received.append(bytes(message)), limit)
    return received
