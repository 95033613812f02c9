"""The owner's lease: taken at the start, renewed by a task.

Owns the lease of one owner. Promises that a lease counts as lost before another process can take
the owner's allocs: its time is counted from before the last renewal. Never stops an alloc:
workloads run on when the lease is lost.
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

RETRY_PAUSE = 0.5  # seconds until the next attempt after a failed renewal
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
        """Takes the lease. The lease of an earlier process ends within its time to live."""
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
        """Ends the lease now, so that another process may adopt the allocs at once."""
        await self.abandon()
        try:
            await self._wire.ask("owner.yield", self._names, overall=self._ttl)
        except Refused as refused:
            # The lease belongs to another process, or will end by itself.
            if refused.code != HELD and not refused.retryable:
                raise

    async def abandon(self) -> None:
        """Stops renewing the lease, so that it ends by itself."""
        if self._task is not None:
            await tasks.end(self._task)
            self._task = None

    async def _renew(self) -> None:
        began = time.monotonic()
        hold = {**self._names, "ttl_s": self._ttl}
        await self._wire.once("owner.hold", hold, attempt=self._ttl / 3)
        self._since, self.is_held = began, True

    async def _keep(self) -> None:
        pause = self._ttl / 3
        while True:
            await asyncio.sleep(min(pause, self._remaining()) if self.is_held else RETRY_PAUSE)
            try:
                # The deadline shows the end of the lease even if the renewal is not answered.
                timeout = max(self._remaining(), RETRY_PAUSE) if self.is_held else float(self._ttl)
                await asyncio.wait_for(self._renew(), timeout)
                pause = self._ttl / 3
            except (Refused, asyncio.TimeoutError) as fault:
                pause = RETRY_PAUSE
                is_taken = isinstance(fault, Refused) and fault.code == HELD
                if self.is_held and (is_taken or self._remaining() == 0):
                    self.is_held = False
                    self.lost.set()

    def _remaining(self) -> float:
        return max(0.0, self._since + self._ttl - time.monotonic())
