# SPDX-License-Identifier: Apache-2.0
"""Address arithmetic: control addresses of groups, and which interface a channel takes."""

from __future__ import annotations

import pytest

from penstock.config import uri
from penstock.core.driver_types import Address, compute_position, log_file_length
from penstock.daemon.addressing import (
    AddressingError,
    LocalInterface,
    any_interface,
    choose_interface,
    multicast_control,
)

LO = LocalInterface(name="lo", index=1, ip="127.0.0.1", prefix_length=8, is_loopback=True)
ETH0 = LocalInterface(name="eth0", index=2, ip="10.0.0.1", prefix_length=16)
ETH1 = LocalInterface(name="eth1", index=3, ip="10.0.1.1", prefix_length=24)
DOWN = LocalInterface(name="eth2", index=4, ip="10.0.2.1", prefix_length=30, is_up=False)
TUN = LocalInterface(name="tun0", index=5, ip="10.9.0.1", prefix_length=32, is_multicast=False)
V6 = LocalInterface(name="eth0", index=2, ip="fe80::1", prefix_length=64)
ALL = (LO, ETH0, ETH1, DOWN, TUN, V6)


def spec(text: str) -> uri.Interface:
    parsed = uri.parse(f"aeron:udp?endpoint=10.0.0.1:1|interface={text}").interface
    assert parsed is not None
    return parsed


@pytest.mark.parametrize(
    ("data", "control"),
    [("239.20.0.1", "239.20.0.2"), ("239.20.0.255", "239.20.0.0"), ("ff02::1", "ff02::2")],
)
def test_the_control_address_is_the_next(data: str, control: str) -> None:
    assert multicast_control(Address(ip=data, port=5)) == Address(ip=control, port=5)


def test_an_even_group_is_refused() -> None:
    with pytest.raises(AddressingError, match="odd"):
        multicast_control(Address(ip="239.20.0.2", port=5))


@pytest.mark.parametrize(
    ("text", "multicast", "chosen"),
    [
        ("0.0.0.0/0", True, ETH1),          # the longest own netmask, not loopback
        ("10.0.0.0/16", True, ETH1),
        ("10.0.0.1", True, ETH0),
        ("127.0.0.1", True, LO),
        ("{eth0}", True, ETH0),
        ("127.0.0.0/8", False, LO),
        ("10.9.0.0/16", False, TUN),
    ],
)
def test_the_interface_that_is_chosen(
    text: str, multicast: bool, chosen: LocalInterface
) -> None:
    assert choose_interface(ALL, spec(text), family=4, multicast=multicast) == chosen


@pytest.mark.parametrize("text", ["192.168.0.0/16", "{nope}", "10.0.2.1", "10.9.0.1"])
def test_an_interface_that_is_not_there_is_named(text: str) -> None:
    with pytest.raises(AddressingError) as caught:
        choose_interface(ALL, spec(text), family=4, multicast=True)
    assert caught.value.code == "no_interface"
    assert text in str(caught.value)


def test_families_do_not_mix() -> None:
    assert choose_interface(ALL, any_interface(6), family=6, multicast=True) == V6


def test_positions_survive_the_wrap_of_term_ids() -> None:
    assert compute_position(-(2**31), 64, 2**31 - 1, 65536) == 65536 + 64


def test_a_log_file_has_three_terms_and_metadata() -> None:
    assert log_file_length(65536) == 3 * 65536 + 4096
    assert log_file_length(65536, 65536) == 4 * 65536
