# SPDX-License-Identifier: Apache-2.0
"""Perform the conductor's actions on the native driver and the files of the directory.

Both the daemon's server (:mod:`penstock.daemon.server`) and the simulator perform actions with this
module. The executor passes replies, notices, leases and events to the :class:`Port` of the server
or simulator. If :meth:`Executor.is_slow` returns true for an action, the server calls
:meth:`Executor.perform_slow` in a worker thread.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from penstock.core import admin
from penstock.core.congestion import CongestionView
from penstock.core.credits import read_credit
from penstock.core.driver import Driver
from penstock.core.driver_types import (
    Address,
    CongestionControl,
    DriverState,
    FlowControl,
    ObjectKind,
    SystemCounter,
    log_file_length,
)
from penstock.core.errors import ChannelRefused, PenstockError, StorageError
from penstock.daemon.addressing import LocalInterface
from penstock.daemon.conductor import actions as a
from penstock.daemon.conductor.actions import congestion as c
from penstock.daemon.conductor.actions.credits import ReadCredits, ReadRoundTrip
from penstock.daemon.conductor.actions.times import ViewTimes
from penstock.daemon.driver_calls import DRIVER_CALLS, DriverCall
from penstock.daemon.groups.logs import GroupLogs
from penstock.daemon.strategies import StrategyHost, make

SLOW_LOG_BYTES: Final = 64 * 1024 * 1024


class Port(Protocol):
    """Interface of the daemon's server and of the simulator. The executor passes some actions to
    this interface, and does not perform them itself."""

    def reply(self, action: a.Reply) -> None: ...

    def notify(self, action: a.Notify) -> None: ...

    def publish(self, action: a.PublishEvent) -> None: ...

    def grant(self, action: a.GrantLease) -> None: ...

    def refuse(self, action: a.RefuseLease) -> None: ...

    def forget(self, action: a.ForgetClient) -> None: ...

    def answer(self, action: a.Answer) -> None: ...

    def record(self, action: a.Record) -> None: ...

    def warn(self, text: str) -> None: ...

    def epoch_ms(self) -> int: ...

    def resolve(self, action: a.ResolveName) -> Address: ...

    def interfaces(self) -> tuple[LocalInterface, ...]: ...


def resolve_name(action: a.ResolveName) -> Address:
    """Asks the system's resolver.  May take seconds."""
    family = socket.AF_INET6 if action.family == 6 else socket.AF_INET
    try:
        found = socket.getaddrinfo(action.host, action.port, family, socket.SOCK_DGRAM)
    except (OSError, UnicodeError) as error:
        raise ChannelRefused(
            f"host {action.host} has no IPv{action.family} address ({error})", code="unknown_host"
        ) from error
    ip, port, *rest = found[0][4]
    scope_id = int(rest[1]) if len(rest) == 2 else 0
    return Address(ip=str(ip).partition("%")[0], port=int(port), scope_id=scope_id)


def list_interfaces() -> tuple[LocalInterface, ...]:
    """Return the addresses of all network interfaces of this host."""
    import psutil  # imported for the first channel that names or needs an interface

    indices = {name: index for index, name in socket.if_nameindex()}
    stats = psutil.net_if_stats()
    found = []
    for name, addresses in psutil.net_if_addrs().items():
        flags = stats[name].flags.split(",") if name in stats else []
        for address in addresses:
            if address.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            found.append(
                LocalInterface(
                    name=name,
                    index=indices.get(name, 0),
                    ip=address.address.partition("%")[0],
                    prefix_length=_prefix_length(address.netmask),
                    is_up="up" in flags,
                    is_loopback="loopback" in flags,
                    is_multicast="multicast" in flags,
                )
            )
    return tuple(found)


def _prefix_length(netmask: str | None) -> int:
    if not netmask:
        return 0
    family = socket.AF_INET6 if ":" in netmask else socket.AF_INET
    return bin(int.from_bytes(socket.inet_pton(family, netmask), "big")).count("1")


class Executor:
    """Performs actions. Any thread may call :meth:`perform_slow`; only one thread may use the other
    methods."""

    def __init__(
        self, *, driver: Driver, cnc: admin.Cnc, shared: admin.Shared, port: Port
    ) -> None:
        self._driver = driver
        self._cnc = cnc
        self._shared = shared
        self._port = port
        self.strategies = StrategyHost()
        self.logs = GroupLogs(cnc, shared)
        self._handlers: dict[type[a.Action], Callable[[Any], Any]] = {
            **self._port_handlers(),
            **self._file_handlers(),
            **self._driver_handlers(),
            **self._strategy_handlers(),
            **self._group_handlers(),
        }

    def _free_slot(self, action: a.FreeSlot) -> None:
        if action.object_id in (0, self._shared.slot_id(action.kind, action.index)):
            self._shared.free_slot(action.kind, action.index)

    def perform(self, action: a.Action) -> a.Outcome:
        """Perform an action in the calling thread. If the action fails, the returned result
        contains the error."""
        try:
            return a.Outcome(value=self._handlers[type(action)](action))
        except (PenstockError, OSError, KeyError, ValueError, OverflowError) as error:
            return a.Outcome(error=_error(action, error))

    @staticmethod
    def is_slow(action: a.Action) -> bool:
        """Return whether the daemon should perform an action in a worker thread, and not in its
        main thread."""
        match action:
            case a.ResolveName() | a.MakeStrategy() | a.RunStrategy() | c.RunCongestion():
                return True
            case a.CreateLog(params=params):
                length = log_file_length(params.term_length, params.page_size)
                part = params.reserve_terms * params.term_length
                part += params.reserve_to - params.reserve_from
                whole = not params.sparse and params.reserve_terms > 0
                return (length if whole else part) > SLOW_LOG_BYTES
            case a.ReserveTerm(position=position, end=end):
                return end - position > SLOW_LOG_BYTES
            case a.ReleaseLog(term_length=term_length):
                return term_length > SLOW_LOG_BYTES
        return False

    def perform_slow(self, action: a.Action) -> a.Outcome:
        """Perform a slow action as :meth:`perform` does. Any thread."""
        return self.perform(action)

    # ---- tables ----

    def _port_handlers(self) -> dict[type[a.Action], Callable[[Any], Any]]:
        port = self._port
        return {
            a.Reply: port.reply,
            a.Notify: port.notify,
            a.PublishEvent: port.publish,
            a.GrantLease: port.grant,
            a.RefuseLease: port.refuse,
            a.ForgetClient: port.forget,
            a.Answer: lambda x: port.answer(x),
            a.Record: lambda x: port.record(x),
            a.ResolveName: port.resolve,
            a.ListInterfaces: lambda x: port.interfaces(),
        }

    def _file_handlers(self) -> dict[type[a.Action], Callable[[Any], Any]]:
        cnc, shared, now_ms = self._cnc, self._shared, self._port.epoch_ms
        library = self._cnc.library
        return {
            a.CreateLog: self._create_log,
            a.DeleteFile: self._delete_file,
            a.ReserveTerm: lambda x: admin.reserve_log(
                x.path, term_length=x.term_length, position=x.position, end=x.end,
                library=library,
            ),
            a.ReleaseLog: lambda x: admin.release_log_terms(
                x.path, term_length=x.term_length, kept_from=x.kept_from, kept_to=x.kept_to,
                library=library,
            ),
            a.SetStorage: lambda x: shared.set_storage(
                budget_bytes=x.budget_bytes, used_bytes=x.used_bytes
            ),
            a.Warn: lambda x: self._port.warn(x.text),
            a.LogError: lambda x: self.log_error(x.text, stranger=x.stranger),
            a.ReportLoss: lambda x: cnc.report_loss(
                epoch_ms=now_ms(), lost_bytes=x.lost_bytes, gaps=x.gaps,
                session_id=x.session_id, stream_id=x.stream_id, channel=x.channel,
                source=x.source, settled=x.settled,
            ),
            a.AllocateCounter: lambda x: cnc.allocate_counter(
                type_id=x.type_id, key=x.key, label=x.label, registration_id=x.registration_id,
                owner_id=x.owner_id, reference_id=x.reference_id, value=x.value, now_ms=now_ms(),
            ),
            a.FreeCounter: lambda x: cnc.free_counter(x.counter_id, now_ms()),
            a.SetCounter: lambda x: cnc.set_counter(x.counter_id, int(x.value)),
            a.ReadCounter: lambda x: cnc.counter(x.counter_id),
            a.AddToSystemCounter: lambda x: self.add_to_counter(x.counter_id, x.delta),
            a.AllocateSlot: lambda x: shared.allocate_slot(x.kind, x.object_id),
            a.FreeSlot: self._free_slot,
            ReadCredits: lambda x: read_credit(shared, x.slot),
            ReadRoundTrip: lambda x: shared.read_image(x.slot).rtt_ns,
            a.DescribeClient: lambda x: shared.describe_client(
                x.slot, pid=x.pid, uid=x.uid, name=x.name
            ),
        }

    def _driver_handlers(self) -> dict[type[a.Action], Callable[[Any], Any]]:
        d = self._driver
        return {
            **{action: partial(self._call, call) for action, call in DRIVER_CALLS.items()},
            a.OpenSendEndpoint: lambda x: d.open_send_endpoint(x.params),
            a.AddPublicationObject: self._add_publication,
            a.GetPublicationStatus: lambda x: d.publication_status(x.publication_id),
            a.ReadReceivers: lambda x: d.publication_receivers(x.publication_id),
            a.OpenRecvEndpoint: lambda x: d.open_recv_endpoint(x.params),
            a.AddRecvDestination: lambda x: d.add_recv_destination(x.endpoint_id, x.params),
            a.FitRecvBuffer: lambda x: d.fit_recv_buffer(
                x.endpoint_id, x.destination_id, x.size_bytes
            ),
            a.DestroyRecvDestination: lambda x: d.destroy_recv_destination(
                x.endpoint_id, x.destination_id
            ),
            a.AddInterest: partial(self._set_interest, wanted=True),
            a.RemoveInterest: partial(self._set_interest, wanted=False),
            a.AddImageObject: self._add_image,
            a.GetImageJoinPosition: lambda x: d.image_join_position(x.image_id),
            a.RemoveObject: self._remove,
            a.DestroyObject: self._destroy,
        }

    def _strategy_handlers(self) -> dict[type[a.Action], Callable[[Any], Any]]:
        return {
            a.MakeStrategy: lambda x: make(x.name, x.kind),
            a.RunStrategy: lambda x: self.strategies.run(x.publication_id, x.snapshots, x.now_ns),
            c.ReadCongestion: lambda x: CongestionView(
                session_id=x.session_id, stream_id=x.stream_id, term_length=x.term_length,
                mtu=x.mtu, **self._driver.image_congestion(x.image_id),
            ),
            c.RunCongestion: lambda x: self.strategies.run(x.image_id, x.view, x.now_ns),
        }

    def _group_handlers(self) -> dict[type[a.Action], Callable[[Any], Any]]:
        return {
            a.ViewLog: self.logs.view,
            ViewTimes: self.logs.times,
            a.OldestPosition: self.logs.oldest,
            a.ReleaseTo: lambda x: self._driver.release(
                position=x.position, position_counter_id=x.position_counter_id,
                subscriber_slot=x.subscriber_slot, publication_slot=x.publication_slot,
                log=self.logs.reader(x.credit_path) if x.credit_path else None,
            ),
            a.DescribeGroup: lambda x: self._shared.describe_group(
                x.slot, committed=x.committed, retained_from=x.retained_from,
                expiry_ms=self._port.epoch_ms() + x.expires_ns // 1_000_000,
            ),
        }

    # ---- the few with more to them ----

    def log_error(self, text: str, *, stranger: bool = False) -> None:
        """Write an error to the distinct error log and to the daemon's log, and count it.

        :param stranger: whether a datagram caused the error.
        """
        self.add_to_counter(SystemCounter.ERRORS, 1)
        self._port.warn(text)
        try:
            self._cnc.log_error(self._port.epoch_ms(), text, stranger=stranger)
        except StorageError as error:
            self._port.warn(f"{error}: raise storage.error_log_bytes")

    def add_to_counter(self, counter_id: int, delta: int) -> None:
        """Add ``delta`` to a system counter that no other thread writes."""
        self._cnc.set_counter(counter_id, self._cnc.counter(counter_id) + delta)

    def set_state(self, state: DriverState) -> None:
        self._shared.set_state(state)

    def _add_publication(self, action: a.AddPublicationObject) -> None:
        params = action.params
        if params.flow_control is FlowControl.CUSTOM:
            self.strategies.open(params.id, params.strategy, action.strategy)
        try:
            self._driver.add_publication(params)
        except PenstockError:
            self.strategies.close(params.id)
            raise

    def _add_image(self, action: a.AddImageObject) -> None:
        """Add an image. If its congestion class cannot be made, the stream continues: first with
        the initial window, then with the receiver window."""
        params = action.params
        self._driver.add_image(params)
        if params.congestion_control == CongestionControl.CUSTOM:
            try:
                self.strategies.open(
                    params.id, params.congestion_name, None, a.StrategyKind.CONGESTION
                )
            except ChannelRefused as refused:
                self.log_error(str(refused))

    def _create_log(self, action: a.CreateLog) -> None:
        admin.create_log(action.params, library=self._cnc.library)

    def _delete_file(self, action: a.DeleteFile) -> None:
        self.logs.forget(action.path)
        try:
            os.unlink(action.path)
        except FileNotFoundError:
            self.add_to_counter(SystemCounter.FREE_FAILS, 1)

    def _call(self, call: DriverCall, action: a.Action) -> None:
        object_id, *arguments = (getattr(action, name) for name in call.fields)
        self._driver.call(
            call.function, call.kind, object_id, *arguments,
            operation=call.operation.format(action),
        )

    def _set_interest(self, action: a.AddInterest | a.RemoveInterest, *, wanted: bool) -> None:
        self._driver.set_interest(
            action.endpoint_id, action.stream_id, action.session_id, wanted=wanted
        )

    def _remove(self, action: a.RemoveObject) -> None:
        keeps = (action.keep_session,) if action.kind is ObjectKind.IMAGE else ()
        self._driver.remove(action.kind, action.object_id, *keeps)

    def _destroy(self, action: a.DestroyObject) -> None:
        if action.kind in (ObjectKind.PUBLICATION, ObjectKind.IMAGE):
            self.strategies.close(action.object_id)
        self._driver.destroy(action.kind, action.object_id)


def _error(action: a.Action, error: Exception) -> a.ActionError:
    """Return the control-protocol code for a failure. A missing id: the object has ended
    meanwhile."""
    if isinstance(error, KeyError):
        name = type(action).__name__
        return a.ActionError(code="unknown_registration", message=f"{name}: {error} has gone")
    if isinstance(error, StorageError) and isinstance(action, a.AllocateSlot | a.AllocateCounter):
        # All entries are taken, or memory for one more is missing.
        code = "limit" if "are taken" in str(error) else "storage"
        return a.ActionError(code=code, message=str(error))
    if isinstance(error, ChannelRefused):
        return a.ActionError(code=error.code, message=str(error))
    return a.ActionError(code="internal", message=str(error))
