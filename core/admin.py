# SPDX-License-Identifier: Apache-2.0
"""Files of a daemon directory: cnc.dat with its counters, penstock.dat, log buffers (ps_cnc.h,
ps_slots.h, ps_logfile.h).

Control plane only. A failed call raises the exception of :func:`penstock.core.errors.native_error`.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.core._lib import CORE
from penstock.core.driver_types import (
    CncParams,
    CounterInfo,
    DriverState,
    ErrorRecord,
    ImageView,
    LogParams,
    SharedParams,
    SlotKind,
)
from penstock.core.library import Library, NativeObject
from penstock.core.pressure import PressureView, SchedulerView, decode, scheduler_view

#: The layout of ``penstock.dat`` that this version reads and writes.
SHARED_VERSION = int(CORE.lib.PS_SHARED_VERSION)
_LABEL_BYTES = 380
_KEY_BYTES = 112
_ERROR_TEXT_BYTES = 4096
_INDEX_ENTRIES = 256


class Cnc(NativeObject):
    """``DIR/cnc.dat``: counters, error log and heartbeat in Aeron's layout."""

    @classmethod
    def create(cls, params: CncParams, *, library: Library = CORE) -> Cnc:
        """Create the file, which must not exist."""
        native = library.ffi.new("ps_cnc_params_t *")
        keep = library.fill(native, params)
        out = library.ffi.new("ps_cnc_t **")
        library.check(
            library.lib.ps_cnc_create(native, out), f"create cnc.dat in {params.directory}"
        )
        del keep
        return cls(out[0], library)

    @classmethod
    def open(
        cls, directory: str, *, read_only: bool = True, library: Library = CORE
    ) -> Cnc:
        out = library.ffi.new("ps_cnc_t **")
        library.check(
            library.lib.ps_cnc_open(directory.encode(), int(read_only), out),
            f"open cnc.dat in {directory}",
        )
        return cls(out[0], library)

    def adopt(self, *, pid: int, start_ms: int) -> None:
        """Adopt a dead daemon's cnc.dat; the counters keep their ids and values."""
        self._lib.ps_cnc_adopt(self._handle, pid, start_ms)

    def close(self) -> None:
        if self._handle is not None:
            self._lib.ps_cnc_close(self._handle)
            self._handle = None

    def heartbeat(self, epoch_ms: int) -> None:
        """Store the daemon's heartbeat; -1 states a clean shutdown."""
        self._lib.ps_cnc_heartbeat(self._handle, epoch_ms)

    def heartbeat_ms(self) -> int:
        return int(self._lib.ps_cnc_get_heartbeat(self._handle))

    def pid(self) -> int:
        return int(self._lib.ps_cnc_pid(self._handle))

    def start_ms(self) -> int:
        return int(self._lib.ps_cnc_start_ms(self._handle))

    def next_id(self) -> int:
        """Return the next correlation id, > 0 and unique in the directory."""
        return int(self._lib.ps_cnc_next_id(self._handle))

    def answer_commands(self, reason: str) -> int:
        """Reply with an error to commands that Aeron clients wrote into cnc.dat. One call replies
        to at most 64 commands."""
        return int(self._lib.ps_cnc_answer_commands(self._handle, reason.encode()))

    def log_error(self, epoch_ms: int, text: str, *, stranger: bool = False) -> None:
        """Add an error to the distinct error log; raise StorageError if the log is full.

        :param stranger: whether a datagram caused the error; such errors may use only half of the
            log.
        """
        self._check(
            self._lib.ps_cnc_log_error(self._handle, epoch_ms, int(stranger), text.encode()),
            "write the error log",
        )

    def errors(self) -> Iterator[ErrorRecord]:
        """The entries of the distinct error log, the oldest first."""
        count, first, last = (self._ffi.new("int64_t *") for _ in range(3))
        text = self._ffi.new("char[]", _ERROR_TEXT_BYTES)
        index = 0
        while self._lib.ps_cnc_read_error(
            self._handle, index, count, first, last, text, _ERROR_TEXT_BYTES
        ) == 1:
            words = bytes(self._ffi.string(text)).decode("utf-8", "replace")
            yield ErrorRecord(count=count[0], first_ms=first[0], last_ms=last[0], text=words)
            index += 1

    def report_loss(
        self, *, epoch_ms: int, lost_bytes: int, gaps: int, session_id: int, stream_id: int,
        channel: str, source: str, settled: bool,
    ) -> None:
        """Add a loss to the stream's entry in the loss report. If the report accepts no new entry
        for the stream, add the loss to an entry that many streams share (ps_cnc.h). If the report
        has no room for that entry either, ignore the loss. ``gaps`` is the number of new gaps; the
        call adds this number to the entry's number of observations. If the loss only makes an
        already reported gap longer, ``gaps`` is 0.
        """
        texts = [self._ffi.new("char[]", text.encode()) for text in (channel, source)]
        loss = self._ffi.new(
            "ps_loss_t *", (epoch_ms, lost_bytes, gaps, session_id, stream_id, settled, *texts)
        )
        self._lib.ps_cnc_report_loss(self._handle, loss)

    # ---- counters ----

    def counter_capacity(self) -> int:
        return int(self._lib.ps_counter_capacity(self._handle))

    def allocate_counter(
        self, *, type_id: int, key: bytes, label: str, registration_id: int, owner_id: int,
        reference_id: int, value: int, now_ms: int,
    ) -> int:
        """Allocate a counter and return its id; raise StorageError if the table is full."""
        raw_key = key[:_KEY_BYTES]
        raw_label = label.encode("ascii", "replace")[:_LABEL_BYTES]
        return self._check(
            self._lib.ps_counter_allocate(
                self._handle, type_id, raw_key, len(raw_key), raw_label, len(raw_label),
                registration_id, owner_id, reference_id, value, now_ms,
            ),
            "allocate a counter",
        )

    def free_counter(self, counter_id: int, now_ms: int) -> None:
        self._lib.ps_counter_free(self._handle, counter_id, now_ms)

    def counter(self, counter_id: int) -> int:
        return int(self._lib.ps_counter_get(self._handle, counter_id))

    def set_counter(self, counter_id: int, value: int) -> None:
        self._lib.ps_counter_set(self._handle, counter_id, value)

    def counters(self) -> Iterator[CounterInfo]:
        """All allocated counters, by id."""
        info = self._ffi.new("ps_counter_info_t *")
        for counter_id in range(self.counter_capacity()):
            self._lib.ps_counter_read(self._handle, counter_id, info)
            if info.state == 0:
                return
            if info.state == 1:
                yield CounterInfo(
                    counter_id=counter_id,
                    type_id=info.type_id,
                    value=info.value,
                    registration_id=info.registration_id,
                    owner_id=info.owner_id,
                    reference_id=info.reference_id,
                    label=bytes(self._ffi.string(info.label)).decode("utf-8", "replace"),
                    key=bytes(self._ffi.buffer(info.key)),
                )


class Shared(NativeObject):
    """``DIR/penstock.dat``: shared state in fixed-size slots."""

    @classmethod
    def create(cls, params: SharedParams, *, library: Library = CORE) -> Shared:
        native = library.ffi.new("ps_shared_params_t *")
        keep = library.fill(native, params)
        out = library.ffi.new("ps_shared_t **")
        library.check(
            library.lib.ps_shared_create(native, out), f"create penstock.dat in {params.directory}"
        )
        del keep
        return cls(out[0], library)

    @classmethod
    def open(
        cls, directory: str, *, read_only: bool = True, library: Library = CORE
    ) -> Shared:
        out = library.ffi.new("ps_shared_t **")
        library.check(
            library.lib.ps_shared_open(directory.encode(), int(read_only), out),
            f"open penstock.dat in {directory}",
        )
        return cls(out[0], library)

    def adopt(self, params: SharedParams) -> None:
        """Adopt a dead daemon's penstock.dat: keep the slots, and set the identity of the new
        daemon."""
        native = self._ffi.new("ps_shared_params_t *")
        keep = self._fill(native, params)
        self._lib.ps_shared_adopt(self._handle, native)
        del keep

    def close(self) -> None:
        if self._handle is not None:
            self._lib.ps_shared_close(self._handle)
            self._handle = None

    def set_state(self, state: DriverState) -> None:
        self._lib.ps_shared_set_state(self._handle, int(state))

    def state(self) -> DriverState:
        return DriverState(self._lib.ps_shared_state(self._handle))

    def epoch(self) -> int:
        return int(self._lib.ps_shared_epoch(self._handle))

    def pid(self) -> int:
        return int(self._lib.ps_shared_pid(self._handle))

    def set_storage(self, *, budget_bytes: int, used_bytes: int) -> None:
        self._lib.ps_shared_set_storage(self._handle, budget_bytes, used_bytes)

    def allocate_slot(self, kind: SlotKind, object_id: int) -> int:
        """Allocate a zeroed slot and return its index; raise StorageError if all slots are in
        use."""
        return self._check(
            self._lib.ps_slot_allocate(self._handle, int(kind), object_id),
            f"take a {kind.name.lower()} slot",
        )

    def free_slot(self, kind: SlotKind, index: int) -> None:
        self._lib.ps_slot_free(self._handle, int(kind), index)

    def slot_count(self, kind: SlotKind) -> int:
        return int(self._lib.ps_slot_count(self._handle, int(kind)))

    def slot_id(self, kind: SlotKind, index: int) -> int:
        """Id of the object that owns a slot; 0: the slot is free."""
        return int(self._lib.ps_slot_id(self._handle, int(kind), index))

    def describe_client(self, index: int, *, pid: int, uid: int, name: str) -> None:
        self._lib.ps_slot_describe_client(self._handle, index, pid, uid, name.encode()[:95])

    def wake_client(self, index: int) -> None:
        """Wake a sleeping client. Any thread."""
        self._lib.ps_slot_wake_client(self._handle, index)

    def watch_client(self, index: int, fd: int) -> None:
        """Set the eventfd with which the agents wake the slot's client while this client waits in
        an event loop; -1: no eventfd. The agents may write to ``fd`` until they end, so the caller
        must keep ``fd`` open until then. To replace the eventfd, duplicate the new eventfd onto the
        old number with ``os.dup2``.
        """
        self._lib.ps_slot_watch_client(self._handle, index, fd)

    def read_pressure(self, publication_slot: int) -> PressureView:
        """Return how long each cause and each culprit blocked a publication, and how many offers on
        this publication were refused. Any thread."""
        view = self._ffi.new("ps_pressure_view_t *")
        code = self._lib.ps_slot_read_pressure(self._handle, publication_slot, view)
        if code != self._lib.PS_E_AGAIN:
            self._check(code, "read pressure")
        return decode(self._ffi, view)

    def read_scheduler(self, now_ns: int) -> SchedulerView:
        """Return the last sample of the governor (``docs/scheduling.md``). If the sample is too old
        at the time ``now_ns``, the pressure and the delays of the result are 0. Any thread."""
        view = self._ffi.new("ps_scheduler_view_t *")
        self._lib.ps_slot_read_scheduler(self._handle, now_ns, view)
        return scheduler_view(self._ffi, view)

    def read_index(self, kind: SlotKind, index: int) -> list[tuple[int, int]]:
        """Return all entries of a log's index ring, in ascending order. An entry is a position and
        a time (ns since 1970)."""
        out = self._ffi.new("ps_index_view_t[]", _INDEX_ENTRIES)
        count = self._check(
            self._lib.ps_slot_read_index(self._handle, int(kind), index, out, _INDEX_ENTRIES),
            "read an index ring",
        )
        return [(int(out[i].position), int(out[i].time_ns)) for i in range(count)]

    def read_times(
        self, kind: SlotKind, index: int, start: int, end: int, most: int
    ) -> list[tuple[int, int]]:
        """Return the times at which a stream reached the positions [start, end): entries (position,
        time since 1970 in ns) in ascending order. The result has at most ``most`` entries (>= 2).
        If the time table has more entries, the call returns only the last of several entries that
        are close in time."""
        out = self._ffi.new("ps_index_view_t[]", most)
        count = self._check(
            self._lib.ps_slot_read_times(self._handle, int(kind), index, start, end, out, most),
            "read the times of a stream",
        )
        return [(int(out[i].position), int(out[i].time_ns)) for i in range(count)]

    def describe_group(
        self, index: int, *, committed: int, retained_from: int, expiry_ms: int
    ) -> None:
        code = self._lib.ps_slot_describe_group(
            self._handle, index, committed, retained_from, expiry_ms
        )
        self._check(code, "describe a group")

    def read_image(self, image_slot: int) -> ImageView:
        """Return the state of an image slot."""
        view = self._ffi.new("ps_image_view_t *")
        self._check(self._lib.ps_slot_read_image(self._handle, image_slot, view), "read an image")
        return ImageView(
            id=view.id, session_id=view.session_id, stream_id=view.stream_id, gaps=view.gaps,
            fill_ppm=view.fill_ppm, lost_bytes=view.lost_bytes, rtt_ns=view.rtt_ns,
            window_bytes=view.window_bytes, congestion_window=view.congestion_window,
        )


def create_log(params: LogParams, *, library: Library = CORE) -> None:
    """Make a log buffer file. If the file system is full, raise a StorageError that states how many
    bytes are needed and how many are available. Any thread."""
    native = library.ffi.new("ps_log_params_t *")
    keep = library.fill(native, params)
    library.check(library.lib.ps_log_create(native), f"create {params.path}")
    del keep


def reserve_log(
    path: str, *, term_length: int, position: int, end: int, library: Library = CORE
) -> None:
    """Allocate the disk blocks of a log buffer between two positions. Any thread."""
    library.check(
        library.lib.ps_log_reserve(path.encode(), term_length, position, end),
        f"reserve {end - position} bytes in {path}",
    )


def release_log_terms(
    path: str, *, term_length: int, kept_from: int, kept_to: int, library: Library = CORE
) -> None:
    """Release the memory of a log buffer's terms, except the terms that contain positions from
    ``kept_from`` to ``kept_to``. Any thread."""
    library.check(
        library.lib.ps_log_release(path.encode(), term_length, kept_from, kept_to),
        f"give back idle terms of {path}",
    )


def free_bytes(path: str, *, library: Library = CORE) -> int:
    """Return the number of free bytes on the file system of path."""
    return library.check(
        library.lib.ps_free_bytes(path.encode()), f"check the file system of {path}"
    )
