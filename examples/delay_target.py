# SPDX-License-Identifier: Apache-2.0
"""A congestion control of one's own: keep the queue of the path near 10 ms.

CUBIC fills the queue of the narrowest link before it slows down. This class slows down when the
round trip grows, so the queue and the latency stay small. Run this file to see it in the simulator
beside CUBIC:

    python examples/delay_target.py

To use it, start the daemon of the receiver where this module can be imported, and subscribe to
aeron:udp?endpoint=10.0.0.2:40456|cc=py:delay_target:DelayTarget|rcv-wnd=2m
"""

from __future__ import annotations

from typing import Final

from penstock.core.congestion import CongestionView

_TARGET_NS: Final = 10_000_000          # delay in queues
_GAIN: Final = 4                        # datagrams a round trip, far from the target


class DelayTarget:
    """One object for each arriving stream."""

    def __init__(self) -> None:
        self._losses = 0
        self._received = 0
        self._starts = True             # doubles until the queue grows or data is lost

    def on_interval(self, view: CongestionView, now_ns: int) -> int:
        """Return the bytes that may be in flight.  Called once a round trip."""
        lost, self._losses = view.losses > self._losses, view.losses
        arrived, self._received = view.received - self._received, view.received
        window = view.window or view.least
        queue_ns = view.rtt_ns - view.least_rtt_ns
        if lost:
            self._starts = False
            return window * 7 // 10
        if view.rtt_ns == 0 or arrived < window // 2:
            return window               # nothing measured, or the sender did not use it
        if self._starts and queue_ns < _TARGET_NS // 2:
            return 2 * window
        self._starts = False
        step = _GAIN * view.mtu * (_TARGET_NS - queue_ns) // _TARGET_NS
        return window + max(step, -window // 4)


def main() -> None:
    """Show both on 20 Mbit/s, 40 ms, with a queue of 250 ms."""
    from penstock.sim.core import Link
    from penstock.sim.scenario import PublisherScript, Scenario, SubscriberScript
    from penstock.sim.world import World

    seconds, ms_ns, second_ns = 60, 1_000_000, 1_000_000_000
    for cc in ("cubic", "py:delay_target:DelayTarget"):
        scenario = Scenario(
            name="delay-target", hosts=2,
            link=Link(delay_ns=20 * ms_ns, bandwidth_bytes_per_s=2_500_000, queue_bytes=625_000),
            publishers=(PublisherScript(
                host=0, channel="aeron:udp?endpoint=10.0.0.2:40456|term-length=4m",
                count=1_000_000, size_low=1344, size_high=1344,
            ),),
            subscribers=(SubscriberScript(
                host=1, channel=f"aeron:udp?endpoint=10.0.0.2:40456|cc={cc}|rcv-wnd=2m",
            ),),
            limit_ns=(seconds + 1) * second_ns,
        )
        with World(scenario, seed=1) as world:
            world.run_until(seconds * second_ns // 2)
            publisher, subscriber = world.publishers[0], world.subscribers[0]
            before = subscriber.reader(publisher.ledgers[-1]).bytes
            worst_ns = 0
            for tenth in range(seconds * 5, seconds * 10):
                world.run_until(tenth * second_ns // 10)
                worst_ns = max(worst_ns, world.hosts[1].images()[0].rtt_ns)
            bytes_read = subscriber.reader(publisher.ledgers[-1]).bytes - before
        rate = bytes_read / (seconds / 2) / 2_500_000
        print(f"{cc.split(':')[-1]:12} {rate:4.0%} of the link, round trip up to "
              f"{worst_ns / ms_ns:3.0f} ms")


if __name__ == "__main__":
    main()
