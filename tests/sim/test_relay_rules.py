# SPDX-License-Identifier: Apache-2.0
"""Relays in virtual time. A relay, a core or a conductor that breaks one rule of relays is found by
a generated scenario, among the first 2000 seeds. Only seeds that meet the rule are run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
from support import first_seeds
from support.old_core import OldCore, Patch
from support.seeds import classes_of, seeds_where

from penstock.client._offer import Offer
from penstock.client._relay import Relay
from penstock.client._relay_leg import Leg
from penstock.client._relay_state import Cell
from penstock.core.client import pub_pressure
from penstock.core.relay import img_take_over, pub_take_over
from penstock.daemon.conductor import conductor
from penstock.daemon.conductor.saga import Saga
from penstock.daemon.conductor.sagas import adopt, clients
from penstock.sim import files, library
from penstock.sim.generate.fuzz import generate
from penstock.sim.oracles.relays import relay_faults
from penstock.sim.runner import attempt
from penstock.sim.scenario import SECOND_NS, HostScript, RelayScript, Scenario
from penstock.sim.world import World

ADOPT_IMAGE = adopt._image
#: Seeds of one kind that are run at most.
TRIED = 12
FAULTS_OVER_S = 15
KINDS = (
    "relay", "relay: killed", "relay: two", "relay: circle", "relay: ipc", "relay: unicast",
    "relay: daemon dies", "relay: host dies", "relay: drop_newest", "relay: drop_oldest",
    "relay: rate_limit",
)


def seeds_with(*kinds: str) -> Iterator[int]:
    return seeds_where(lambda seed: set(kinds) <= set(classes_of(seed)), TRIED)


def relayed(**changes: Any) -> Scenario:
    """The scenario of the library, with changes of its relay."""
    scenario = files.load(library.path_of("relay"))
    return attrs.evolve(scenario, relays=(attrs.evolve(scenario.relays[0], **changes),))


def test_a_twentieth_of_the_seeds_has_each_kind() -> None:
    found = [name for seed in range(1, 501) for name in classes_of(seed)]
    for name in KINDS:
        assert found.count(name) >= 25, name


def test_a_twentieth_of_the_seeds_passes_a_reason_up() -> None:
    """Measured: a third of the seeds with a relay, 37 of the first 300 seeds."""
    drawn = [seed for seed in range(1, 301) if "relay" in classes_of(seed)]
    some = drawn[::2]
    named = sum(
        "relay: passes the reason up" in attempt(generate(seed), seed).rules for seed in some
    )
    assert named / len(some) * len(drawn) >= 300 / 20


def test_the_target_has_each_message_once_however_often_the_relay_dies() -> None:
    points = tuple(range(50, 4000, 101))
    with World(relayed(kills=(), kill_points=points, restart_ns=SECOND_NS // 50), 1) as world:
        assert world.run().violations == ()
        assert world.relays[0].deaths == len(points)
        assert len(world.relays[0].ledgers) == 1


def test_a_relay_that_returns_too_late_publishes_a_new_session_without_a_duplicate() -> None:
    """Its client lingers for 0.2 s, and the next process comes after a second."""
    late = relayed(
        kills=(), kill_points=(601,), restart_ns=SECOND_NS, linger_ns=SECOND_NS // 5
    )
    reader = attrs.evolve(late.subscribers[0], may_join_late=True, may_miss=True, pauses=())
    with World(attrs.evolve(late, subscribers=(reader,)), 1) as world:
        assert world.run().violations == ()
        first, second = world.relays[0].ledgers
        assert world.native.ledger_messages(first) == 301
        assert world.native.relay_next(second) == world.publishers[0].sent
        assert world.native.ledger_messages(second) < world.publishers[0].sent - 301


@pytest.mark.parametrize(
    ("point", "kill_s"),
    [
        (600, None),    # before the offer of a message
        (601, None),    # after the target has accepted it, which the source then skips
        (None, 1.2),    # while its target is full, and after the source has skipped messages
    ],
)
def test_a_relay_that_returns_knows_what_its_source_has_skipped(
    point: int | None, kill_s: float | None
) -> None:
    """Its reader pauses for a second and its next process begins after 0.3 s."""
    scenario = relayed(
        kill_points=() if point is None else (point,),
        kills=() if kill_s is None else (round(kill_s * SECOND_NS),),
        restart_ns=SECOND_NS * 3 // 10,
    )
    publisher = scenario.publishers[0]
    publisher = attrs.evolve(
        publisher, channel=f"{publisher.channel}|ps-policy=drop_oldest|ps-depth=8k", size_low=1
    )
    with World(attrs.evolve(scenario, publishers=(publisher,)), 1) as world:
        assert world.run().violations == ()
        assert world.relays[0].deaths == 1
        (ledger,) = world.relays[0].ledgers
        account = world.native.relay_account(ledger)
        assert account.left_out > 300
        assert account.messages + account.left_out == publisher.count


def test_a_relay_continues_while_its_daemon_is_dead() -> None:
    """Its process also dies before the next daemon starts."""
    scenario = relayed(kills=(SECOND_NS * 6 // 10,), kill_points=(), restart_ns=SECOND_NS // 10)
    dying = HostScript(
        host=1, adopt=True, crash_ns=SECOND_NS // 2, restart_ns=SECOND_NS * 9 // 10
    )
    with World(attrs.evolve(scenario, machines=(dying,)), 1) as world:
        world.run_until(SECOND_NS // 2)
        before = world.native.relay_next(world.relays[0].ledgers[0])
        world.run_until(SECOND_NS * 8 // 10)
        assert not world.relays[0].is_open      # no daemon is there for its next process
        assert world.native.relay_next(world.relays[0].ledgers[0]) >= before
        assert world.run().violations == ()
        assert len(world.relays[0].ledgers) == 1


def test_a_relay_whose_host_returns_begins_a_session() -> None:
    scenario = relayed(kills=(), kill_points=(), may_join_late=True)
    dying = HostScript(host=1, crash_ns=SECOND_NS // 2, restart_ns=SECOND_NS * 7 // 10)
    with World(attrs.evolve(scenario, machines=(dying,)), 1) as world:
        assert world.run().violations == ()
        first, second = map(world.native.relay_account, world.relays[0].ledgers)
        assert second.first >= first.next
        assert second.next == world.publishers[0].sent


def test_the_first_publisher_names_the_reader_behind_two_relays() -> None:
    """The reader stops from 0.8 s to 1.5 s."""
    one = relayed(kills=(), kill_points=())
    two = RelayScript(
        host=2, source=one.subscribers[0].channel, source_stream=1002,
        target="aeron:ipc?term-length=64k", target_stream=1003,
    )
    reader = attrs.evolve(one.subscribers[0], channel="aeron:ipc", stream_id=1003)
    scenario = attrs.evolve(one, relays=(*one.relays, two), subscribers=(reader,))
    with World(scenario, 1) as world:
        world.run_until(SECOND_NS * 145 // 100)
        publication = world.publishers[0]._publication
        assert publication is not None
        view = pub_pressure(publication._open())
        assert view is not None
        assert view.reason_name == "subscriber"
        assert view.backlog_bytes > 2 * 31 * 1024      # what the two relays have not read
        assert world.run().violations == ()


def test_a_relay_that_returns_refuses_a_session_that_has_ended() -> None:
    """Seed 511: it is killed while the image of the session that it had refused lingers."""
    assert attempt(generate(511), 511).violations == ()


# ---- broken relays -------------------------------------------------------------------------------


def releases_first(leg: Any, message: memoryview, reserved_value: int) -> None:
    """Release a message that the target has refused."""
    position = leg.publication.offer(message, reserved_value=reserved_value)
    if position > 0:
        leg.target, leg.ordinal = position, leg.ordinal + 1


def drops_reserved_value(leg: Any, message: memoryview, _reserved_value: int) -> None:
    for _ in range(4):
        position = leg.publication.offer(message)
        if position != Offer.ADMIN_ACTION:
            break
    if position <= 0:
        raise leg._refusal(position)
    leg.target, leg.ordinal = position, leg.ordinal + 1


def counts_nothing(leg: Any) -> None:
    """Go on at the recorded message, whatever the target has already."""
    point = leg.cell.read()
    pub_take_over(leg.publication._open(), point.target, point.ordinal)
    leg.target, leg.ordinal = leg.publication.position, point.ordinal
    leg.source, leg.source_ordinal = point.source, point.source_ordinal
    img_take_over(leg.image._open(), point.source, point.source_ordinal)


def forgets_base(leg: Any) -> None:
    """Forget the number of messages before the recorded position."""
    point = leg.cell.read()
    found = pub_take_over(leg.publication._open(), point.target, point.ordinal)
    leg.target, leg.ordinal = leg.publication.position, found
    leg.source, leg.source_ordinal = 0, 0
    img_take_over(leg.image._open(), 0, 0)


def leaves_out_the_next(leg: Any) -> None:
    """Leave out the next message, which is not the published one if the image skips."""
    point = leg.cell.read()
    found = pub_take_over(leg.publication._open(), point.target, point.ordinal)
    leg.target, leg.ordinal = leg.publication.position, point.ordinal + found
    leg.source, leg.source_ordinal = point.source, point.source_ordinal
    img_take_over(leg.image._open(), point.source, point.source_ordinal)
    offer, left = leg._offer, [found]

    def after_those(message: memoryview, reserved_value: int) -> None:
        if left[0]:
            left[0] -= 1
        else:
            offer(message, reserved_value)

    leg._offer = after_those


def records_no_gap(_leg: Any, _gap: Any) -> None:
    """Do not record that a gap was reported."""


def counts_no_gap(leg: Any, gap: Any) -> None:
    """Record a gap without the number of its messages."""
    leg.source = gap.to_position
    leg._record()


def forgets_the_number(leg: Any) -> None:
    """Record no number of the messages in the source."""
    leg.cell.write(leg.source, leg.target, leg.ordinal, -1)


def records_first(leg: Any, message: memoryview, header: Any) -> None:
    """Record a message before the target has accepted it."""
    if header.position <= leg.skip_to:
        return
    leg.source = header.position
    leg._record()
    leg._offer(message, header.reserved_value)


def records_nothing(_cell: Any, *_point: int) -> None:
    """Do not record the progress."""


def sees_no_loop(_relay: Any, _path: tuple[int, ...]) -> str:
    return ""


def returns_as_a_stranger(_relay: Any) -> None:
    """Connect as a new client, not as that of the last process."""


#: Seeds in which a relay dies whose source skips the oldest messages.
SKIPS = ("relay: drop_oldest", "relay: killed")
#: The rule that is broken, the seeds that meet it, and the method with what it becomes.
RELAYS = (
    ("releases before the target has accepted", ("relay",), Leg, "_offer", releases_first),
    ("drops the reserved value", ("relay",), Leg, "_offer", drops_reserved_value),
    ("does not count what the target has", ("relay: killed",), Leg, "go_on", counts_nothing),
    ("forgets the base after a restart", ("relay: killed",), Leg, "go_on", forgets_base),
    ("records a message before the target has it", ("relay: killed",), Leg, "_take",
     records_first),
    ("leaves out another message than the one that the target has", SKIPS, Leg, "go_on",
     leaves_out_the_next),
    ("records no gap", SKIPS, Leg, "pass_over", records_no_gap),
    ("records no messages of gaps", SKIPS, Leg, "pass_over", counts_no_gap),
    ("forgets the number of messages in the source", SKIPS, Leg, "_record", forgets_the_number),
    ("records nothing", ("relay: killed",), Cell, "write", records_nothing),
    ("ignores its own id in RELAY_PATH", ("relay: circle",), Relay, "_loop", sees_no_loop),
    ("takes over nothing", ("relay: killed",), Relay, "_returning", returns_as_a_stranger),
)


def complaint(seed: int) -> str:
    """Return what an oracle says of the first seconds of a seed, in which all faults are over."""
    with World(generate(seed), seed) as world:
        for second in range(1, FAULTS_OVER_S + 1):
            try:
                world.run_until(second * SECOND_NS)
            except Exception as error:      # as in penstock.sim.runner: a violation
                return f"{type(error).__name__}: {error}"
            found = [*world.native.violations(), *(each.fault for each in world.relays)]
            if any(found):
                return next(filter(None, found))
        return "; ".join(relay_faults(world))


def finds(
    kinds: tuple[str, ...], owner: Any, name: str, wrong: Callable[..., object]
) -> bool:
    """Return whether a seed finds the fault, and finds none without it."""
    for seed in first_seeds.kept_first(seeds_with(*kinds)):
        with pytest.MonkeyPatch.context() as broken:
            broken.setattr(owner, name, wrong)
            found = complaint(seed)
        if found and not complaint(seed):
            first_seeds.note(seed)
            return True
    return False


@pytest.mark.parametrize(
    ("kinds", "owner", "name", "wrong"), [row[1:] for row in RELAYS], ids=[r[0] for r in RELAYS]
)
def test_a_generated_scenario_finds_a_relay_that(
    kinds: tuple[str, ...], owner: Any, name: str, wrong: Callable[..., object]
) -> None:
    assert finds(kinds, owner, name, wrong)


# ---- broken daemons ------------------------------------------------------------------------------


def ends_at_once(state: Any, client: Any) -> None:
    """Remove the objects of a client that should linger."""
    client.alive = False
    state.runner.start(clients.lose_client(state, client), lambda value, error: None)


def test_a_generated_scenario_finds_a_conductor_that_lets_no_client_linger() -> None:
    assert finds(("relay: killed",), conductor, "await_return", ends_at_once)


def forgets_rejections(
    state: Any, key: Any, fields: Any, records: Any, *, links: Any
) -> Saga[None]:
    """Adopt an image that was rejected as one that was not."""
    yield from ADOPT_IMAGE(state, key, {**fields, "rejection": None}, records, links=links)


def test_a_generated_scenario_finds_a_daemon_that_forgets_rejections() -> None:
    kinds = ("relay: circle", "relay: daemon dies")
    assert finds(kinds, adopt, "_image", forgets_rejections)


def awaits_nobody(state: Any, _dead: Any) -> None:
    """Remove all clients that are not there when a new daemon has adopted the streams."""
    for client in list(state.clients.values()):
        if client.linger_ns:
            ends_at_once(state, client)


def test_a_generated_scenario_finds_a_daemon_that_adopts_no_relay() -> None:
    assert finds(("relay: daemon dies",), adopt, "_await_clients", awaits_nobody)


@pytest.fixture(scope="module")
def wrong_core(tmp_path_factory: pytest.TempPathFactory) -> OldCore:
    return OldCore(tmp_path_factory.mktemp("wrong-relays"))


CORE = (
    ("names the relay in place of the application behind it", ("relay",), Patch(
        file="ps_relay.c", now="if (target < 1 ||", old="if (target >= 0 ||",
    )),
    ("forgets what is not read behind the relay", ("relay",), Patch(
        file="ps_image_status.c", now="trailer->reason_backlog_bytes += beyond.backlog_bytes;",
        old="",
    )),
    ("states no path of relays", ("relay: circle",), Patch(
        file="ps_publication_send.c", now=".relay_path = pub->params.relay_path,", old="",
    )),
    ("reads again what the target has", ("relay: killed",), Patch(
        file="ps_client_image.c",
        now="""    image->delivered = from;
    image->join_position = from <""",
        old="""    image->delivered = from < image->delivered ? from : image->delivered;
    image->join_position = from <""",
    )),
    ("counts the messages of a gap from nowhere", SKIPS, Patch(
        file="ps_client_image_isolated.c", now="ordinal = believed(ordinal);",
        old="ordinal = believed(ordinal) + 1;",
    )),
    ("sends a receiver that returns what another one had", ("relay: host dies",), Patch(
        file="ps_publication_send.c",
        now=".term_offset = (int32_t)(pub->sender_position & pub->log.term_mask),",
        old=".term_offset = 0,",
    )),
    ("counts no message that the target has", ("relay: killed",), Patch(
        file="ps_client_publication_take_over.c", now="return messages;", old="return 0;",
    )),
)


@pytest.mark.parametrize(("kinds", "patch"), [row[1:] for row in CORE], ids=[r[0] for r in CORE])
def test_a_generated_scenario_finds_a_core_that(
    kinds: tuple[str, ...], patch: Patch, wrong_core: OldCore
) -> None:
    assert wrong_core.finds(seeds_with(*kinds), (patch,))
