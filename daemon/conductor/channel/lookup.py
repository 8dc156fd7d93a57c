# SPDX-License-Identifier: Apache-2.0
"""Find the socket addresses of a channel, and its key; channels with the same key share sockets.

The *key* of a channel consists of its resolved addresses and its control mode. If a channel has
port 0 or no address, other channels can share its sockets only by naming its tag.
"""

from __future__ import annotations

from collections.abc import Hashable

import attrs

from penstock.config import uri
from penstock.core.driver_types import Address, SocketParams, wildcard
from penstock.daemon.addressing import (
    AddressingError,
    LocalInterface,
    any_interface,
    choose_interface,
    is_wildcard,
    multicast_control,
)
from penstock.daemon.conductor.actions import ListInterfaces, ResolveName
from penstock.daemon.conductor.channel.plans import EndpointPlan
from penstock.daemon.conductor.saga import Refused, Saga
from penstock.daemon.conductor.settings import ConductorSettings


@attrs.frozen(kw_only=True)
class SendAddressing:
    """Sockets of a send endpoint."""

    key: Hashable                       # None: never shared by address
    data: SocketParams
    control: SocketParams | None = None
    peer: uri.Address | None = None        # a name to resolve again when the peer is silent
    peer_address: Address | None = None
    multicast: bool = False
    mode: str = ""


@attrs.frozen(kw_only=True)
class RecvAddressing:
    """Addresses of the socket of a receive endpoint, or of one of its destinations."""

    key: Hashable
    socket: SocketParams
    control: Address | None = None
    control_name: uri.Address | None = None
    group_control: Address | None = None
    multicast: bool = False


def resolve(target: uri.Address) -> Saga[Address]:
    """Resolve the host in ``target``, and return the host's IP address and the port of
    ``target``."""
    scope_id = 0
    if target.scope:
        interfaces = yield from _interfaces()
        found = [i.index for i in interfaces if target.scope in (i.name, str(i.index))]
        if not found:
            raise Refused("no_interface", f"[{target.host}%{target.scope}]: no such interface")
        scope_id = found[0]
    if target.ip is not None:
        return Address(ip=str(target.ip), port=target.port, scope_id=scope_id)
    family = 6 if target.ipv6 else 4
    address: Address = yield ResolveName(host=target.host, port=target.port, family=family)
    return address


def _interfaces() -> Saga[tuple[LocalInterface, ...]]:
    found: tuple[LocalInterface, ...] = yield ListInterfaces()
    return found


def _choose(spec: uri.Interface | None, *, family: int, multicast: bool) -> Saga[LocalInterface]:
    wanted = spec or any_interface(family)
    if not wanted.name and wanted.ip is None:
        try:
            named = yield ResolveName(host=wanted.host, port=0, family=family)
        except Refused as refused:
            raise Refused(
                "no_interface",
                f"interface={wanted.host}: {refused.message}; give an address or network of this "
                f"host (see: ip addr), or an interface's own name in braces: {{{wanted.host}}}",
            ) from refused
        wanted = attrs.evolve(wanted, host=named.ip)
    interfaces = yield from _interfaces()
    try:
        return choose_interface(interfaces, wanted, family=family, multicast=multicast)
    except AddressingError as error:
        raise Refused(error.code, str(error)) from error


def _local(spec: uri.Interface | None, family: int) -> Saga[Address]:
    """Return the address to which a unicast sender binds."""
    if spec is None:
        return wildcard(family)
    if is_wildcard(spec):
        return wildcard(family, spec.port)
    chosen = yield from _choose(spec, family=family, multicast=False)
    return Address(ip=chosen.ip, port=spec.port)


def _check_interface(spec: uri.Interface | None, family: int) -> Saga[None]:
    """Refuse an interface that this host does not have, even if the socket binds to another
    address."""
    if spec is not None and not is_wildcard(spec):
        yield from _choose(spec, family=family, multicast=False)


def check_interface(plan: EndpointPlan) -> Saga[None]:
    """Raise Refused if the channel's interface is not an interface of this host. Call this function
    for a channel that opens no socket of its own: a channel with the tag of another channel, or a
    channel whose destinations are added later."""
    spec = plan.interface
    yield from _check_interface(spec, 6 if spec is not None and spec.ipv6 else 4)


def _control_of(group: Address) -> Address:
    try:
        return multicast_control(group)
    except AddressingError as error:
        raise Refused(error.code, str(error)) from error


def _ttl(plan: EndpointPlan, settings: ConductorSettings) -> int:
    return min(plan.ttl or settings.multicast_ttl, 255)


def _socket(
    plan: EndpointPlan, settings: ConductorSettings, ports: tuple[int, int]
) -> SocketParams:
    """What both sides' sockets have of the channel and of the settings."""
    low, high = ports
    return SocketParams(
        bind=wildcard(4),
        multicast_ttl=_ttl(plan, settings),
        sndbuf_bytes=settings.sndbuf_bytes if plan.sndbuf_bytes is None else plan.sndbuf_bytes,
        rcvbuf_bytes=settings.rcvbuf_bytes if plan.rcvbuf_bytes is None else plan.rcvbuf_bytes,
        port_low=low,
        port_high=high,
    )


def send_addressing(plan: EndpointPlan, settings: ConductorSettings) -> Saga[SendAddressing]:
    """Return the socket addresses for a network publication."""
    base = attrs.evolve(_socket(plan, settings, settings.sender_port_range), gso=settings.gso)
    if plan.control_mode:
        return (yield from _mdc_addressing(plan, base))
    if plan.endpoint is None:
        raise Refused(
            "invalid_channel", f"{plan.channel}: a publication needs endpoint, control-mode or tags"
        )
    if plan.endpoint.port == 0:
        raise Refused(
            "invalid_channel",
            f"{plan.channel}: the endpoint of a publication has port 0: state the receiver's port",
        )
    remote = yield from resolve(plan.endpoint)
    if remote.is_multicast:
        return (yield from _group_send_addressing(plan, base, remote))
    if plan.control is not None:
        bind = yield from resolve(plan.control)
        yield from _check_interface(plan.interface, bind.family)
    else:
        bind = yield from _local(plan.interface, remote.family)
    return SendAddressing(
        key=("unicast", bind, remote),
        data=attrs.evolve(base, bind=bind, connect=remote),
        peer=plan.endpoint if plan.endpoint.ip is None else None,
        peer_address=remote,
    )


def _mdc_addressing(plan: EndpointPlan, base: SocketParams) -> Saga[SendAddressing]:
    """Multi-destination-cast: one unconnected socket."""
    if plan.control is None and plan.control_mode == "dynamic":
        raise Refused("invalid_channel", f"{plan.channel}: control-mode=dynamic needs control")
    if plan.control is not None:
        bind = yield from resolve(plan.control)
        yield from _check_interface(plan.interface, bind.family)
    else:
        family = 6 if plan.interface is not None and plan.interface.ipv6 else 4
        bind = yield from _local(plan.interface, family)
    key = None if bind.port == 0 else ("mdc", plan.control_mode, bind)
    return SendAddressing(key=key, data=attrs.evolve(base, bind=bind), mode=plan.control_mode)


def _group_send_addressing(
    plan: EndpointPlan, base: SocketParams, group: Address
) -> Saga[SendAddressing]:
    if plan.control is not None:
        raise Refused(
            "invalid_channel",
            f"{plan.channel}: control has no effect with a multicast endpoint: leave control out",
        )
    back = _control_of(group)
    interface = yield from _choose(plan.interface, family=group.family, multicast=True)
    local = Address(ip=interface.ip, port=0)
    shared = attrs.evolve(
        base, bind=wildcard(group.family), interface_addr=local if group.family == 4 else None,
        interface_index=interface.index,
    )
    return SendAddressing(
        key=("multicast", interface.ip, interface.index, group),
        data=attrs.evolve(shared, connect=group),
        control=attrs.evolve(
            shared, bind=wildcard(group.family, group.port), group=back, reuse=True, gso=False
        ),
        multicast=True,
    )


def recv_addressing(plan: EndpointPlan, settings: ConductorSettings) -> Saga[RecvAddressing]:
    """Return the socket addresses for a network subscription, or for one of its destinations."""
    base = attrs.evolve(_socket(plan, settings, settings.receiver_port_range), gro=settings.gro)
    if plan.endpoint is None and plan.control is None:
        raise Refused(
            "invalid_channel", f"{plan.channel}: a subscription needs endpoint, control or tags"
        )
    control, name = None, None
    if plan.control is not None:
        if plan.control.port == 0:
            raise Refused(
                "invalid_channel",
                f"{plan.channel}: the control address of a subscription has port 0: state the "
                "publisher's control port",
            )
        control = yield from resolve(plan.control)
        name = plan.control if plan.control.ip is None else None
    if plan.endpoint is None:
        assert control is not None
        local = yield from _local(plan.interface, control.family)
    else:
        local = yield from resolve(plan.endpoint)
    if local.is_multicast:
        return (yield from _group_recv_addressing(plan, base, local))
    if plan.endpoint is not None:
        yield from _check_interface(plan.interface, local.family)
    return RecvAddressing(
        key=None if local.port == 0 else ("unicast", local, control),
        socket=attrs.evolve(base, bind=local),
        control=control,
        control_name=name,
    )


def _group_recv_addressing(
    plan: EndpointPlan, base: SocketParams, group: Address
) -> Saga[RecvAddressing]:
    back = _control_of(group)
    if group.port == 0:
        raise Refused(
            "invalid_channel", f"{plan.channel}: the multicast endpoint has port 0: state its port"
        )
    interface = yield from _choose(plan.interface, family=group.family, multicast=True)
    local = Address(ip=interface.ip, port=0)
    return RecvAddressing(
        key=("multicast", interface.ip, interface.index, group),
        socket=attrs.evolve(
            base,
            bind=wildcard(group.family, group.port),
            group=group,
            interface_addr=local if group.family == 4 else None,
            interface_index=interface.index,
            reuse=True,
        ),
        group_control=back,
        multicast=True,
    )
