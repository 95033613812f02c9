"""One watch for all waits of a scheduler.

Owns one subscription to the events of its own allocs, and one task. An event causes a read of its
alloc, and more reads until the node's report of it is on record. Events may be lost, so all
followed allocs are listed every few seconds.
Promises that a thousand waits cost a few lists, and that a wait is decided only by reads that
began after it. Never reads an alloc that nothing waits for.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from . import tasks
from .errors import Json, Refused, refuse
from .retry import PAUSE_MAX, PAUSE_MIN
from .view import View
from .wire import ATTEMPT, Wire

RESCAN = 5.0  # seconds between two lists of all followed allocs
SETTLE = 0.02  # seconds in which all events of one change arrive
# Seconds from an event to further reads of its alloc: a node's report of a mount is on record about
# a second after the event, and causes no event.
REPORT_LAGS = (0.4, 0.8, 1.2, 1.6, 2.0)
READ_MAX = 16  # allocs that are read one by one at once; more are listed
READ_RATE = 10  # allocs that are read one by one in a second; more are listed
LIST_PAUSE = 0.5  # seconds from one list to the next

T = TypeVar("T")
Decide = Callable[[View | None], Any]


@dataclass
class _Followed:
    """The waits for an alloc: for each, its condition and the number of the last read before it."""

    waits: dict["asyncio.Future[Any]", tuple[Decide, int]] = field(default_factory=dict)


def closed() -> Refused:
    """The refusal of a wait after the scheduler was closed."""
    return refuse("BERTH0005", "the scheduler is closed", "connect again")


class Watch:
    """Follows allocs for as long as something waits for them."""

    def __init__(self, wire: Wire, owner: str):
        self._wire, self._owner = wire, owner
        self._followed: dict[str, _Followed] = {}
        self._changed: set[str] = set()
        self._wake = asyncio.Event()
        self._reads = 0
        self._task: asyncio.Task[None] | None = None
        self._later: dict[str, list[asyncio.TimerHandle]] = {}

    async def start(self) -> None:
        """Subscribes to events, and starts the task."""
        await self._wire.events(self._on_event)
        self._wire.on_reconnect = self._read_all_again
        self._task = asyncio.create_task(self._run(), name="berth-watch")

    async def close(self) -> None:
        """Ends the task, and refuses each wait."""
        if self._task is not None:
            await tasks.end(self._task)
            self._task = None
        self._fail(set(self._followed), closed())

    def look_again(self, alloc: str) -> None:
        """Reads an alloc again soon, because it may have changed."""
        if alloc in self._followed:
            self._changed.add(alloc)
            self._wake.set()

    async def until(
        self, alloc: str, decide: Callable[[View | None], T | None], overall: float | None
    ) -> T:
        """Waits until `decide` returns an answer. Raises `TimeoutError` after the deadline."""
        if self._task is None:
            raise closed()
        wait: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        followed = self._followed.setdefault(alloc, _Followed())
        followed.waits[wait] = (decide, self._reads)
        self.look_again(alloc)
        try:
            return await asyncio.wait_for(wait, overall)
        except asyncio.TimeoutError:
            raise TimeoutError(f"alloc {alloc} is not as far as that") from None
        finally:
            del followed.waits[wait]
            if not followed.waits and self._followed.get(alloc) is followed:
                del self._followed[alloc]
                for timer in self._later.pop(alloc, ()):
                    timer.cancel()

    async def _run(self) -> None:
        now = asyncio.get_running_loop().time
        pause, scan_at, budget = PAUSE_MIN, now() + RESCAN, float(READ_MAX)
        while True:
            round_at = now()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._wake.wait(), max(0.0, scan_at - now()))
                await asyncio.sleep(SETTLE)
            budget = min(READ_MAX, budget + (now() - round_at) * READ_RATE)
            is_scan = now() >= scan_at or len(self._changed) > budget
            if is_scan:
                # The same lists also show what changes during this pause.
                await asyncio.sleep(max(0.0, scan_at - RESCAN + LIST_PAUSE - now()))
                scan_at = now() + RESCAN * random.uniform(1.0, 1.2)
                self._changed.update(self._followed)
            self._wake.clear()
            changed, self._changed = self._changed & self._followed.keys(), set()
            budget -= 0 if is_scan else len(changed)
            try:
                await self._read(changed, is_scan)
                pause = PAUSE_MIN
            except Refused:
                # The services cannot answer now. Waits end by their own deadlines.
                self._changed |= changed
                self._wake.set()
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, PAUSE_MAX)
            except Exception as fault:
                # A defect of this package, or a malformed answer: these waits fail.
                self._fail(changed, fault)

    def _on_event(self, alloc: str) -> None:
        self.look_again(alloc)
        for timer in self._later.pop(alloc, ()):
            timer.cancel()
        if alloc in self._followed:
            loop = asyncio.get_running_loop()
            self._later[alloc] = [
                loop.call_later(lag, self.look_again, alloc) for lag in REPORT_LAGS
            ]

    def _fail(self, allocs: set[str], fault: Exception) -> None:
        for followed in (self._followed[alloc] for alloc in allocs & self._followed.keys()):
            for wait in followed.waits:
                if not wait.done():
                    wait.set_exception(fault)

    def _read_all_again(self) -> None:
        self._changed.update(self._followed)
        self._wake.set()

    async def _read(self, allocs: set[str], by_list: bool) -> None:
        """Reads allocs. Those that the lists do not decide are read one by one."""
        unread = sorted(allocs)
        if by_list and unread:
            unread = await self._read_lists(allocs)
        for first in range(0, len(unread), READ_MAX):
            batch = unread[first : first + READ_MAX]
            results = await asyncio.gather(*map(self._read_one, batch), return_exceptions=True)
            for fault in results:
                if isinstance(fault, BaseException):
                    raise fault

    async def _read_lists(self, allocs: set[str]) -> list[str]:
        """Reads all allocs, then all claims: an ended alloc gets no claim later. Returns the allocs
        that are still to be read."""
        read = self._begin_read()
        pages = await self._wire.pages("alloc.list", {"owner": self._owner}, ATTEMPT)
        claims: dict[str, list[Json]] = {}
        is_whole = True
        for page in await self._wire.pages("claim.status", {}, ATTEMPT):
            is_whole = is_whole and not page.get("unreadable")
            for claim in page["claims"]:
                claims.setdefault(claim["alloc"], []).append(claim)
        is_whole = is_whole and not any(page.get("unreadable") for page in pages)
        unread = set(allocs)
        for stub in (stub for page in pages for stub in page["allocs"] if stub["id"] in allocs):
            if is_whole:
                unread.discard(stub["id"])
                self._decide(stub["id"], read, View.parse(stub, claims.get(stub["id"], ()), True))
        return sorted(unread)

    async def _read_one(self, alloc: str) -> None:
        read = self._begin_read()
        try:
            status = await self._wire.ask("alloc.status", {"id": alloc}, overall=ATTEMPT)
        except Refused as refused:
            if refused.code != "BERTH0301":
                raise
            return self._decide(alloc, read, None)
        is_whole = not status.get("unreadable")
        self._decide(alloc, read, View.parse(status, status.get("claims") or (), is_whole))

    def _begin_read(self) -> int:
        self._reads += 1
        return self._reads

    def _decide(self, alloc: str, read: int, view: View | None) -> None:
        """Ends the waits that began before this read and that the view decides."""
        followed = self._followed.get(alloc)
        for wait, (decide, since) in list(followed.waits.items()) if followed else ():
            if read > since and not wait.done():
                answer = decide(view)
                if answer is not None:
                    wait.set_result(answer)
