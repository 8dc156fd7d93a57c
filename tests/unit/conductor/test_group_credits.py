# SPDX-License-Identifier: Apache-2.0
"""Consumer groups that grant credits, in the conductor."""

from __future__ import annotations

from typing import Any

import pytest
from conductor_rig import SECOND_NS
from group_rig import UDP, GroupRig

from penstock.config.protocol import control
from penstock.core.credits import CreditState, CreditView
from penstock.core.driver_types import EventType, ObjectKind
from penstock.daemon.conductor import actions as a
from penstock.daemon.conductor.actions.credits import ReadCredits, SetImageCredits

FIVE = UDP + "|ps-credits=5"
STREAM = 7


class CreditRig(GroupRig):
    """Agents that apply a freeze when the test says so."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.epoch = 1
        self.state_of_credits = CreditState.GRANTING
        self.returned = 0

    def _perform_native(self, action: a.Action) -> Any:
        if isinstance(action, ReadCredits):
            settled = self.state_of_credits == CreditState.SETTLED
            return CreditView(
                credits=5, burst=5, passed=self.returned, returned=self.returned, leaked=0,
                granted=5 + self.returned, final=3 if settled else -1, epoch=self.epoch,
                state=self.state_of_credits,
            )
        return super()._perform_native(action)

    def ask(self, action: str, **fields: Any) -> Any:
        return self.group(control.WithholdStream(stream_id=STREAM, action=action, **fields))


def opened(channel: str = FIVE) -> CreditRig:
    rig = CreditRig()
    assert isinstance(rig.open(channel), control.GroupReply)
    rig.setup(rig.endpoint(), session_id=42)
    rig.ends[rig.image()] = 0
    return rig


def test_the_subscription_of_a_group_grants_the_credits_of_its_channel() -> None:
    rig = opened()
    params = rig.last(a.AddImageSubscriber).params
    assert (params.credits, params.frozen) == (5, False)
    assert rig.last(a.AddImageObject).params.window_bytes > 1 << 16


@pytest.mark.parametrize("settings", [{"default_credits": "9"}, {"credit_policy": "round_robin"}])
def test_defaults_of_credits_are_not_for_groups_that_state_none(settings: dict[str, Any]) -> None:
    rig = CreditRig(**settings)
    rig.open(UDP)
    rig.setup(rig.endpoint(), session_id=42)
    assert rig.last(a.AddImageSubscriber).params.credits == 0


def test_an_acknowledgement_returns_the_credits_up_to_the_end_of_the_log() -> None:
    rig = opened()
    [log] = rig.state.images.values()
    rig.ends[rig.image()] = 640
    rig.acknowledge(320, FIVE)
    released = rig.last(a.ReleaseTo)
    assert (released.position, released.credit_path) == (320, log.log.path)
    rig.acknowledge(960, FIVE)
    assert rig.last(a.ReleaseTo).position == 640
    rig.ends[rig.image()] = 800
    rig.logs(FIVE)
    assert rig.last(a.ReleaseTo).position == 800
    rig.ends[rig.image()] = 9600
    rig.logs(FIVE)
    assert rig.last(a.ReleaseTo).position == 960
    number = len(rig.all(a.ReleaseTo))
    rig.logs(FIVE)
    assert len(rig.all(a.ReleaseTo)) == number


def test_a_group_without_credits_counts_nothing() -> None:
    rig = opened(UDP)
    rig.acknowledge(320)
    assert rig.last(a.ReleaseTo).credit_path == ""


@pytest.mark.parametrize("other", [UDP, UDP + "|ps-credits=6", UDP + "|ps-credits=5|mtu=2048"])
def test_members_state_the_same_credits(other: str) -> None:
    rig = opened()
    answer = rig.open(other)
    if "mtu" in other:                          # a group of its own, as without credits
        assert isinstance(answer, control.GroupReply)
        return
    assert answer.code == "invalid_channel"
    assert f"is open on {FIVE}: state the same credits instead of {other}" in answer.message
    rig.group(control.CloseGroup(name="query", channel=FIVE, stream_id=STREAM))
    assert isinstance(rig.open(other), control.GroupReply)


def test_a_group_is_withheld_by_its_name() -> None:
    rig = opened()
    rig.open(UDP + "|ps-credits=5|alias=b", name="other")
    report = rig.ask("withhold", group="query")
    assert (report.withheld, report.complete, len(report.readers)) == (True, False, 1)
    [frozen] = [each for each in rig.all(SetImageCredits) if each.frozen]
    assert frozen.credits == 5
    assert report.readers["0"]["client"] == "query"
    assert rig.ask("report", group="other").withheld is False
    assert rig.ask("report", group="query", channel=FIVE).withheld is True
    unknown = rig.ask("report", group="nobody")
    assert (unknown.code, "of group nobody" in unknown.message) == ("unknown_registration", True)
    rig.ask("resume", group="query")
    assert rig.last(SetImageCredits).frozen is False


def test_the_end_of_an_earlier_freeze_completes_no_later_one() -> None:
    rig = opened()
    rig.ask("withhold")
    rig.epoch, rig.state_of_credits, rig.returned = 2, CreditState.SETTLED, 2
    assert not rig.ask("report").complete
    rig.returned = 3
    assert rig.ask("report").complete
    rig.ask("resume")
    assert not rig.ask("withhold").complete     # the agent has not applied the resume yet
    assert not rig.ask("report").complete
    rig.epoch = 4
    assert rig.ask("report").complete


def test_an_image_without_a_frame_is_outstanding_until_it_has_one_or_ends() -> None:
    rig = CreditRig()
    rig.open(FIVE)
    rig.setup(rig.endpoint(), session_id=42, established=False)
    report = rig.ask("withhold")
    assert (report.complete, report.readers["0"]["state"]) == (False, "half_open")
    assert report.readers["0"]["session_id"] == 42
    rig.event(EventType.IMAGE_ESTABLISHED, kind=ObjectKind.IMAGE, id=rig.image())
    rig.epoch, rig.state_of_credits = 2, CreditState.SETTLED
    assert rig.ask("report").readers["0"]["state"] == "settled"
    rig.returned = 3
    assert rig.ask("report").complete


def test_a_freeze_of_a_group_outlives_its_members_and_not_the_group() -> None:
    rig = opened()
    rig.ask("withhold", group="query")
    rig.setup(rig.endpoint(), session_id=43)
    assert rig.last(a.AddImageSubscriber).params.frozen
    rig.advance(31 * SECOND_NS / SECOND_NS)
    assert rig.ask("report").code == "unknown_registration"
