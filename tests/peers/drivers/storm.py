"""Some volumes live at once, while processes of ours, and the driver where it can, are killed."""

import asyncio
import itertools
import random
from collections import Counter

from hostpath.killer import kill
from hostpath.storm import told

AT_ONCE = 3
ROUNDS = 1  # how often each process is killed, at least


def victims(driver):
    """What is killed. The driver is killed with its proxy; one that forgets is spared here."""
    nodes = [f"n{number + 1}" for number in range(driver.nodes)]
    names = ["claim", "volumewatcher", "plugin-registry"] + [f"agent-{node}" for node in nodes]
    if driver.remembers:
        names += [f"{name}-{node}" for node in nodes for name in ("driver", "plugin1")]
    return names


async def story(life, storage, system, say, seed):
    names = victims(life.driver)
    done, killed = Counter(), Counter()
    numbers = itertools.count()
    rolls = random.Random(seed)

    async def worker():
        while (number := next(numbers)) < AT_ONCE or killed.total() < ROUNDS * len(names):
            await one(life, f"v{number}", f"n{number % life.driver.nodes + 1}", done)

    killer = asyncio.create_task(kill(system, names, done.total, rolls, killed))
    workers = asyncio.gather(*(worker() for _ in range(AT_ONCE)))
    try:
        # A killer that ends has failed.
        ended, _ = await asyncio.wait({workers, killer}, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()
    finally:
        killer.cancel()
        workers.cancel()
    await storage.compare()
    say(f"{told(done)}; killed: {told(killed)}")


async def one(life, id, node, done):
    """One volume's life, from its creation to its end."""

    async def step(what, work):
        result = await work
        done[what] += 1
        return result

    await step("created", life.created(id, node))
    await step("claimed", life.written(id, id, node))
    if life.can["expand_volume"]:
        await step("grown", life.grown(id))
    copies = []
    if life.copies:
        await life.cut(id)
        for way in life.copies:
            copies.append(await step("copied", life.copied(id, way, id, node)))
        await life.uncut(id)
    for volume in (id, *copies):
        await step("deleted", life.bus.deleted(volume))
