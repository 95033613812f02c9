"""The Python client for authors of schedulers, on a real system:
`python -m python_client BINARIES EXAMPLE`.

Owns one system of its own. Promises that what it says has been checked, and that any difference
ends it with exit code 1. Leaves nothing behind.
"""

import asyncio
import logging
import sys
import time
import traceback
from pathlib import Path

from berth_client import Refused
from nats_py.reference import NotAsDocumented
from nats_py.system import System

from . import bulk, life, owners, plain, refusals, restart, whys
from .fleet import Fleet

WITHIN = 180  # seconds for everything
STARTED = time.monotonic()


def say(text):
    """A line of the story."""
    print(f"{time.monotonic() - STARTED:5.1f}s  {text}", flush=True)


def explain(fault):
    """A fault, and where it was found."""
    frames = traceback.extract_tb(fault.__traceback__)
    where = [f"{Path(one.filename).name}:{one.lineno}" for one in frames]
    return f"{type(fault).__name__}: {fault} ({' '.join(where[-4:])})"


async def tell(system, example):
    await plain.check(say)
    async with Fleet(system, example) as fleet:
        try:
            for check in (life, refusals, whys, bulk, owners, restart):
                await check.story(fleet, say)
            await fleet.settle()
        except Exception as fault:
            # Said before anything is taken down, which may fail as well.
            print(f"python-client: DIFFERENT: {explain(fault)}", file=sys.stderr, flush=True)
            raise
    say("no alloc is live, no volume is held, and no agent has a mount or a guard")


def main():
    # asyncio warns when a server closes a connection with TLS, whatever is right.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    binaries, example = (Path(word).resolve() for word in sys.argv[1:])
    try:
        with System(binaries) as system:
            asyncio.run(asyncio.wait_for(tell(system, example), WITHIN))
    except (NotAsDocumented, Refused) as fault:
        print(f"python-client: failed: {explain(fault)}", file=sys.stderr)
        return 1
    say("stopped; no process, no mount and no file is left")
    return 0


sys.exit(main())
