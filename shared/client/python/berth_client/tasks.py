"""The end of a task that runs beside the callers.

Promises that a task which is ended here has ended. Never waits for what the task was at.
"""

import asyncio
from typing import Any

AGAIN = 0.1  # seconds after which a task that still runs is cancelled again


async def end(task: "asyncio.Task[Any]") -> None:
    """Cancels a task until it has ended. Once is not enough: before Python 3.12, `wait_for` drops a
    cancellation that comes as what it waits for ends, and the task would go on for ever."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=AGAIN)
