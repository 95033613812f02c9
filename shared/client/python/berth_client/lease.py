"""The owner's lease: taken at the start, renewed by a task.

Owns the lease of one owner. Promises that a lease which may have ended counts as lost before
another process can have taken its allocs: time is counted from before the last renewal. Never
stops an alloc: what runs goes on when the lease is lost.
"""

import asyncio
import os
import secrets
import socket
import time

from . import tasks
from .errors import Refused
from .retry import Backoff
from .wire import Wire

TRY_AGAIN = 0.5  # seconds between tries after one that failed
HELD = "BERTH0309"  # another process holds the lease


class Lease:
    """Holds the lease of an owner until it is given up."""

    def __init__(self, wire: Wire, owner: str, ttl: float):
        self.lost = asyncio.Event()
        self.is_held = False
        self._wire, self._ttl = wire, max(1, round(ttl))
        holder = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._names = {"owner": owner, "holder": holder}
        self._since = 0.0
        self._task: asyncio.Task[None] | None = None

    async def take(self) -> None:
        """Takes it. The lease of an earlier process ends within its time to live."""
        backoff = Backoff(self._ttl * 2 + 15)
        while True:
            try:
                await self._renew()
                break
            except Refused as refused:
                if not refused.retryable or not await backoff.pause():
                    raise
        self._task = asyncio.create_task(self._keep(), name="berth-lease")

    async def give_up(self) -> None:
        """Ends it now, so that another process may adopt the allocs at once."""
        await self.abandon()
        try:
            await self._wire.ask("owner.yield", self._names, overall=self._ttl)
        except Refused as refused:
            # The lease belongs to another process, or will end by itself.
            if refused.code != HELD and not refused.retryable:
                raise

    async def abandon(self) -> None:
        """Renews it no more: it ends by itself."""
        if self._task is not None:
            await tasks.end(self._task)
            self._task = None

    async def _renew(self) -> None:
        asked = time.monotonic()
        hold = {**self._names, "ttl_s": self._ttl}
        await self._wire.once("owner.hold", hold, attempt=self._ttl / 3)
        self._since, self.is_held = asked, True

    async def _keep(self) -> None:
        pause = self._ttl / 3
        while True:
            await asyncio.sleep(min(pause, self._left()) if self.is_held else TRY_AGAIN)
            try:
                # A renewal that is not answered must not hide that the lease is over.
                within = max(self._left(), TRY_AGAIN) if self.is_held else float(self._ttl)
                await asyncio.wait_for(self._renew(), within)
                pause = self._ttl / 3
            except (Refused, asyncio.TimeoutError) as fault:
                pause = TRY_AGAIN
                is_another = isinstance(fault, Refused) and fault.code == HELD
                if self.is_held and (is_another or self._left() == 0):
                    self.is_held = False
                    self.lost.set()

    def _left(self) -> float:
        return max(0.0, self._since + self._ttl - time.monotonic())
