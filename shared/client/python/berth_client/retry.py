"""Pauses between the attempts of a request, until a deadline.

Owns the backoff and its jitter. Promises that no pause passes the deadline. Never repeats
anything itself.
"""

import asyncio
import random
import time

PAUSE_MIN = 0.1  # seconds
PAUSE_MAX = 3.0  # seconds


class Backoff:
    """Pauses that double up to a bound. Each is drawn from the upper half of its span."""

    def __init__(self, overall: float):
        self.deadline = time.monotonic() + overall
        self.tries = 0

    @property
    def remaining(self) -> float:
        """Seconds until the deadline; 0 after it."""
        return max(0.0, self.deadline - time.monotonic())

    async def pause(self) -> bool:
        """Waits before the next attempt. False if the deadline comes first."""
        span = min(PAUSE_MIN * float(2 ** min(self.tries, 10)), PAUSE_MAX)
        self.tries += 1
        pause = span * random.uniform(0.5, 1.0)
        if pause >= self.remaining:
            return False
        await asyncio.sleep(pause)
        return True
