"""A second client, in Python, by the contract in docs alone: `python -m nats_py BINARIES`.

Owns one system of its own. Promises that what it says has been checked, and that anything that is
not as documented ends it with exit code 1. Leaves nothing behind.
"""

import asyncio
import sys
import time
from pathlib import Path

import nats

from . import faults, life, look
from .reference import NotAsDocumented, demand, read
from .system import System
from .wire import Wire

ROOT = Path(__file__).resolve().parents[3]
STARTED = time.monotonic()


def say(text):
    """A line of the story."""
    print(f"{time.monotonic() - STARTED:5.1f}s  {text}", flush=True)


async def tell(system):
    page = read(ROOT / "docs")
    say(
        f"the contract: {len(page.endpoints)} endpoints, {len(page.schema.defs)} types, "
        f"{len(page.keys)} buckets, {len(page.events)} events, {len(page.codes)} error codes"
    )
    look.examples(page, say)
    look.errors(page, say)
    client = await nats.connect(system.url, name="peer/nats-py", **system.identity.options())
    wire = Wire(client, page)
    try:
        await look.streams(wire, say)
        await look.services(wire, say)
        await look.records(wire, say)
        await life.story(wire, system, say)
        await faults.every_endpoint(wire, say)
        await look.records(wire, say)
        await look.statistics(wire, say)
        left = {one.anchor for one in page.endpoints} - wire.asked
        demand(not left, f"never asked: {left}")
        say(f"every endpoint was asked; refusals met: {', '.join(sorted(wire.codes))}")
    finally:
        await client.close()


def main():
    try:
        with System(Path(sys.argv[1]).resolve()) as system:
            asyncio.run(asyncio.wait_for(tell(system), 60))
    except NotAsDocumented as fault:
        print(f"nats-py: NOT AS DOCUMENTED: {fault}", file=sys.stderr)
        return 1
    say("stopped; no process, no mount and no file is left")
    return 0


sys.exit(main())
