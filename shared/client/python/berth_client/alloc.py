"""One alloc of a scheduler: mounted, guarded, waited for, stopped.

Owns the requests about one alloc. Promises that every wait has a deadline, or says what ends it.
Never stops an alloc by itself: its workload runs on.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Literal

from .errors import Json, Refused, Unknown, Wait, refuse
from .guard import guard_request, new_lock
from .view import Lost, Until, reached, why_lost
from .volume import Mounted
from .watch import Watch
from .wire import ATTEMPT, BRIEF, Wire, is_retryable

End = Literal["complete", "failed", "stopped"]


@dataclass(frozen=True)
class Session:
    """What the allocs of a scheduler share."""

    wire: Wire
    watch: Watch
    owner: str


@dataclass(frozen=True)
class Alloc:
    """An alloc of this scheduler, as it was when this object was made."""

    id: str
    node: str
    state: str
    volumes: tuple[str, ...]
    """The ids of its volumes."""
    meta: dict[str, str]
    note: str | None
    revision: int | None
    """The revision of its record."""
    session: Session = field(repr=False, compare=False)

    @classmethod
    def parse(cls, stub: Json, session: Session) -> "Alloc":
        """From an `AllocStub` or an `AllocStatus`."""
        volumes = tuple(
            volume if isinstance(volume, str) else volume["source"]
            for volume in stub.get("volumes") or ()
        )
        meta = dict(stub.get("meta") or {})
        note, revision = stub.get("note"), stub.get("modify_index")
        return cls(stub["id"], stub["node"], stub["state"], volumes, meta, note, revision, session)

    async def mount(
        self, wait: bool = True, attempt: float = 20.0, overall: float = 300.0
    ) -> list[Mounted]:
        """Claims and mounts all its volumes, or none of them. With `wait` it gets in line for a
        volume that another alloc holds, and repeats the request for `overall` seconds."""

        def should_repeat(refused: Refused) -> bool:
            return is_retryable(refused) or (wait and isinstance(refused, (Wait, Unknown)))

        reply = await self._agent(
            "agent.mount-all",
            {"wait": wait},
            attempt=attempt,
            overall=overall,
            should_repeat=should_repeat,
        )
        return [
            Mounted(volume["name"], volume["volume"], volume["path"], volume["read_only"])
            for volume in reply["volumes"]
        ]

    async def guard(
        self, *, pid: int | None = None, cgroup: str | None = None, lock: str | None = None
    ) -> None:
        """Names the guard that runs it on its node. Its volumes stay while the guard lives, and the
        agent reports the guard's end. Name a process only if this host is the alloc's node."""
        request = {"guard": guard_request(pid, cgroup, lock), "owner": self.session.owner}
        await self._agent("agent.guard", request)

    async def lock(self) -> IO[bytes]:
        """Guards it by a lock, for a workload on this host. This user must be allowed to write to
        the agent's directory. Give the returned file to the workload as its standard input: it is
        empty, and the lock lives while the workload or this file lives."""
        runs = (await self._status()).get("runs")
        try:
            if not runs:
                raise OSError("the agent has no directory for locks")
            file = new_lock(runs)
        except OSError as fault:
            message = f"alloc {self.id} cannot be guarded by a lock: {fault}"
            following = "run the scheduler as root on the host of the alloc's node"
            raise refuse("BERTH0310", message, following, node=self.node) from fault
        try:
            await self.guard(lock=file.name.rpartition("/")[2])
        except BaseException:
            file.close()
            raise
        return file

    async def is_guarded(self) -> bool:
        """Whether it has a guard: its workload was started, or was about to be."""
        guards = (await self._status()).get("guards") or ()
        alloc = (self.session.wire.namespace, self.id)
        return any((guard["namespace"], guard["alloc"]) == alloc for guard in guards)

    async def lost(self, overall: float | None = None) -> Lost:
        """Waits until its workload has to end: use it beside the workload, and cancel it. Raises
        `TimeoutError` after `overall` seconds, if they are given."""
        owner, by = self.session.owner, self.session.wire.identity.by
        return await self.session.watch.until(
            self.id, lambda view: why_lost(view, owner, by), overall
        )

    async def stop(self, state: End = "complete", note: str = "") -> None:
        """Reports that its workload has ended, which releases its volumes. May be repeated."""
        stop = stop_request(self.id, state, note, self.session.owner)
        try:
            await self.session.wire.ask("alloc.stop", stop)
        except Refused as refused:
            # BERTH0301: the alloc has ended, and its record was removed.
            if refused.code != "BERTH0301":
                raise
        self.session.watch.look_again(self.id)

    async def wait(self, until: Until, overall: float = 300.0) -> None:
        """Waits until it is mounted, has ended, or has ended and is free of claims. Raises `Never`
        if it never will be, and `Wait` after `overall` seconds."""
        try:
            is_reached = await self.session.watch.until(
                self.id, lambda view: reached(view, until), overall
            )
        except TimeoutError:
            message = f"alloc {self.id} is not {until} within {overall:g} s"
            following = f"see with `berth why {self.id}` what it waits for"
            raise refuse("BERTH0107", message, following, node=self.node) from None
        if not is_reached:
            message = f"alloc {self.id} has ended, so it will not be {until}"
            raise refuse("BERTH0302", message, "start a new one", node=self.node)

    async def _status(self) -> Json:
        return await self.session.wire.ask("agent.status", {}, node=self.node)

    async def _agent(
        self,
        verb: str,
        body: Json,
        attempt: float = ATTEMPT,
        overall: float = BRIEF,
        should_repeat: Callable[[Refused], bool] = is_retryable,
    ) -> Json:
        wire = self.session.wire
        ids = {"namespace": wire.namespace, "alloc": self.id}
        return await wire.ask(
            verb,
            ids | body,
            node=self.node,
            attempt=attempt,
            overall=overall,
            should_repeat=should_repeat,
        )


def stop_request(alloc: str, state: End, note: str, owner: str) -> Json:
    """An `alloc.stop`."""
    stop = {"id": alloc, "state": state, "owner": owner}
    return stop | ({"note": note} if note else {})
