# SPDX-License-Identifier: Apache-2.0
"""``penstock ping``: measures round trips to a ``penstock pong``."""

from __future__ import annotations

import struct
import time
from typing import Any, Final

import click

from penstock.cli._common import (
    connect_option,
    connected,
    directory_option,
    json_option,
    parse_count,
    print_json,
    reattach_option,
    wait_for_receiver,
)
from penstock.cli._ping_options import both_ways
from penstock.client import Header, Publication, Subscription
from penstock.core.errors import TimeoutExpired

_SENT_AT: Final = struct.Struct("<q")


@click.command("ping", short_help="Time round trips to a 'penstock pong'.")
@both_ways
@click.option("--count", type=parse_count, metavar="COUNT", default="1000", show_default=True,
              help="Round trips.")
@click.option("--warmup", type=parse_count, metavar="COUNT", default="100", show_default=True,
              help="Round trips before those that count.")
@click.option("--size", type=click.IntRange(min=_SENT_AT.size), default=32, show_default=True,
              help="Bytes of a message.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0, min_open=True), default=10.0,
              show_default=True, help="Seconds to wait for pong, and for each answer.")
@json_option
@directory_option
@connect_option
@reattach_option
def command(
    ping_channel: str,
    ping_stream: int,
    pong_channel: str,
    pong_stream: int,
    count: int,
    warmup: int,
    size: int,
    timeout_s: float,
    as_json: bool,
    directory: str | None,
    connect_s: float,
    reattach_s: float,
) -> None:
    """Send messages on the ping channel, and measure the time until each message returns on the
    pong channel.
    """
    with (
        connected(directory, "penstock ping", connect_s, reattach_s) as client,
        client.add_subscription(pong_channel, pong_stream) as pongs,
        client.add_exclusive_publication(ping_channel, ping_stream) as pings,
    ):
        if not wait_for_receiver(pings, timeout_s) or not pongs.wait_connected(timeout_s):
            raise TimeoutExpired(
                f"no pong on {ping_channel} and {pong_channel} within {timeout_s:g} s: "
                "start 'penstock pong' there"
            )
        for _ in range(warmup):
            _round_trip(pings, pongs, size, timeout_s)
        times_ns = sorted(_round_trip(pings, pongs, size, timeout_s) for _ in range(count))
    result = summary(times_ns)
    if as_json:
        print_json({"size": size, **result})
        return
    click.echo(
        f"{result['count']} round trips of {size} bytes: "
        + ", ".join(f"{name} {value:.1f}" for name, value in result["microseconds"].items())
        + " µs"
    )


def summary(times_ns: list[int]) -> dict[str, Any]:
    """Return percentiles of the sorted times, in microseconds."""
    if not times_ns:
        return {"count": 0, "microseconds": {}}

    def at(fraction: float) -> float:
        return times_ns[min(len(times_ns) - 1, int(fraction * len(times_ns)))] / 1000

    return {
        "count": len(times_ns),
        "microseconds": {
            "min": at(0.0),
            "p50": at(0.5),
            "p90": at(0.9),
            "p99": at(0.99),
            "p99.9": at(0.999),
            "max": times_ns[-1] / 1000,
        },
    }


def _round_trip(pings: Publication, pongs: Subscription, size: int, timeout_s: float) -> int:
    sent_at = time.perf_counter_ns()
    stamp = _SENT_AT.pack(sent_at)
    pings.send(stamp + bytes(size - _SENT_AT.size), timeout_s)
    returned: list[int] = []

    def take(message: memoryview, _header: Header) -> None:
        if bytes(message[: _SENT_AT.size]) == stamp:
            returned.append(time.perf_counter_ns())

    while not returned:
        if not pongs.poll(take, 16) and not pongs.wait(timeout_s):
            raise TimeoutExpired(f"a ping did not come back within {timeout_s:g} s")
    return returned[0] - sent_at
