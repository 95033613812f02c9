"""The end of a task that runs beside the callers.

Promises that an ended task runs no more. Never waits for the work that the task was doing.
"""

import asyncio
from typing import Any

CANCEL_INTERVAL = 0.1  # seconds until a task that still runs is cancelled again


async def end(task: "asyncio.Task[Any]") -> None:
    """Cancels a task until it has ended. Once is not enough: before Python 3.12, `wait_for` drops a
    cancellation that comes while its future ends, and the task would run for ever."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=CANCEL_INTERVAL)
