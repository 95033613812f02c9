"""Many volumes live at once, while their processes are killed and calls end badly."""

import asyncio
import itertools
import random
import time
from collections import Counter
from pathlib import Path

from nats_py.reference import demand

from .killer import kill
from .storage import NODES, compare

MIB = 1 << 20
LIVES = 30  # volumes that are made by themselves, at least; each may get a copy
KILLS_MIN = 11  # lives go on until as many processes were killed
AT_ONCE = 8
KILLS = (
    "plugin1-n1",
    "agent-n1",
    "claim",
    "volumewatcher",
    "plugin1-n2",
    "agent-n2",
    "driver-n1",
)


async def story(bus, storage, proxy, system, say, seed):
    rolls = random.Random(seed)
    killed = Counter()
    began = time.monotonic()
    numbers = itertools.count()
    done = Counter()
    hits = proxy.hits()
    kills = random.Random(seed + 1)

    def other_faults():
        """Other calls end badly each time: a proxy that starts counts its calls anew, and would
        spoil the same ones for ever."""
        proxy.storm(kills.randrange(1 << 32))

    killer = asyncio.create_task(kill(system, KILLS, done.total, kills, killed, other_faults))

    async def worker():
        while (number := next(numbers)) < LIVES or killed.total() < KILLS_MIN:
            await life(bus, f"v{number}", NODES[number % 2], rolls, done)
            done["lives"] += 1

    try:
        # A killer that ends has failed.
        workers = asyncio.gather(*(worker() for _ in range(AT_ONCE)))
        ended, _ = await asyncio.wait({workers, killer}, return_when=asyncio.FIRST_COMPLETED)
        for one in ended:
            one.result()
    finally:
        killer.cancel()
        proxy.plant()
    took = time.monotonic() - began
    say(f"in {took:.0f} s: {told(done)}")
    hits = proxy.hits() - hits
    say(f"  kills: {told(killed)}; calls with a fault: {hits}")
    counted = await compare(bus, storage)
    say(f"at rest, {counted[0]} volumes and {counted[1]} snapshots: storage and records agree")
    enough = counted[0] > 0 and killed.total() > 10 and hits > 10
    demand(enough, f"too little happened: {killed}, {hits} faults")


def told(counted):
    return ", ".join(f"{count} {what}" for what, count in sorted(counted.items()))


async def life(bus, id, node, rolls, done):
    """One volume's life, of which half leave something behind."""

    async def step(what, work):
        await work
        done[what] += 1

    await step("created", bus.create(id, node, size=MIB))
    mounted = rolls.random() < 0.5
    # What was requested is not awaited where the next request may come at once.
    if mounted or rolls.random() < 0.5:
        await bus.ready(id)
    if mounted:
        path = Path(await bus.mounted(f"a-{id}", node, id))
        path.joinpath("f").write_text(id)
        done["mounted"] += 1
    elif rolls.random() < 0.3:
        # Doomed: it may not be created yet, or be under way.
        await step("deleted at once", bus.deleted(id))
        return
    await bus.ready(id)
    await step("grown", bus.persist("volume.expand", {"id": id, "size": 2 * MIB}))
    await step("cut", bus.cut("s", id))
    copy = f"{id}-copy"
    source = {"volume": id} if rolls.random() < 0.5 else {"volume": id, "snapshot": "s"}
    await step("copied", bus.create(copy, node, **{"from": source}))
    await bus.ready(copy)
    if rolls.random() < 0.3:
        await step("cut in a group", bus.cut("g", id, copy))
        if rolls.random() < 0.5:
            await step("group deleted", bus.snapshot_deleted(copy, "g", group=True))
    if mounted:
        await bus.stopped(f"a-{id}", id)
        path = Path(await bus.mounted(f"b-{id}", node, copy))
        demand(path.joinpath("f").read_text() == id, f"{copy} is no copy of {id}")
        await bus.stopped(f"b-{id}", copy)
    if rolls.random() < 0.5:
        await step("snapshot deleted", bus.snapshot_deleted(id, "s"))
    if rolls.random() < 0.5:
        await step("deleted", bus.deleted(id))
    await bus.rested(copy)


async def clear(bus):
    """Deletes all that is left, snapshots first or last."""
    for one in await bus.snapshots():
        group = len(one.get("group", [])) > 1
        await bus.snapshot_deleted(one["volume"], one["snapshot"], group)
    listed = (await bus.persist("volume.list", {}))["volumes"]
    await asyncio.gather(*(bus.deleted(one["id"]) for one in listed))
