# SPDX-License-Identifier: Apache-2.0
"""Convert the daemon's configuration to the parameters of the conductor, the network and the data
plane."""

from __future__ import annotations

import socket
from typing import Final

import attrs

from penstock.config.settings.models import DaemonConfig
from penstock.core.driver import Net
from penstock.core.driver_types import DriverParams, Idle, ImpairParams, LossRecovery, Threading
from penstock.daemon.conductor import ConductorSettings

_PPM_PER_PERCENT: Final = 10_000


@attrs.frozen(kw_only=True)
class Identity:
    """Ids and start time of one run of a daemon. The ids are random, so they differ after each
    start of the daemon."""

    daemon_id: int
    epoch: int
    receiver_id_base: int
    seed: int
    start_ns: int
    start_ms: int


def net_from(config: DaemonConfig) -> Net:
    """Return the daemon's network: the kernel's UDP sockets. If the configuration states artificial
    loss or delay, the network adds these faults."""
    net = Net.udp()
    bad = config.impairment
    if not bad.active:
        return net
    return net.impaired(
        ImpairParams(
            send_loss_ppm=int(bad.send_loss_percent * _PPM_PER_PERCENT),
            recv_loss_ppm=int(bad.recv_loss_percent * _PPM_PER_PERCENT),
            duplicate_ppm=int(bad.duplicate_percent * _PPM_PER_PERCENT),
            reorder_ppm=int(bad.reorder_percent * _PPM_PER_PERCENT),
            corrupt_ppm=int(bad.corrupt_percent * _PPM_PER_PERCENT),
            delay_ns=bad.delay_ns,
            jitter_ns=bad.jitter_ns,
            seed=bad.seed,
        )
    )


def driver_params_from(config: DaemonConfig, identity: Identity) -> DriverParams:
    """Parameters of the native driver."""
    agents, times = config.agents, config.timeouts
    return DriverParams(
        threading=Threading[config.threading.upper()],
        idle=Idle[agents.idle.upper()],
        sender_cpu=agents.sender_cpu,
        receiver_cpu=agents.receiver_cpu,
        seed=identity.seed,
        receiver_id_base=identity.receiver_id_base,
        daemon_id=identity.daemon_id,
        daemon_epoch=identity.epoch,
        host=socket.gethostname(),
        setup_interval_ns=times.setup_interval_ns,
        heartbeat_interval_ns=times.heartbeat_interval_ns,
        idle_heartbeat_interval_ns=times.idle_heartbeat_interval_ns,
        idle_after_ns=times.idle_after_ns,
        status_message_timeout_ns=times.status_message_timeout_ns,
        connection_timeout_ns=times.connection_timeout_ns,
        image_liveness_timeout_ns=times.image_liveness_timeout_ns,
        unblock_timeout_ns=times.unblock_timeout_ns,
        retransmit_delay_ns=times.retransmit_delay_ns,
        retransmit_linger_ns=times.retransmit_linger_ns,
        nak_unicast_delay_ns=times.nak_unicast_delay_ns,
        nak_unicast_retry_ratio=times.nak_unicast_retry_ratio,
        nak_multicast_max_backoff_ns=times.nak_multicast_max_backoff_ns,
        pending_setup_timeout_ns=times.pending_setup_timeout_ns,
        nak_multicast_group_size=times.nak_multicast_group_size,
        max_gaps=agents.max_gaps,
        loss_recovery=LossRecovery[agents.loss_recovery.upper().replace("-", "_")],
        retransmit_percent=agents.retransmit_percent,
        retransmit_bytes_per_s=agents.retransmit_bytes_per_s,
        event_capacity=agents.event_capacity,
        command_capacity=agents.command_capacity,
        advertise=config.extensions.advertise,
        governor=config.scheduler.governor,
    )


def settings_from(
    config: DaemonConfig, *, directory: str, budget_bytes: int, receiver_id_base: int
) -> ConductorSettings:
    """Return the settings of a conductor from the configuration; the simulator uses this function
    too."""
    pubs, subs, sockets = config.publications, config.subscriptions, config.sockets
    times, limits = config.timeouts, config.limits
    return ConductorSettings(
        directory=directory,
        receiver_id_base=receiver_id_base,
        storage_budget_bytes=budget_bytes,
        file_mode=config.directory.file_mode,
        page_size=config.storage.page_bytes,
        idle_term_timeout_ns=config.storage.idle_term_timeout_ns,
        term_length=pubs.term_length_bytes,
        ipc_term_length=pubs.ipc_term_length_bytes,
        mtu=pubs.mtu_bytes,
        ipc_mtu=pubs.ipc_mtu_bytes,
        publication_window=pubs.window_bytes,
        default_policy=config.backpressure.default_policy.replace("-", "_"),
        default_depth=config.backpressure.default_queue_depth.bytes,
        default_depth_messages=config.backpressure.default_queue_depth.messages,
        low_watermark_ratio=config.backpressure.low_watermark_ratio,
        auto_priority=config.scheduler.auto_priority,
        receiver_window=subs.receiver_window_bytes,
        default_credits=config.credits.default_credits,
        credit_policy=config.credits.policy,
        credit_message_bytes=config.credits.max_message_bytes,
        credit_idle_timeout_ns=config.credits.idle_timeout_ns,
        congestion_control=subs.congestion_control,
        cubic_reno_friendly=subs.cubic_reno_friendly,
        max_resend=pubs.max_resend,
        unicast_flow_control=pubs.unicast_flow_control,
        multicast_flow_control=pubs.multicast_flow_control,
        flow_control_group_tag=pubs.flow_control_group_tag,
        rules=config.stream,
        sparse=pubs.sparse,
        reliable=subs.reliable,
        tether=subs.tether,
        rejoin=subs.rejoin,
        spies_simulate_connection=pubs.spies_simulate_connection,
        gso=sockets.gso,
        gro=sockets.gro,
        sndbuf_bytes=sockets.sndbuf_bytes,
        rcvbuf_bytes=sockets.rcvbuf_bytes,
        multicast_ttl=sockets.multicast_ttl,
        sender_port_range=sockets.sender_ports,
        receiver_port_range=sockets.receiver_ports,
        receiver_group_tag=subs.group_tag,
        linger_ns=pubs.linger_ns,
        image_linger_ns=times.image_linger_ns,
        resolution_interval_ns=times.resolution_interval_ns,
        untethered_window_limit_timeout_ns=times.untethered_window_limit_timeout_ns,
        untethered_linger_timeout_ns=times.untethered_linger_timeout_ns,
        untethered_resting_timeout_ns=times.untethered_resting_timeout_ns,
        stream_session_limit=limits.sessions_per_stream,
        reserved_session_low=limits.reserved_session_low,
        reserved_session_high=limits.reserved_session_high,
        max_queued_commands=limits.queued_commands,
        reattach_timeout_ns=times.reattach_timeout_ns,
    )
