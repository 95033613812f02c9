"""Kills one process after the other, as the work goes on, and not by the clock."""

import asyncio
import itertools
import os
import signal
import time
from pathlib import Path

from nats_py.reference import demand

STEPS = (1, 4)  # steps of the work between two kills, at least and at most
# Seconds without a step. A call whose answer was lost is waited for until its process ends, so where
# all work waits for such calls, only the next kill lets it go on.
STALLED = 5


async def kill(system, names, steps, rolls, killed, prepare=lambda: None):
    """Kills the processes in turn, until it is cancelled.

    `steps` says how many steps of the work are done. The next process is killed when some more are,
    and when the one before is started again: so a slow machine gets the same storm, and no worse.
    """
    victim = None
    for name in itertools.cycle(names):
        prepare()
        due = steps() + rolls.randint(*STEPS)
        latest = time.monotonic() + STALLED
        is_early = lambda: steps() < due and time.monotonic() < latest
        while is_early() or (victim and not is_replaced(system, *victim)):
            demand(system.process.poll() is None, "berth dev has ended")
            await asyncio.sleep(0.02)
        victim = name, pid(system, name)
        # It may have ended with another one, and not be started again yet.
        if victim[1] and Path(f"/proc/{victim[1]}").exists():
            os.kill(victim[1], signal.SIGKILL)
            killed[name] += 1


def is_replaced(system, name, dead):
    """Whether another process has the name by now."""
    now = pid(system, name)
    return now not in (0, dead) and Path(f"/proc/{now}").exists()


def pid(system, name):
    """A process of `berth dev`, or the driver behind the proxy, which its script starts again; 0
    while the id of a new one is being written."""
    text = (
        (system.dir / f"{name}.pid").read_text()
        if name.startswith("driver-")
        else system.pid(name)
    )
    return int(text or 0)
