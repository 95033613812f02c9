"""One alloc of a scheduler: mounted, guarded, waited for, stopped.

Owns what is asked about one alloc. Promises that every wait has a deadline, or says what ends it.
Never stops an alloc by itself: what runs goes on.
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
    """An alloc that belongs to this scheduler, as it was when this was made."""

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
        named = tuple(
            one if isinstance(one, str) else one["source"] for one in stub.get("volumes") or ()
        )
        meta = dict(stub.get("meta") or {})
        about = (stub.get("note"), stub.get("modify_index"))
        return cls(stub["id"], stub["node"], stub["state"], named, meta, *about, session)

    async def mount(
        self, wait: bool = True, attempt: float = 20.0, overall: float = 300.0
    ) -> list[Mounted]:
        """Claims and mounts all its volumes, or none of them. With `wait` it gets in line where
        others hold a volume, and is repeated until the overall deadline, in seconds."""

        def again(refused: Refused) -> bool:
            return is_retryable(refused) or (wait and isinstance(refused, (Wait, Unknown)))

        done = await self._agent(
            "agent.mount-all", {"wait": wait}, attempt=attempt, overall=overall, again=again
        )
        return [
            Mounted(one["name"], one["volume"], one["path"], one["read_only"])
            for one in done["volumes"]
        ]

    async def guard(
        self, *, pid: int | None = None, cgroup: str | None = None, lock: str | None = None
    ) -> None:
        """Names what runs it on its node. Its volumes stay while that lives, and the agent reports
        its end. A process must be one of this host, which is the alloc's node."""
        request = {"guard": guard_request(pid, cgroup, lock), "owner": self.session.owner}
        await self._agent("agent.guard", request)

    async def lock(self) -> IO[bytes]:
        """Guards it by a lock, for a workload that is started on this host as a user that may
        write to the agent's directory. Give the file to the workload as its standard input: it is
        empty, and the lock lives for as long as the workload or this file does."""
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
        """Whether something guards it: its workload was started, or was about to be."""
        guards = (await self._status()).get("guards") or ()
        named = (self.session.wire.namespace, self.id)
        return any((one["namespace"], one["alloc"]) == named for one in guards)

    async def lost(self, overall: float | None = None) -> Lost:
        """Waits until its workload has to end. Without `overall`, in seconds, only that ends it:
        use it beside the workload, and cancel it. Raises `TimeoutError` after the deadline."""
        owner, by = self.session.owner, self.session.wire.identity.by
        return await self.session.watch.until(
            self.id, lambda view: why_lost(view, owner, by), overall
        )

    async def stop(self, state: End = "complete", note: str = "") -> None:
        """Says that its workload has ended. Its volumes are released then. Again is nothing."""
        stop = stop_request(self.id, state, note, self.session.owner)
        try:
            await self.session.wire.ask("alloc.stop", stop)
        except Refused as refused:
            # BERTH0301: it has ended, and its record was removed.
            if refused.code != "BERTH0301":
                raise
        self.session.watch.look_again(self.id)

    async def wait(self, until: Until, overall: float = 300.0) -> None:
        """Waits until it is mounted, has ended, or has ended and is free of claims. Raises `Never`
        if it never will be, and `Wait` after the deadline, in seconds."""
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
        again: Callable[[Refused], bool] = is_retryable,
    ) -> Json:
        wire = self.session.wire
        about = {"namespace": wire.namespace, "alloc": self.id}
        return await wire.ask(
            verb, about | body, node=self.node, attempt=attempt, overall=overall, again=again
        )


def stop_request(alloc: str, state: End, note: str, owner: str) -> Json:
    """An `alloc.stop`."""
    stop = {"id": alloc, "state": state, "owner": owner}
    return stop | ({"note": note} if note else {})
