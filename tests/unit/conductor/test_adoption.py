# SPDX-License-Identifier: Apache-2.0
"""A conductor that adopts what a dead one had registered, and the journal that tells it."""

from __future__ import annotations

import json
import os
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import pytest
from conductor_rig import MIB, Rig
from group_rig import GroupRig
from hypothesis import given
from hypothesis import strategies as st
from test_conductor_groups import end_stream

from penstock.config.protocol import control
from penstock.core.driver_types import EventType, ImageEnd, ObjectKind
from penstock.daemon.conductor import actions as a
from penstock.daemon.restart import journal
from penstock.daemon.restart.journal import Journal, JournalDamaged

UNICAST = "aeron:udp?endpoint=10.0.0.2:40456"
GROUP = "aeron:udp?endpoint=239.20.0.1:40456|interface=10.0.0.0/24"
RECEIVE = "aeron:udp?endpoint=10.0.0.1:0"
HEAD = b"PENSTOCK-REGISTRY 17\n"
TOKEN = b"secret of the client"


def registered(rig: Rig) -> bytes:
    """The journal that the rig's conductor has written."""
    return HEAD + b"".join(
        journal.encode(record.kind, record.key, record.fields) for record in rig.all(a.Record)
    )


def mortal() -> Rig:
    return Rig(journal=True)


def lease(rig: Rig, request: control.LeaseRequest, token: bytes, *, uid: int = 20) -> int:
    rig._run(
        rig.conductor.on_lease(1, request, pid=10, uid=uid, now_ns=rig.now_ns, token=token)
    )
    return rig.last(a.GrantLease).client_id


def heir(dead: Rig, **settings: Any) -> Rig:
    """A conductor that has the directory of a dead one and has not adopted it yet."""
    rig = Rig(journal=True, **settings)
    rig.state.next_id = dead.state.next_id
    rig.counters, rig.slots, rig.files = dead.counters, dead.slots, dead.files
    return rig


def new_daemon(dead: Rig, *, gone: frozenset[int] = frozenset(), **settings: Any) -> Rig:
    """Another conductor in the same directory."""
    rig = heir(dead, **settings)
    rig._numbers = dead._numbers
    rig.now_ns = dead.now_ns
    records = journal.decode(registered(dead))
    rig._run(rig.conductor.adopt(records, dead=gone, now_ns=rig.now_ns))
    return rig


def busy() -> tuple[Rig, int, dict[str, Any]]:
    """A daemon with a client that has one of everything."""
    rig = mortal()
    client = lease(rig, control.LeaseRequest(name="c"), TOKEN)
    made = {
        "udp": rig.pub(client, UNICAST),
        "ipc": rig.pub(client, "aeron:ipc"),
        "local": rig.sub(client, "aeron:ipc"),
        "sub": rig.sub(client, RECEIVE),
        "counter": rig.request(client, control.AddCounter(type_id=2000, label="mine")),
    }
    endpoint = next(iter(rig.state.recv_endpoints))
    rig.setup(endpoint)
    return rig, client, made


def ids(made: dict[str, Any]) -> list[int]:
    return sorted(answer.registration_id for answer in made.values())


def come_back(rig: Rig, client: int, **changes: Any) -> int:
    values: dict[str, Any] = {"client_id": client, "token": TOKEN, **changes}
    return lease(rig, control.LeaseRequest(name="c", **values), b"another secret")


# ---- the conductor -------------------------------------------------------------------------------


def test_everything_is_made_again_with_its_ids_and_nothing_new() -> None:
    dead, client, made = busy()
    counters, slots = dict(dead.counters), dict(dead.slots)
    rig = new_daemon(dead)
    assert (rig.counters, rig.slots) == (counters, slots)
    assert not rig.all(a.AllocateCounter) + rig.all(a.AllocateSlot) + rig.all(a.CreateLog)
    assert rig.native == dead.native
    for before, after in zip(
        dead.all(a.AddPublicationObject), rig.all(a.AddPublicationObject), strict=True
    ):
        assert after.params.adopted
        assert after.params.log_path == before.params.log_path
        assert after.params.slot == before.params.slot
    image = rig.last(a.AddImageObject).params
    assert (image.session_id, image.adopted) == (42, True)
    assert image.consumption == 0
    receiver = dead.last(a.OpenRecvEndpoint).params.receiver_id
    assert rig.last(a.OpenRecvEndpoint).params.receiver_id == receiver
    assert rig.state.storage.used_bytes == dead.state.storage.used_bytes
    assert come_back(rig, client) == client
    resumed = rig.request(client, control.Resume(registration_ids=ids(made)))
    assert sorted(resumed.registration_ids) == ids(made)


@pytest.mark.parametrize("withheld", [False, True])
def test_an_adopted_image_states_credits_before_its_readers_are_there(withheld: bool) -> None:
    """A sender that counted the dead daemon as gone would take a status message without credits for
    permission to send."""
    dead = mortal()
    client = lease(dead, control.LeaseRequest(name="c"), TOKEN)
    ready = dead.sub(client, f"{RECEIVE}|ps-credits=5|ps-credit-burst=9")
    dead.setup(next(iter(dead.state.recv_endpoints)))
    assert dead.all(a.AddImageSubscriber)
    if withheld:
        dead.request(
            client,
            control.WithholdCredits(registration_id=ready.registration_id, withheld=True),
        )
    params = new_daemon(dead).last(a.AddImageObject).params
    assert params.adopted
    assert (params.credits, params.credit_burst, params.frozen) == (5, 9, withheld)


def test_a_chosen_port_is_requested_again() -> None:
    dead, _client, _made = busy()
    chosen = next(iter(next(iter(dead.state.recv_endpoints.values())).destinations.values()))
    rig = new_daemon(dead)
    assert rig.last(a.AddRecvDestination).params.socket.bind.port == chosen.address.port


@pytest.mark.parametrize("channel", [UNICAST, GROUP])
def test_a_sender_keeps_its_port(channel: str) -> None:
    """Receivers follow the address of the sender that they know."""
    dead = mortal()
    client = lease(dead, control.LeaseRequest(name="c"), TOKEN)
    dead.pub(client, channel)
    (before,) = dead.state.send_endpoints.values()
    assert before.local.port > 0
    assert dead.last(a.OpenSendEndpoint).params.data.bind.port == 0
    rig = new_daemon(dead)
    again = rig.last(a.OpenSendEndpoint).params.data
    assert again.bind.port == before.local.port
    assert again.connect == before.params.data.connect


def test_a_sender_whose_port_is_taken_continues_with_another() -> None:
    dead = mortal()
    client = lease(dead, control.LeaseRequest(name="c"), TOKEN)
    added = dead.pub(client, UNICAST)
    rig = heir(dead)
    rig.fail(a.OpenSendEndpoint, "address_in_use")
    rig._run(rig.conductor.adopt(journal.decode(registered(dead)), now_ns=0))
    assert rig.last(a.OpenSendEndpoint).params.data.bind.port == 0
    assert rig.last(a.AddPublicationObject).params.id == added.registration_id


@pytest.mark.parametrize(("channel", "code"), [
    (UNICAST, "no_interface"),
    (f"{UNICAST}|control=10.0.0.1:40457", "address_in_use"),    # receivers were told this port
])
def test_a_sender_that_cannot_have_its_address_is_left_out(channel: str, code: str) -> None:
    dead = mortal()
    client = lease(dead, control.LeaseRequest(name="c"), TOKEN)
    dead.pub(client, channel)
    rig = heir(dead)
    rig.fail(a.OpenSendEndpoint, code)
    rig._run(rig.conductor.adopt(journal.decode(registered(dead)), now_ns=0))
    assert rig.all(a.OpenSendEndpoint) + rig.all(a.AddPublicationObject) == []


def test_images_are_there_before_anybody_is_interested() -> None:
    rig = new_daemon(busy()[0])
    order = [type(action) for action in rig.done]
    assert order.index(a.AddImageObject) < order.index(a.AddInterest)


def test_an_image_that_was_rejected_stays_rejected() -> None:
    """Else its sender would take the adopted image for a receiver that agrees."""
    dead, client, _made = busy()
    (image,) = (i for i in dead.state.images)
    dead.request(client, control.RejectImage(correlation_id=image, reason="bad"))
    rig = new_daemon(dead)
    order = [type(action) for action in rig.done]
    assert rig.last(a.RejectImageObject).reason == "bad"
    assert order.index(a.RejectImageObject) == order.index(a.AddImageObject) + 1
    third = new_daemon(rig)
    assert third.last(a.RejectImageObject).reason == "bad"


def test_a_returned_client_hears_which_images_it_has() -> None:
    dead, client, made = busy()
    rig = new_daemon(dead)
    come_back(rig, client)
    rig.request(client, control.Resume(registration_ids=ids(made)))
    image = next(iter(rig.state.images))
    resumed = rig.notices(control.SubscriptionResumed)
    notified = {n.subscription_id: n.correlation_ids for n in resumed}
    assert notified == {
        made["sub"].registration_id: [image],
        made["local"].registration_id: [made["ipc"].registration_id],
    }
    assert len(rig.notices(control.ImageAvailable)) == 2


def test_what_the_client_does_not_know_of_is_removed() -> None:
    dead, client, made = busy()
    rig = new_daemon(dead)
    come_back(rig, client)
    resumed = rig.request(
        client, control.Resume(registration_ids=[made["udp"].registration_id, 10**6])
    )
    assert resumed.registration_ids == [made["udp"].registration_id]
    assert not rig.state.subscriptions
    assert not rig.state.clients[client].counters


@pytest.mark.parametrize("changes", [{"token": b"guessed"}, {"client_id": 10**6}, {"token": b""}])
def test_a_stranger_gets_a_lease_of_its_own(changes: dict[str, Any]) -> None:
    dead, client, _made = busy()
    rig = new_daemon(dead)
    assert come_back(rig, client, **changes) != client
    assert not rig.state.clients[client].attached


def test_the_same_client_does_not_return_twice() -> None:
    dead, client, _made = busy()
    rig = new_daemon(dead)
    assert come_back(rig, client) == client
    assert come_back(rig, client) != client


def test_clients_that_do_not_return_are_dead_after_the_timeout() -> None:
    dead, _client, _made = busy()
    rig = new_daemon(dead, reattach_timeout_ns=2 * 10**9)
    rig.advance(1.9)
    assert rig.state.clients
    rig.advance(0.2)
    assert not rig.state.clients
    assert rig.all(a.UnblockPublication)


def test_clients_known_dead_are_not_waited_for_and_leave_nothing() -> None:
    dead, client, _made = busy()
    rig = new_daemon(dead, gone=frozenset({client}))
    assert not rig.state.clients
    for _ in range(4):
        for publication in list(rig.state.publications):
            rig.event(EventType.PUB_DRAINED, kind=ObjectKind.PUBLICATION, id=publication)
        for image in list(rig.state.images):
            rig.event(EventType.IMAGE_DRAINED, kind=ObjectKind.IMAGE, id=image)
        rig.advance(20)
        rig.release_all()
    rig.advance(20)
    rig.assert_nothing_left()
    assert not [key for key in journal.decode(registered(rig)) if key[0] != "daemon"]


def test_what_cannot_be_adopted_is_left_out_and_its_client_hears_so() -> None:
    dead, client, made = busy()
    rig = heir(dead)
    rig.fail(a.AddPublicationObject, message="positions do not fit")
    rig._run(
        rig.conductor.adopt(journal.decode(registered(dead)), now_ns=0)
    )
    come_back(rig, client)
    resumed = rig.request(client, control.Resume(registration_ids=ids(made)))
    assert set(ids(made)) - set(resumed.registration_ids) == {made["udp"].registration_id}
    assert "positions do not fit" in rig.last(a.LogError).text


def test_accepted_data_of_a_closed_publication_is_still_sent() -> None:
    dead, client, made = busy()
    removal = control.RemovePublication(registration_id=made["udp"].registration_id)
    dead.request(client, removal)
    rig = new_daemon(dead)
    assert rig.last(a.DrainPublication).publication_id == made["udp"].registration_id


def test_an_image_that_had_ended_is_not_adopted() -> None:
    dead, _client, _made = busy()
    image = next(iter(dead.state.images))
    dead.event(
        EventType.IMAGE_INACTIVE, kind=ObjectKind.IMAGE, id=image, reason=ImageEnd.END_OF_STREAM
    )
    dead.event(EventType.IMAGE_DRAINED, kind=ObjectKind.IMAGE, id=image)
    assert not new_daemon(dead).all(a.AddImageObject)


def test_a_second_death_is_survived_like_the_first() -> None:
    dead, client, made = busy()
    rig = new_daemon(new_daemon(dead))
    assert come_back(rig, client) == client
    resumed = rig.request(client, control.Resume(registration_ids=ids(made)))
    assert sorted(resumed.registration_ids) == ids(made)


# ---- the journal ---------------------------------------------------------------------------------


@cache
def written() -> bytes:
    return registered(busy()[0])


def test_what_is_written_is_read() -> None:
    found = journal.decode(written())
    assert {kind for kind, _ in found} == {
        "client", "send_endpoint", "recv_endpoint", "publication", "subscription", "image", "link",
    }
    image = next(fields for (kind, _), fields in found.items() if kind == "image")
    assert image["log"].term_length == MIB
    assert isinstance(image["source"].port, int)


def shapes() -> bytes:
    """The names of all that the journal's records hold."""
    streaming = GroupRig(journal=True)
    streaming.open()
    streaming.setup(streaming.endpoint())
    streaming.ends[streaming.image()] = 64
    end_stream(streaming, streaming.image())
    records = [*busy()[0].all(a.Record), *streaming.all(a.Record)]
    kinds = {r.kind: sorted(r.fields) for r in records if r.fields is not None}
    classes = {
        name: sorted(field.name for field in attrs.fields(cls))
        for name, cls in journal._CLASSES.items()
    }
    assert set(kinds) == {
        "client", "send_endpoint", "recv_endpoint", "publication", "subscription", "image", "link",
        "group", "retained",
    }
    return json.dumps([kinds, classes], sort_keys=True).encode()


def test_a_change_of_what_records_hold_is_another_format() -> None:
    """A new daemon of another version must not take them for its own: raise journal.FORMAT."""
    assert (journal.FORMAT, zlib.crc32(shapes())) == (17, 1868798753)


def test_a_journal_of_another_format_is_refused() -> None:
    older = written().replace(b"REGISTRY 17\n", b"REGISTRY 16\n", 1)
    with pytest.raises(JournalDamaged, match="does not have format 17"):
        journal.decode(older)


@given(st.data())
def test_any_prefix_adopts(data: st.DataObject) -> None:
    """A daemon may be killed between any two bytes: what it registered before that is there."""
    blob = written()
    cut = data.draw(st.integers(0, len(blob)))
    rig = Rig(journal=True)
    for record in busy()[0].done:
        match record:
            case a.AllocateCounter():
                rig._perform(record)
    rig.conductor.adopt(journal.decode(blob[:cut]), now_ns=0)


@given(st.data())
def test_a_changed_byte_is_noticed(data: st.DataObject) -> None:
    blob = bytearray(written())
    at = data.draw(st.integers(0, len(blob) - 1))
    blob[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(JournalDamaged):
        journal.decode(bytes(blob))


@given(st.binary(max_size=300))
def test_noise_is_refused(noise: bytes) -> None:
    try:
        assert journal.decode(HEAD + noise) == {} or noise
    except JournalDamaged:
        return


def test_the_file_is_replaced_at_once_and_kept_private(tmp_path: Path) -> None:
    failures: list[str] = []
    first = Journal(tmp_path, file_mode=0o660, on_failure=failures.append)
    first.record("client", (1,), {"slot": 3})
    assert journal.read(tmp_path) is None
    first.install()
    first.record("client", (2,), {"slot": 4})
    first.record("client", (1,), None)
    first.close()
    path = tmp_path / journal.NAME
    assert path.stat().st_mode & 0o777 == 0o600
    assert journal.read(tmp_path) == {("client", (2,)): {"slot": 4}}
    second = Journal(tmp_path, file_mode=0o660, on_failure=failures.append)
    assert journal.read(tmp_path) == {("client", (2,)): {"slot": 4}}
    second.install()
    assert journal.read(tmp_path) == {}
    assert not failures


def test_a_journal_that_cannot_be_written_is_removed(tmp_path: Path) -> None:
    failures: list[str] = []
    made = Journal(tmp_path, file_mode=0o600, on_failure=failures.append)
    made.install()
    os.dup2(os.open("/dev/full", os.O_WRONLY), made._fd)
    made.record("client", (1,), {"slot": 3})
    assert len(failures) == 1
    assert journal.read(tmp_path) is None
    made.close()


def test_a_long_life_does_not_make_a_long_journal(tmp_path: Path) -> None:
    made = Journal(tmp_path, file_mode=0o600, on_failure=lambda text: pytest.fail(text))
    made.install()
    for n in range(120_000):
        made.record("client", (n % 3,), {"slot": n, "name": "x" * 90})
    assert (tmp_path / journal.NAME).stat().st_size < 6 * MIB
    found = journal.read(tmp_path)
    assert found is not None
    assert {fields["slot"] for fields in found.values()} == {119_997, 119_998, 119_999}
    made.close()
