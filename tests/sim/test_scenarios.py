# SPDX-License-Identifier: Apache-2.0
"""Every scenario that comes with penstock, with its budget; those of known failures also against
the old behaviour, where it can be had."""

from __future__ import annotations

import attrs
import pytest
from support.old_behaviours import OLD, Old, single_gap
from support.old_core import OldCore

from penstock.core.errors import ConfigurationError
from penstock.sim import files, library
from penstock.sim.core import Link
from penstock.sim.scenario import HostScript, LinkRule, two_hosts
from penstock.sim.world import run

_HEAD = """
[[host]]
name = "a"
[[host]]
name = "b"
"""
_STREAM = """
[[publisher]]
host = "a"
channel = "aeron:udp?endpoint={b}:40456"
count = 10
[[subscriber]]
host = "b"
channel = "aeron:udp?endpoint={b}:40456"
"""


@pytest.mark.parametrize("name", library.names())
def test_a_scenario_of_the_library_holds(name: str) -> None:
    report = run(files.load(library.path_of(name)), seed=1)
    assert report.violations == ()


@pytest.mark.parametrize("old", [o for o in OLD if not o.patches], ids=lambda o: o.scenario)
def test_a_known_failure_fails_as_it_was_configured_once(old: Old) -> None:
    assert old.change is not None
    found = run(old.change(files.load(library.path_of(old.scenario))), seed=1).violations
    assert any(old.complaint in violation for violation in found), found


@pytest.fixture(scope="module")
def old_core(tmp_path_factory: pytest.TempPathFactory) -> OldCore:
    return OldCore(tmp_path_factory.mktemp("old-core"))


def test_the_core_of_the_patches_is_the_core(old_core: OldCore) -> None:
    """Without a patch it finds nothing: what it complains of below is the patch."""
    assert old_core.violations(files.load(library.path_of("receiver-leaves")), ()) == []


@pytest.mark.parametrize("old", [o for o in OLD if o.patches], ids=lambda o: o.scenario)
def test_a_known_failure_fails_with_the_old_lines(old: Old, old_core: OldCore) -> None:
    scenario = files.load(library.path_of(old.scenario))
    found = old_core.violations(old.change(scenario) if old.change else scenario, old.patches)
    assert any(old.complaint in violation for violation in found), found


@pytest.mark.parametrize("loss_ppm", [50_000, 100_000])
def test_requesting_every_gap_is_three_times_as_fast_on_a_long_lossy_path(loss_ppm: int) -> None:
    scenario = files.load(library.path_of("long-lossy-path"))
    scenario = attrs.evolve(scenario, link=attrs.evolve(scenario.link, loss_ppm=loss_ppm))
    ours = run(scenario, seed=1)
    single = run(single_gap(scenario), seed=1)
    assert ours.violations == ()
    assert single.finished_ns > 3 * ours.finished_ns


@pytest.mark.parametrize(
    ("text", "key", "reason"),
    [
        (_HEAD + _STREAM + "[network]\nspeed = 3\n", "network.speed", "unknown key"),
        (_HEAD + _STREAM + "[network]\nbandwidth_mbit = -1\n", "network.bandwidth", "negative"),
        (_HEAD + _STREAM + "[network]\nloss = 1.5\n", "network.loss", "more than 1"),
        (_HEAD + _STREAM + "[network]\ndelay_ms = \"x\"\n", "network.delay_ms", "not a number"),
        (_HEAD + _STREAM.replace('host = "b"', 'host = "z"'), "subscriber[0].host", "no host 'z'"),
        (_HEAD + _STREAM.replace("{b}", "{q}"), "publisher[0].channel", "no host 'q'"),
        (
            _HEAD + _STREAM + '[[group]]\nname = "g"\nendpoint = "239.20.0.1:40456"\n',
            "group[0].members",
            "no members",
        ),
        (_HEAD + _STREAM.replace("count = 10", ""), "publisher[0].count", "missing"),
        (_HEAD + _STREAM + "colour = 1\n", "subscriber[0].colour", "unknown key"),
        ("tempo = 1\n" + _HEAD + _STREAM, "tempo", "unknown key"),
        (_STREAM, "host", "at least one"),
        (_HEAD, "publisher", "needs publishers"),
        (
            _HEAD + _STREAM + '[[link]]\nfrom = "a"\nto = "b"\nstart_s = 2\nuntil_s = 1\n',
            "link[0].until_s",
            "not after",
        ),
        (_HEAD + _STREAM + "pauses_s = [[3, 2]]\n", "subscriber[0].pauses_s", "no time"),
        (
            _HEAD + "driver = {tempo = 1}\n" + _STREAM,
            "host[1].driver.tempo",
            "unknown key; known are",
        ),
        (
            _HEAD + "driver = {retransmit_percent = -1}\n" + _STREAM,
            "host[1].driver.retransmit_percent",
            "negative",
        ),
        (
            _HEAD + _STREAM + '[[drop]]\nfrom = "a"\nto = "b"\nevery = 5\n',
            "drop[0]",
            "every and times",
        ),
    ],
)
def test_a_wrong_scenario_is_refused_with_file_key_and_reason(
    text: str, key: str, reason: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        files.parse(text, "some.toml")
    message = str(caught.value)
    assert message.startswith("some.toml: ")
    assert key in message
    assert reason in message


def test_a_scenario_survives_being_written() -> None:
    scenario = attrs.evolve(
        two_hosts(),
        host_names=("a", "b"),
        machines=(
            HostScript(host=0, driver=(("retransmit_linger_ns", 5),), hangup_ns=7 * 10**9),
            HostScript(host=1, max_gaps=3, cycle_ns=2500),
        ),
        links=(LinkRule(sender=0, receiver=1, link=Link(loss_ppm=7), from_ns=1, until_ns=2),),
    )
    again = files.parse(files.dump(scenario), "x.toml")
    expected = attrs.evolve(
        scenario,
        links=(
            LinkRule(
                sender=0, receiver=1, from_ns=1, until_ns=2,
                link=attrs.evolve(scenario.link, loss_ppm=7),
            ),
        ),
    )
    assert again.machines == expected.machines
    assert again.links[0].link.loss_ppm == 7
    assert run(again, seed=4).trace == run(attrs.evolve(scenario, links=again.links), seed=4).trace
