"""An instance of a scheduler: an owner of allocs, with its lease.

Owns the connection, the lease of the owner, and the watch. Promises that two schedulers with
different owners never stop each other's allocs, since the services refuse it. Never stops an
alloc by itself, even when it is closed: after a restart, `own` and `adopt` find what runs.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from .alloc import Alloc, End, Session, stop_request
from .errors import Json, Refused, refusal, refuse
from .identity import read_identity
from .lease import HELD, Lease
from .retry import Backoff
from .volume import Nodes, VolumeLike, volume_requests
from .watch import Watch
from .wire import ATTEMPT, Wire

BULK_MAX = 64  # entries of one bulk request
CHANGE_WITHIN = 30.0  # seconds in which a service answers a wait for another placement
ALLOCS_MAX = 1_000_000  # bounds a loop over answers of which each has `more`

T = TypeVar("T")


@dataclass(frozen=True)
class Registration:
    """An alloc that is to be registered."""

    id: str
    node: str
    volumes: Sequence[VolumeLike] = ()
    meta: Mapping[str, str] = field(default_factory=dict)
    """Labels, at most 32. They are stored, listed and filtered."""
    note: str = ""
    index: int | None = None
    """Its number among similar allocs; for volumes with `per_alloc`."""
    revision: int | None = None
    """Change the record only if it is still at this revision."""

    def request(self, owner: str) -> Json:
        """An `alloc.register`."""
        optional = {
            "volumes": volume_requests(self.volumes) or None,
            "meta": dict(self.meta) or None,
            "note": self.note or None,
            "index": self.index,
            "revision": self.revision,
        }
        ids: Json = {"id": self.id, "node": self.node, "owner": owner}
        return ids | {name: value for name, value in optional.items() if value is not None}


class Scheduler:
    """A connection, an owner and its allocs. Use it with `async with`, or close it."""

    def __init__(self, session: Session, lease: Lease):
        self._session, self._lease = session, lease
        self._is_closed = False

    @classmethod
    async def connect(
        cls,
        server: str | Sequence[str],
        creds_file: str | Path | None = None,
        ca_file: str | Path | None = None,
        *,
        owner: str,
        name: str = "berth-client",
        namespace: str = "default",
        lease_ttl: float = 15.0,
        overall: float = 10.0,
    ) -> "Scheduler":
        """Connects within `overall` seconds, and takes the owner's lease. It waits until the lease
        of an earlier process of the owner has ended: at most twice `lease_ttl`, and 15 s.

        Two processes at the same time need two owners."""
        creds, authority = (Path(file) if file else None for file in (creds_file, ca_file))
        identity = read_identity(creds, authority, name)
        servers = server.split(",") if isinstance(server, str) else list(server)
        wire = await Wire.connect(servers, identity, namespace, name, overall)
        watch, lease = Watch(wire, owner), Lease(wire, owner, lease_ttl)
        try:
            await watch.start()
            await lease.take()
        except BaseException:
            await watch.close()
            await wire.close()
            raise
        return cls(Session(wire, watch, owner), lease)

    @property
    def owner(self) -> str:
        """The owner's name."""
        return self._session.owner

    @property
    def actor(self) -> str:
        """Its actor, as the services know it: `user.anna`."""
        return self._session.wire.identity.by

    @property
    def lease_lost(self) -> asyncio.Event:
        """Set when the owner's lease is lost: from then on, other owners may adopt its allocs. The
        lease is taken again as soon as possible; after that, `own` clears the event."""
        return self._lease.lost

    async def nodes_for(
        self,
        volumes: Sequence[VolumeLike],
        index: int | None = None,
        other_than: Nodes | None = None,
        overall: float = 60.0,
    ) -> Nodes:
        """Which nodes can host these volumes. With `other_than` it waits until the answer is
        another one, for at most `overall` seconds; with more than 1000 nodes, those count that
        come first."""
        body = _placement(volumes, index)
        if other_than is not None:
            await self._another_placement(body, other_than.index, overall)
        nodes = Nodes()
        for number, page in enumerate(await self._session.wire.pages("volume.placement", body)):
            nodes.add(page, is_first=number == 0)
        return nodes

    async def place_many(
        self, workloads: Sequence[Sequence[VolumeLike]]
    ) -> list["Nodes | Refused"]:
        """Which nodes can host the volumes of each of many workloads."""
        placements: list[Nodes | Refused] = []
        for bulk in _bulks(list(workloads)):
            bodies = [_placement(volumes, None) for volumes in bulk]
            reply = await self._session.wire.ask("volume.place-many", {"placements": bodies})
            for volumes, answer in zip(bulk, reply["answers"]):
                page = answer.get("placements")
                if page is None:
                    placements.append(_fault(answer))
                elif page.get("next") is not None:
                    placements.append(await self.nodes_for(volumes))
                else:
                    nodes = Nodes()
                    nodes.add(page, is_first=True)
                    placements.append(nodes)
        return placements

    async def register(
        self,
        id: str,
        node: str,
        volumes: Sequence[VolumeLike] = (),
        meta: Mapping[str, str] | None = None,
        note: str = "",
        index: int | None = None,
        revision: int | None = None,
    ) -> Alloc:
        """Registers an alloc of this owner, which does not run yet. A repetition with the same
        content changes nothing; `meta` may differ."""
        registration = Registration(id, node, volumes, meta or {}, note, index, revision)
        status = await self._session.wire.ask("alloc.register", registration.request(self.owner))
        return self._alloc(status)

    async def register_many(
        self, registrations: Sequence[Registration]
    ) -> list["Alloc | Refused"]:
        """Registers many allocs; returns one answer for each, in the same order."""
        bodies = [registration.request(self.owner) for registration in registrations]
        return await self._each("alloc.register-many", "allocs", bodies)

    async def stop_many(
        self, allocs: Sequence[Alloc], state: End = "complete", note: str = ""
    ) -> list["Alloc | Refused"]:
        """Stops many allocs; returns one answer for each, in the same order."""
        bodies = [stop_request(alloc.id, state, note, self.owner) for alloc in allocs]
        return await self._each("alloc.stop-many", "stops", bodies)

    async def own(self) -> list[Alloc]:
        """Lists the live allocs of this owner, as after a restart. Allocs that became unowned when
        its lease ended become its own again."""
        try:
            await self.adopt(self.owner)
        except Refused as refused:
            # Another identity also uses the owner's name.
            if refused.code != HELD:
                raise
        body = {"owner": self.owner, "state": "live"}
        pages = await self._session.wire.pages("alloc.list", body)
        if self._lease.is_held:
            self._lease.lost.clear()
        stubs = (stub for page in pages for stub in page["allocs"])
        return [self._alloc(stub) for stub in stubs if stub.get("by") == self.actor]

    async def adopt(self, from_owner: str) -> list[Alloc]:
        """Takes over all live allocs of an owner whose lease has ended. Their workloads run on. If
        it raises a refusal, `own` lists those that were taken over before."""
        return await self._many("alloc.adopt", {"from": from_owner, "owner": self.owner})

    async def stop_all(self, state: End = "stopped", note: str = "") -> list[Alloc]:
        """Stops all live allocs of this owner. Their workloads must have ended."""
        body = {"owner": self.owner, "state": state} | ({"note": note} if note else {})
        return await self._many("alloc.stop-owned", body)

    async def close(self, keep_lease: bool = False) -> None:
        """Gives the lease up, so that another process may adopt the live allocs at once; with
        `keep_lease`, the lease ends by itself. Then it disconnects, and refuses each wait. A
        repetition does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await (self._lease.abandon() if keep_lease else self._lease.give_up())
        finally:
            await self._session.watch.close()
            await self._session.wire.close()

    async def __aenter__(self) -> "Scheduler":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _alloc(self, stub: Json) -> Alloc:
        return Alloc.parse(stub, self._session)

    async def _another_placement(self, body: Json, index: int, overall: float) -> None:
        wait, wire = Backoff(overall), self._session.wire
        while (within := min(CHANGE_WITHIN, wait.remaining)) > 0:
            query = body | {"newer_than": index, "wait_ms": int(within * 1000) + 1}
            # The service needs some time after the wait to answer.
            page = await wire.ask("volume.placement", query, attempt=within + ATTEMPT)
            if page.get("index") != index:
                return

    async def _each(self, verb: str, entries: str, bodies: list[Json]) -> list["Alloc | Refused"]:
        results: list[Alloc | Refused] = []
        for bulk in _bulks(bodies):
            answers = (await self._session.wire.ask(verb, {entries: bulk}))["answers"]
            for answer in answers:
                stub = answer.get("alloc")
                results.append(_fault(answer) if stub is None else self._alloc(stub))
                self._session.watch.look_again(answer["id"])
        return results

    async def _many(self, verb: str, body: Json) -> list[Alloc]:
        """Repeats a request until its answer has no `more`."""
        allocs: list[Alloc] = []
        while len(allocs) < ALLOCS_MAX:
            reply = await self._session.wire.ask(verb, body)
            allocs += [self._alloc(stub) for stub in reply["allocs"]]
            if not reply.get("more"):
                break
        return allocs


def _placement(volumes: Sequence[VolumeLike], index: int | None) -> Json:
    body: Json = {"volumes": volume_requests(volumes)}
    return body | ({"index": index} if index is not None else {})


def _bulks(entries: list[T]) -> list[list[T]]:
    return [entries[first : first + BULK_MAX] for first in range(0, len(entries), BULK_MAX)]


def _fault(answer: Json) -> Refused:
    problem = answer.get("error")
    if problem is None:
        return refuse("BERTH0004", "the service did not say what it did", "ask again")
    return refusal(problem)
