# SPDX-License-Identifier: Apache-2.0
"""A relay publishes the messages of one stream (the source) on another stream (the target), and
then releases each message at the source.

A message counts as relayed as soon as the target's log has accepted it. The relay releases a
message at the source only after the target's log has accepted the message, so a slow target slows
the source down. The target has an exclusive publication for each session of the source. The n-th
message of a publication on the target is the n-th message of its source session. If a relay process
was killed, the next process of the relay must know which messages already reached the target. The
next process therefore counts the messages in the target's log (:mod:`._relay_leg`).
"""

from __future__ import annotations

import hashlib
import logging
import re
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, cast

import attrs

from penstock.client._client import Client
from penstock.client._defaults import DEFAULT_REATTACH_S, DEFAULT_TIMEOUT_S
from penstock.client._directory import daemon_directory, no_daemon
from penstock.client._port import RelayPort, Returning
from penstock.client._relay_leg import Leg, poll
from penstock.client._relay_state import Cell, RelayFiles
from penstock.client._zmq_port import ZmqPort
from penstock.config.protocol import control
from penstock.config.protocol.relays import MAX_RELAYS
from penstock.config.settings.relays import NAME
from penstock.config.uri import parse
from penstock.core import client as core
from penstock.core.errors import (
    ChannelRefused,
    DaemonNotRunning,
    InvalidArgument,
    MessageTooLong,
    PenstockError,
    RelayLoop,
)

if TYPE_CHECKING:
    from penstock.client._image import Image
    from penstock.client._publication import Publication
    from penstock.client._restart import Gap
    from penstock.client._subscription import Subscription

_LOG = logging.getLogger("penstock.relay")
_SLICE_S: Final = 0.25                  # longest wait between two looks at the stop condition
_NAME: Final = re.compile(NAME)
DEFAULT_LINGER_S: Final = 60.0
_LOOP: Final = "relay loop: "


@attrs.frozen(kw_only=True)
class RelayStatistics:
    """Statistics of a relay since its process started."""

    messages: int
    """Accepted by targets."""
    bytes: int
    """Of their payload."""
    gaps: int
    """Places at which messages of the source are missing in the target."""
    sessions: int
    """Sessions of the source that are relayed now."""
    waiting: int
    """Of these, sessions whose target accepts nothing at the moment."""
    refused: int
    """Sessions of the source that were refused, because they had passed this relay, or eight."""


class Relay:
    """Relays the messages of one stream to another stream; :func:`penstock.relay` creates the
    relay. Only one thread at a time may use a relay.

    A context manager. If a ``with relay`` block ends without an exception, the relay ends the
    sessions that it publishes on the target. After an exception or a call of :meth:`hand_over`,
    the target's sessions stay open for ``linger_s`` seconds. In this time, another process of the
    same relay can continue the target's sessions.
    """

    def __init__(
        self, source: str, source_stream: int, target: str, target_stream: int, *, name: str,
        directory: Path, linger_s: float, timeout_s: float, reattach_timeout_s: float,
    ) -> None:
        self._source, self._source_stream = source, source_stream
        self._target, self._target_stream = target, target_stream
        self._name = name
        self._linger_ns = round(linger_s * 1e9)
        self._arrived: deque[Image] = deque()
        self._ended: deque[int] = deque()
        self._legs: dict[int, Leg] = {}
        self._gaps = 0
        self._refused = 0
        self._rejected: list[Image] = []        # sessions that were refused and have not ended
        self._done = [0, 0]             # messages and bytes of legs that have ended
        self._files = RelayFiles(directory, name)
        self._closed = False
        try:
            port = self._connect(directory, timeout_s, reattach_timeout_s)
            self._client = self._open_client(port, max(timeout_s, DEFAULT_TIMEOUT_S))
            self._subscription = self._subscribe(port)
        except BaseException:
            self._files.close(remove=False)
            raise

    # ---- start -----------------------------------------------------------------------------------

    def _connect(self, directory: Path, timeout_s: float, reattach_s: float) -> RelayPort:
        return ZmqPort(
            directory, name=f"relay {self._name}", library_version=core.library_version(),
            timeout_s=timeout_s, reattach_timeout_s=reattach_s, linger_ns=self._linger_ns,
            returning=self._returning(),
        )

    def _returning(self) -> Returning | None:
        """Return the client of the relay's last process; None: there was no process."""
        known = self._files.plain["client"]
        if not known:
            return None
        ids = [known["subscription"]["registration_id"], *self._publications()]
        return Returning(
            client_id=known["client_id"], token=bytes.fromhex(known["token"]),
            registrations=frozenset(ids),
        )

    def _open_client(self, port: RelayPort, timeout_s: float) -> Client:
        return Client(port, timeout_s=timeout_s)

    def _publications(self) -> dict[int, dict[str, Any]]:
        """By registration id, as the last process had them."""
        legs = self._files.plain["legs"].values()
        return {leg["publication"]["registration_id"]: leg["publication"] for leg in legs}

    def _subscribe(self, port: RelayPort) -> Subscription:
        client, plain = self._client, self._files.plain
        known = plain["client"]
        kept = port.resumed or frozenset()
        request = control.AddSubscription(channel=self._source, stream_id=self._source_stream)
        if known and known["subscription"]["registration_id"] in kept:
            ready = control.SubscriptionReady(**known["subscription"])
        else:
            kept = frozenset()
            ready = port.add_subscription(request, client._timeout_s)
        self._forget(kept)
        plain["client"] = {
            "client_id": client.client_id, "token": port.token.hex(),
            "subscription": attrs.asdict(ready),
        }
        self._files.write()
        return client._keep(
            ready.registration_id, request,
            lambda: client._classes.subscription(
                client, self._source, ready, on_available=self._arrived.append,
                on_unavailable=lambda image: self._ended.append(image.correlation_id),
                on_gap=self._on_gap, on_resumed=self._on_resumed,
            ),
            control.RemoveSubscription(registration_id=ready.registration_id),
        )

    def _forget(self, kept: frozenset[int]) -> None:
        """Forget sessions of the last process that have ended. The messages that their targets
        accepted cannot be counted any more, so none that may be among them is offered again."""
        plain = self._files.plain
        seen = plain.setdefault("seen", {})
        for image, leg in list(plain["legs"].items()):
            if leg["publication"]["registration_id"] in kept:
                continue
            del plain["legs"][image]
            epoch = f"{leg['session_id']}/{leg['initial_term_id']}"
            seen[epoch] = self._files.cell(leg["cell"]).intent
            self._gaps += 1
            _LOG.warning(
                "relay %s: the last process did not return within %g s: messages of session %d may "
                "be missing in stream %d on %s", self._name, self._linger_ns / 1e9,
                leg["session_id"], self._target_stream, self._target,
            )

    # ---- facts -----------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self._name

    @property
    def relay_id(self) -> int:
        """Id by which the target's streams identify this relay; all processes of a relay with the
        same name and directory use the same id. Random."""
        return int(self._files.plain["relay_id"])

    @property
    def client(self) -> Client:
        """The relay's client."""
        return self._client

    @property
    def publications(self) -> tuple[Publication, ...]:
        """The publications on the target channel, one for each session of the source."""
        return tuple(leg.publication for leg in self._legs.values())

    def statistics(self) -> RelayStatistics:
        legs = list(self._legs.values())
        return RelayStatistics(
            messages=self._done[0] + sum(leg.messages for leg in legs),
            bytes=self._done[1] + sum(leg.bytes for leg in legs),
            gaps=self._gaps, sessions=len(legs), waiting=sum(leg.waits for leg in legs),
            refused=self._refused,
        )

    # ---- work ------------------------------------------------------------------------------------

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Relay messages until ``until()`` returns true; the method calls ``until()`` at least
        every 250 ms. None: relay without end.

        :raises PublicationFailed: a publication on the target has failed, or its session has used
            all stream positions.
        :raises MessageTooLong: a message of the source does not fit into the target.
        :raises RelayLoop: the relays form a circle: through the target, the stream would reach a
            relay that it has already passed.
        :raises DaemonGone: the daemon died, and no new daemon adopted its streams.
        """
        while until is None or not until():
            if not self.step():
                self._client._parking().until(self.step, _SLICE_S)

    def step(self) -> bool:
        """Relay the available messages, without waiting. Return True if a source session began or
        ended, or had messages to relay or a gap; otherwise False."""
        moved = self._follow()
        self._discard()
        for leg in list(self._legs.values()):
            if not leg.image.is_closed:
                moved |= self._step(leg)
            self._check_rejections(leg)
        return moved

    def _step(self, leg: Leg) -> bool:
        try:
            return leg.step()
        except MessageTooLong as error:
            raise MessageTooLong(
                f"relay {self._name} cannot continue: {error}; the target needs term-length of "
                f"{leg.image.term_length} bytes, as the source has"
            ) from None

    def _follow(self) -> bool:
        """Apply what has happened to the sessions of the source."""
        self._subscription._refresh()
        changed = bool(self._arrived or self._ended)
        while self._arrived:
            self._begin(self._arrived.popleft())
        while self._ended:
            self._end(self._ended.popleft())
        return changed

    def _begin(self, image: Image) -> None:
        if image.is_closed:
            return
        known = self._files.plain["legs"].get(str(image.correlation_id))
        reason = self._loop(image.relay_path)
        if reason:
            self._refuse(image, reason)
            return
        if known is not None:
            leg = self._reopen(image, known)
            leg.go_on()
        else:
            cell = self._files.free_cell()
            if cell is None:
                _LOG.error("relay %s: too many sessions: session %d of %s is not relayed",
                           self._name, image.session_id, image.source_identity)
                return
            leg = self._open(image, cell)
        self._legs[image.correlation_id] = leg
        _LOG.info(
            "relay %s: session %d from %s continues as session %d of stream %d on %s",
            self._name, image.session_id, image.source_identity, leg.publication.session_id,
            self._target_stream, self._target,
        )

    def _loop(self, path: tuple[int, ...]) -> str:
        """Return the reason against a stream that has passed these relays, "" if there is none.
        Ids come first: an ERR frame carries 127 bytes."""
        if self.relay_id in path:
            return (f"{_LOOP}{path[-1]:016x} sends back what {self.relay_id:016x} relayed, which "
                    f"is {self._name!r}")
        if len(path) >= MAX_RELAYS:
            return (f"{_LOOP}{path[-1]:016x} is number {len(path)} of the relays before "
                    f"{self._name!r}, and the last that is allowed")
        return ""

    def _refuse(self, image: Image, reason: str) -> None:
        """Reject a session of the source: its relay gets the reason in an ERR frame."""
        self._refused += 1
        _LOG.error(
            "relay %s refuses session %d from %s: %s: end one of these relays", self._name,
            image.session_id, image.source_identity, reason,
        )
        try:
            image.reject(reason)
        except ChannelRefused as error:
            if error.code != "unknown_registration":    # a spy: it would hold the stream for ever
                raise RelayLoop(f"relay {self._name} cannot continue: {reason}") from error
        self._rejected.append(image)

    def _discard(self) -> None:
        """Discard the messages that refused sessions had before the rejection; their images end
        only when all readers have read them."""
        self._rejected = [image for image in self._rejected if not image.is_closed]
        for image in self._rejected:
            poll(image, lambda _message, _header: None)

    def _check_rejections(self, leg: Leg) -> None:
        """End if the target leads back to a relay that the stream has passed."""
        for rejection in leg.publication.rejections:
            if rejection.message.startswith(f"{_LOOP}{self.relay_id:016x} "):
                raise RelayLoop(
                    f"relay {self._name} ({self.relay_id:016x}) cannot continue: {self._target} "
                    f"leads to {rejection.source}, which answers: {rejection.message}"
                )

    def _open(self, image: Image, cell: Cell) -> Leg:
        publication = cast("Publication", self._client._add_publication(
            self._target, self._target_stream, None, self._on_session_lost, exclusive=True,
            relay_path=[*image.relay_path, self.relay_id],
        ))
        leg = Leg(image, publication, cell)
        epoch = f"{image.session_id}/{image.initial_term_id}"
        leg.skip_to = self._files.plain.get("seen", {}).pop(epoch, 0)
        leg.begin()
        self._files.plain["legs"][str(image.correlation_id)] = {
            "cell": cell.index, "session_id": image.session_id,
            "initial_term_id": image.initial_term_id,
            "publication": attrs.asdict(publication._ready),
        }
        self._files.write()
        return leg

    def _reopen(self, image: Image, known: dict[str, Any]) -> Leg:
        publication = self._take_over(known, image.relay_path)
        return Leg(image, publication, self._files.cell(known["cell"]))

    def _take_over(self, known: dict[str, Any], path: tuple[int, ...]) -> Publication:
        """Return a publication of the last process."""
        client = self._client
        ready = control.PublicationReady(**known["publication"])
        request = control.AddPublication(
            channel=self._target, stream_id=self._target_stream, exclusive=True,
            relay_path=[*path, self.relay_id],
        )
        return client._keep(
            ready.registration_id, request,
            lambda: client._classes.publication(
                client, self._target, ready, on_session_lost=self._on_session_lost
            ),
            control.RemovePublication(registration_id=ready.registration_id),
        )

    def _on_resumed(self, image_ids: list[int]) -> None:
        """End the sessions of the last process whose images ended while no process ran. The daemon
        does not notify this process about these images."""
        legs = map(int, self._files.plain["legs"])
        self._ended += [leg for leg in legs if leg not in image_ids and leg not in self._legs]

    def _end(self, image_id: int) -> None:
        """A session of the source has ended, and all of it is relayed."""
        leg = self._legs.pop(image_id, None)
        known = self._files.plain["legs"].pop(str(image_id), None)
        self._files.write()
        if leg is not None:
            self._done[0] += leg.messages
            self._done[1] += leg.bytes
            leg.publication.close()
        elif known is not None:         # this process has not reopened it
            self._take_over(known, ()).close()

    def _on_gap(self, gap: Gap) -> None:
        self._gaps += 1
        _LOG.warning(
            "relay %s: session %d of the source has a gap from %d to %s: %s messages are missing",
            self._name, gap.session_id, gap.from_position, gap.to_position,
            "some" if gap.messages is None else gap.messages,
        )
        for leg in self._legs.values():
            if not leg.image.is_closed and leg.image.session_id == gap.session_id:
                leg.pass_over(gap)

    def _on_session_lost(self, lost: object) -> None:
        _LOG.error("relay %s: the daemon could not continue a session: the relay ends", self._name)
        self._client._port.close()

    # ---- end -------------------------------------------------------------------------------------

    def hand_over(self) -> None:
        """Stop relaying in this process, so that the next process with the same relay name can
        continue. Idempotent.

        If no process continues the relay within the linger time, the target's sessions end, and the
        source no longer waits for the relay.
        """
        if not self._closed:
            self._closed = True
            self._client.close()
            self._files.close(remove=False)

    def close(self) -> None:
        """End the relay: the target's sessions end when their accepted messages have been sent.
        Idempotent.

        The relay does not publish the remaining messages of the source.
        """
        if not self._closed:
            self._closed = True
            try:
                self._subscription.close()
                for publication in self.publications:
                    publication.close()
            except PenstockError as error:
                _LOG.warning("relay %s: %s", self._name, error)
            self._client.close()
            self._files.close(remove=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        orderly = kind is None or kind in (KeyboardInterrupt, RelayLoop)
        if orderly or not self._legs:
            self.close()
        else:
            self.hand_over()

    def _repr_html_(self) -> str:
        from penstock.client._html import relay_html

        return relay_html(self)


def default_name(source: str, source_stream: int, target: str, target_stream: int) -> str:
    """Return the default name of a relay. Relays with the same source and target stream get the
    same name."""
    text = f"{source}\0{source_stream}\0{target}\0{target_stream}"
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def relay(
    source: str, source_stream: int, target: str, target_stream: int | None = None, *,
    name: str = "", directory: str | None = None, linger_s: float = DEFAULT_LINGER_S,
    timeout_s: float = DEFAULT_TIMEOUT_S, reattach_timeout_s: float = DEFAULT_REATTACH_S,
) -> Relay:
    """Create a relay that publishes one stream on another; :meth:`Relay.run` does the work.

    The relay keeps the boundaries and reserved values of the source's messages. The relay releases
    a message at the source after the target's log has accepted it, so a slow target slows the
    source down.

    :param source: channel to read; if it states a ``ps-sub-policy`` that skips messages, the relay
        may miss messages.
    :param target: channel to publish on; the relay adds a session on it for each session of the
        source.
    :param target_stream: default: ``source_stream``.
    :param name: of the relay, 1 to 64 letters, digits, dots, dashes and underscores. One process at
        a time has a name; the next one with the same name continues where it stopped. Default: made
        of channels and streams.
    :param directory: directory of the daemon; default as for :func:`penstock.connect`.
    :param linger_s: time for which source and target wait for the next process after this one has
        died.
    :param timeout_s: longest wait for the daemon at the start and in each later request, in
        seconds.
    :param reattach_timeout_s: longest wait for a new daemon after the daemon died, in seconds.
    :raises InvalidArgument: an argument is out of range, or the target's policy drops messages.
    :raises ConfigurationError: another process runs the relay of this name.
    :raises DaemonNotRunning: no daemon appeared in the directory within ``timeout_s``.
    :raises ChannelRefused: the daemon refuses the channel, with a reason and a ``code``.
    """
    number = source_stream if target_stream is None else target_stream
    name = name or default_name(source, source_stream, target, number)
    if not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"a relay's name has 1 to 64 letters, digits, dots, dashes and underscores: {name!r}"
        )
    if not 0 < linger_s <= 86400:
        raise InvalidArgument(f"linger_s is above 0 and at most 86400, not {linger_s}")
    policy = parse(target).ps_policy
    if policy is not None and policy.startswith("drop"):
        raise InvalidArgument(
            f"ps-policy={policy}: the target of a relay must not drop; use block, and state the "
            "policy at the source"
        )
    found = daemon_directory(directory)
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return Relay(
                source, source_stream, target, number, name=name, directory=found,
                linger_s=linger_s, timeout_s=max(deadline - time.monotonic(), 0.02),
                reattach_timeout_s=reattach_timeout_s,
            )
        except (DaemonNotRunning, FileNotFoundError) as error:
            if time.monotonic() >= deadline:
                if isinstance(error, DaemonNotRunning):
                    raise
                raise DaemonNotRunning(no_daemon(found, waited_s=timeout_s)) from None
            time.sleep(0.02)
