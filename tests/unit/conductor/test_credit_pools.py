# SPDX-License-Identifier: Apache-2.0
"""Pools of credits in the conductor: shares of publishers, what is refused, automatic numbers."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from conductor_rig import Rig

from penstock.config.protocol import control
from penstock.config.settings.models import StreamRule
from penstock.core.credits import CAP_CREDITS, CreditState, CreditView
from penstock.daemon.conductor import actions as a
from penstock.daemon.conductor.actions.credits import (
    ReadCredits,
    ReadRoundTrip,
    SetImageCredits,
    SetPublicationCredits,
)

UDP = "aeron:udp?endpoint=10.0.0.1:4000"
STEP_S = 0.125


@attrs.define
class Stream:
    """A publisher and its reader, as their agents show them."""

    rate: float                         # messages a second
    credits: int = 0
    frozen: bool = False
    limit: int = 0
    sent: int = 0
    owed: float = 0.0
    allowed: float = 0.0                # part of a message that the credits allow
    final: int = -1
    round_trip_s: float = 0.002
    deaf: bool = False                  # its sender acknowledges nothing
    stalled: bool = False               # the application returns nothing
    polled: bool = True                 # the application sees what arrives
    returned: int = 0

    def told(self, credits: int, *, frozen: bool) -> None:
        lowers = credits < self.credits or frozen != self.frozen
        self.credits, self.frozen = credits, frozen
        if lowers and not self.deaf:
            self.limit = max(self.sent, self.returned + (0 if frozen else credits))
            self.final = self.sent
        elif lowers:
            self.final = -1

    @property
    def outstanding(self) -> int:
        return 0 if self.frozen else max(self.limit, self.returned + self.credits) - self.returned

    def run(self, seconds: float) -> None:
        most = self.rate * seconds + self.owed
        if self.frozen:
            sent = 0
        elif self.stalled:
            sent = min(int(most), max(self.returned + self.credits, self.limit) - self.sent)
        else:
            self.allowed += self.credits * seconds / self.round_trip_s
            sent = min(int(most), int(self.allowed))
            self.allowed = min(self.allowed - sent, 1.0)
        self.owed = min(most - sent, 100.0)
        self.sent += sent
        if not self.stalled:
            self.returned = self.sent
        if not self.frozen:
            self.limit = max(self.limit, self.returned + self.credits)


class Pool(Rig):
    """A conductor whose readers' agents are models."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.streams: list[Stream] = []
        self.by_slot: dict[int, Stream] = {}
        self.by_counter: dict[int, Stream] = {}
        self.peak = 0

    def _perform_native(self, action: a.Action) -> Any:
        match action:
            case a.AddImageSubscriber(params=params) | a.AddPublicationSubscriber(params=params):
                stream = self.streams[len(self.by_slot)]
                stream.credits, stream.frozen = params.credits, params.frozen
                self.by_slot[params.slot] = self.by_counter[params.position_counter_id] = stream
            case SetImageCredits() | SetPublicationCredits() if action.position_counter_id >= 0:
                self.by_counter[action.position_counter_id].told(
                    action.credits, frozen=action.frozen
                )
            case ReadCredits(slot=slot):
                stream = self.by_slot[slot]
                return CreditView(
                    credits=stream.credits, burst=stream.credits,
                    passed=stream.sent if stream.polled else stream.returned,
                    returned=stream.returned, leaked=0, granted=stream.limit,
                    final=stream.final, epoch=1, state=CreditState.GRANTING, arrived=stream.sent,
                )
            case ReadRoundTrip(slot=slot):
                (image,) = [i for i in self.state.images.values() if i.slot == slot]
                return int(self.streams[image.session_id - 1].round_trip_s * 1e9)
            case _:
                return super()._perform_native(action)
        return None

    def add(self, *rates: float) -> None:
        """Publishers of the one stream join."""
        endpoint = self.last(a.OpenRecvEndpoint).params.id
        for rate in rates:
            self.streams.append(Stream(rate))
            self.setup(endpoint, session_id=len(self.streams), peer_capabilities=CAP_CREDITS | 1)

    def steps(self, count: int) -> None:
        for _ in range(count):
            for stream in self.streams:
                stream.run(STEP_S)
            self.advance(STEP_S)
            self.peak = max(self.peak, self.outstanding)

    @property
    def outstanding(self) -> int:
        return sum(stream.outstanding for stream in self.by_slot.values())

    @property
    def shares(self) -> list[int]:
        return [0 if s.frozen else s.credits for s in self.streams]


def pool_of(options: str, **settings: Any) -> Pool:
    pool = Pool(**settings)
    pool.sub(pool.client("reader"), f"{UDP}|{options}")
    return pool


def test_without_a_policy_each_publisher_gets_all_credits() -> None:
    pool = pool_of("ps-credits=10")
    pool.add(1e6, 1e6)
    pool.steps(10)
    assert pool.shares == [10, 10]


def test_a_pool_is_divided_equally_and_never_exceeded() -> None:
    pool = pool_of("ps-credits=100|ps-credit-policy=round_robin")
    pool.add(1e6)
    assert pool.shares == [100]
    pool.steps(4)
    pool.add(1e6, 1e6, 1e6)
    assert pool.shares == [100, 0, 0, 0]        # no credit came back yet
    pool.steps(6)
    assert pool.shares == [25, 25, 25, 25]
    assert pool.peak == 100


def test_the_streams_of_a_client_share_a_pool() -> None:
    pool = Pool()
    reader, options = pool.client("reader"), "ps-credits=60|ps-credit-pool=client"
    endpoints = []
    for stream_id in (7, 8):
        pool.sub(reader, f"{UDP}|{options}", stream_id)
        endpoints.append((pool.last(a.OpenRecvEndpoint).params.id, stream_id))
    pool.sub(reader, f"{UDP}|ps-credits=60", 9)
    for session_id, (endpoint, stream_id) in enumerate([*endpoints, *endpoints, endpoints[0]], 1):
        pool.streams.append(Stream(1e6))
        pool.setup(endpoint, stream_id=stream_id, session_id=session_id,
                   peer_capabilities=CAP_CREDITS | 1)
    pool.streams.append(Stream(1e6))
    pool.setup(endpoints[0][0], stream_id=9, session_id=9, peer_capabilities=CAP_CREDITS | 1)
    pool.steps(10)
    assert pool.shares == [12, 12, 12, 12, 12, 60]      # the last one is not of the pool
    assert pool.peak <= 60 + 60
    for subscription in list(pool.state.subscriptions.values()):
        if subscription.stream_id == 7:
            pool.request(reader, control.RemoveSubscription(registration_id=subscription.id))
    for stream in (0, 2, 4):
        pool.streams[stream].told(0, frozen=True)       # their readers have gone
    pool.steps(10)
    assert pool.shares == [0, 30, 0, 30, 0, 60]


def test_a_withheld_subscription_keeps_its_credits_of_a_client_s_pool() -> None:
    pool = Pool()
    reader = pool.client("reader")
    for session_id, stream_id in enumerate((7, 8), 1):
        pool.sub(reader, f"{UDP}|ps-credits=40|ps-credit-pool=client", stream_id)
        pool.streams.append(Stream(1e6))
        pool.setup(pool.last(a.OpenRecvEndpoint).params.id, stream_id=stream_id,
                   session_id=session_id, peer_capabilities=CAP_CREDITS | 1)
    pool.steps(10)
    assert pool.shares == [20, 20]
    first = min(pool.state.subscriptions)
    pool.request(reader, control.WithholdCredits(registration_id=first, withheld=True))
    pool.steps(10)
    assert pool.shares == [0, 20]
    pool.request(reader, control.WithholdCredits(registration_id=first, withheld=False))
    pool.steps(10)
    assert pool.shares == [20, 20]


def test_an_image_of_a_pool_grants_nothing_before_its_reader_joins() -> None:
    pool = pool_of("ps-credits=100|ps-credit-policy=round_robin")
    pool.add(1e6)
    assert pool.last(a.AddImageObject).params.frozen


def test_five_publishers_of_very_different_rates_get_max_min_fair_shares() -> None:
    pool = pool_of("ps-credits=60|ps-credit-policy=round_robin")
    pool.add(10, 100, 1e5, 1e5, 1e5)
    pool.steps(1000)
    slow, busy = pool.streams[:2], pool.streams[2:]
    assert [s.sent for s in slow] == [1250, 12500]      # they asked for less and got it
    mean = sum(s.sent for s in busy) / len(busy)
    assert all(abs(s.sent - mean) <= 0.01 * mean for s in busy)
    assert pool.peak <= 60


def test_weights_of_rules_divide_a_pool() -> None:
    rules = tuple(StreamRule(session_id=i, credit_weight=i) for i in (1, 2, 3, 4, 5))
    pool = pool_of("ps-credits=1500|ps-credit-policy=weighted|rcv-wnd=4m", rules=rules)
    pool.add(*[1e7] * 5)
    pool.steps(10)
    before = [s.sent for s in pool.streams]
    pool.steps(1000)
    sent = [s.sent - b for s, b in zip(pool.streams, before, strict=True)]
    for number, count in enumerate(sent, 1):
        assert abs(count / sum(sent) - number / 15) <= 0.01 * number / 15
    assert pool.peak <= 1500


def test_the_weight_that_a_remote_publisher_states_divides_a_pool() -> None:
    """A rule of this host takes precedence; without any weight, it is 1."""
    rules = (StreamRule(session_id=3, credit_weight=1),)
    pool = pool_of("ps-credits=600|ps-credit-policy=weighted|rcv-wnd=4m", rules=rules)
    endpoint = pool.last(a.OpenRecvEndpoint).params.id
    for session_id, weight in ((1, 4), (2, 0), (3, 1000)):
        pool.streams.append(Stream(rate=1e7))
        pool.setup(endpoint, session_id=session_id, peer_capabilities=CAP_CREDITS | 1,
                   peer_credit_weight=weight)
    pool.steps(10)
    assert pool.shares == [400, 100, 100]


def test_fifo_serves_one_hungry_publisher_after_the_other() -> None:
    pool = pool_of("ps-credits=30|ps-credit-policy=fifo")
    pool.add(1e6, 1e6, 1e6)
    served = []
    for _ in range(60):
        pool.steps(1)
        if max(pool.shares) == 28:
            served.append(pool.shares.index(28))
    assert set(served) == {0, 1, 2}
    assert pool.peak <= 30


@pytest.mark.parametrize("round_trip_s", [0.2, 0.5, 1.0, 2.0])
def test_a_round_trip_longer_than_a_division_takes_no_credit_away(round_trip_s: float) -> None:
    """A publisher that waits for credit uses only a part of its share in a division."""
    pool = pool_of("ps-credits=100|ps-credit-policy=round_robin")
    pool.add(1e6, 1e6)
    pool.streams[0].round_trip_s = round_trip_s
    pool.steps(20 + int(8 * round_trip_s / STEP_S))
    assert pool.shares == [50, 50]
    pool.streams[0].rate = 4 / round_trip_s         # so many credits are on the way
    pool.steps(20 + int(8 * round_trip_s / STEP_S))
    assert 4 <= pool.shares[0] <= 40
    assert pool.peak <= 100


def test_a_publisher_whose_messages_have_all_arrived_waits_for_credit() -> None:
    """Its reader has not polled since, so it has passed and returned nothing."""
    pool = pool_of("ps-credits=40|ps-credit-policy=round_robin")
    pool.add(1e6, 10)
    pool.steps(12)
    first, second = pool.streams
    assert pool.shares[0] > 20
    second.rate, second.stalled, second.polled = 1e6, True, False
    pool.steps(12)
    assert pool.shares == [20, 20]
    assert first.sent > second.sent


@pytest.mark.parametrize("policy", ["round_robin", "weighted"])
def test_the_credit_that_does_not_divide_goes_round(policy: str) -> None:
    """A pool of 7 gives two publishers 3 and 4 credits by turns."""
    pool = pool_of(f"ps-credits=7|ps-credit-policy={policy}")
    pool.add(1e6, 1e6)
    pool.steps(10)
    sums = [0, 0]
    for _ in range(1000):
        pool.steps(1)
        sums = [total + share for total, share in zip(sums, pool.shares, strict=True)]
    assert abs(sums[0] - sums[1]) <= 0.01 * sum(sums) / 2, sums
    assert sum(sums) >= 6700
    assert pool.peak <= 7


def test_the_deficit_policy_pays_back_over_rounds() -> None:
    pool = pool_of("ps-credits=90|ps-credit-policy=deficit")
    pool.add(1e6, 1e6, 1e6)
    pool.steps(400)
    sent = [s.sent for s in pool.streams]
    assert max(sent) - min(sent) <= 0.05 * max(sent)
    assert pool.peak <= 90


def test_an_idle_publisher_gives_its_credits_back_after_the_time_out() -> None:
    pool = pool_of("ps-credits=64|ps-credit-policy=round_robin",
                   credit_idle_timeout_ns=2 * 10**9)
    pool.add(1e6, 1e6)
    pool.steps(10)
    assert pool.shares == [32, 32]
    pool.streams[0].rate = 0
    pool.steps(12)
    assert pool.shares == [32, 32]
    pool.steps(8)
    assert pool.shares[0] <= 2
    assert pool.shares[1] >= 62
    pool.streams[0].rate = 1e6
    pool.steps(6)
    assert pool.shares == [32, 32]


def test_credits_that_a_sender_has_not_acknowledged_stay_where_they_are() -> None:
    pool = pool_of("ps-credits=40|ps-credit-policy=round_robin")
    pool.add(1e6)
    pool.steps(2)
    pool.streams[0].deaf = True
    pool.add(1e6)
    pool.steps(20)
    assert pool.shares == [20, 0]
    pool.streams[0].final = pool.streams[0].sent
    pool.steps(4)
    assert pool.shares == [20, 20]


def test_credits_that_an_application_holds_stay_where_they_are() -> None:
    pool = pool_of("ps-credits=40|ps-credit-policy=round_robin")
    pool.add(1e6)
    pool.steps(2)
    first = pool.streams[0]
    first.stalled = True
    pool.add(1e6)
    pool.steps(20)
    assert pool.outstanding <= 40
    assert pool.shares[1] == 0
    first.stalled = False
    pool.steps(6)
    assert pool.shares == [20, 20]


def test_the_pool_of_a_publisher_that_leaves_is_that_of_the_others() -> None:
    pool = pool_of("ps-credits=40|ps-credit-policy=round_robin")
    pool.add(1e6, 1e6)
    pool.steps(6)
    first = pool.last(a.AddImageObject).params
    image = pool.state.images[first.id]
    pool.request(
        image.subscribers[next(iter(image.subscribers))].subscription.client.id,
        control.WithholdCredits(registration_id=next(iter(image.subscribers)), withheld=True),
    )
    pool.steps(6)
    assert pool.shares == [0, 0]
    pool.request(
        image.subscribers[next(iter(image.subscribers))].subscription.client.id,
        control.WithholdCredits(registration_id=next(iter(image.subscribers)), withheld=False),
    )
    pool.steps(6)
    assert pool.shares == [20, 20]


# ---- what is refused -------------------------------------------------------------------------


def test_more_publishers_than_credits_are_refused_with_both_numbers() -> None:
    pool = pool_of("ps-credits=2|ps-credit-policy=round_robin")
    pool.add(1e6, 1e6)
    pool.setup(pool.last(a.OpenRecvEndpoint).params.id, session_id=9,
               peer_capabilities=CAP_CREDITS | 1)
    assert len(pool.all(a.AddImageObject)) == 2
    refused = [e for e in pool.all(a.PublishEvent) if e.name == "refused"][-1].fields
    assert refused["code"] == "limit"
    assert "ps-credits=2" in refused["message"]
    assert "publisher 3" in refused["message"]


@pytest.mark.parametrize(("first", "second"), [
    ("ps-credits=5", "ps-credits=6"), ("ps-credits=5", "ps-credits=auto"),
    ("ps-credits=5", "ps-credits=5|ps-credit-policy=fifo"),
])
def test_other_credits_than_those_of_the_client_s_pool_are_refused(
    first: str, second: str
) -> None:
    rig = Rig()
    client = rig.client()
    rig.sub(client, f"{UDP}|ps-credit-pool=client|{first}", 7)
    answer = rig.sub(client, f"{UDP}|ps-credit-pool=client|{second}", 8)
    assert answer.code == "invalid_channel"
    assert "ps-credits=5 with ps-credit-policy=round_robin" in answer.message
    assert "stream 7" in answer.message
    other = rig.sub(rig.client(), f"{UDP}|ps-credit-pool=client|{second}", 8)
    assert other.registration_id


def test_a_burst_contradicts_a_client_s_pool() -> None:
    rig = Rig()
    options = "ps-credits=5|ps-credit-burst=9|ps-credit-pool=client"
    answer = rig.sub(rig.client(), f"{UDP}|{options}")
    assert answer.code == "invalid_channel"
    assert "ps-credit-burst=9 contradicts ps-credit-pool=client" in answer.message


@pytest.mark.parametrize("policy", ["channel", "configuration"])
def test_a_burst_contradicts_a_pool(policy: str) -> None:
    settings = {"credit_policy": "fifo"} if policy == "configuration" else {}
    rig = Rig(**settings)
    named = "|ps-credit-policy=fifo" if policy == "channel" else ""
    answer = rig.sub(rig.client(), f"{UDP}|ps-credits=5|ps-credit-burst=9{named}")
    assert answer.code == "invalid_channel"
    assert "ps-credit-burst=9 contradicts" in answer.message
    assert "fifo" in answer.message


@pytest.mark.parametrize("capabilities", [0, 1 | 2 | 4])
def test_a_sender_without_credits_is_refused_where_credits_are_required(capabilities: int) -> None:
    rig = Rig()
    rig.sub(rig.client(), f"{UDP}|ps-credits=5|ps-credits-required=true")
    endpoint = rig.last(a.OpenRecvEndpoint).params.id
    rig.setup(endpoint, peer_capabilities=capabilities)
    assert not rig.all(a.AddImageObject)
    told = rig.last(a.RefuseSession)
    assert "ps-credits-required=true" in told.reason
    assert "ps-credits=5" in told.reason
    rig.setup(endpoint, peer_capabilities=CAP_CREDITS | 1)
    assert len(rig.all(a.AddImageObject)) == 1


def test_a_sender_without_credits_is_accepted_where_they_are_not_required() -> None:
    rig = Rig()
    rig.sub(rig.client(), f"{UDP}|ps-credits=5")
    rig.setup(rig.last(a.OpenRecvEndpoint).params.id)
    assert len(rig.all(a.AddImageObject)) == 1


# ---- automatic -------------------------------------------------------------------------------


def test_automatic_credits_follow_the_traffic() -> None:
    pool = pool_of("ps-credits=auto|rcv-wnd=1m")
    pool.add(4000)
    assert pool.shares == [64]
    pool.steps(10)
    grown = pool.shares[0]
    assert 4000 * STEP_S < grown <= 4 * 4000 * STEP_S
    pool.streams[0].rate = 1e7
    pool.steps(20)
    assert pool.shares == [(1 << 20) // 1408]           # what the window has room for
    pool.streams[0].rate = 10
    pool.steps(20)
    assert pool.shares == [64]


def test_an_automatic_pool_grows_for_all() -> None:
    pool = pool_of("ps-credits=auto|ps-credit-policy=round_robin|rcv-wnd=1m")
    pool.add(1e7, 1e7)
    pool.steps(20)
    assert sum(pool.shares) == (1 << 20) // 1408
    assert abs(pool.shares[0] - pool.shares[1]) <= 1
