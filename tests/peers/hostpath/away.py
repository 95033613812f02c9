"""A host comes back, and its driver does not answer yet: nothing of its volumes is done elsewhere.

The agent does not know then where its node is, so nobody does. A controller of another node knows
no such volume, and answers a deletion with OK.
"""

import os
import signal

from nats_py.reference import demand

from .bus import PLUGIN, until
from .life import MIB, created, empty
from .storage import compare


async def story(bus, storage, system, say):
    for node in ("n1", "n2"):
        await created(bus, f"of-{node}", node, size=MIB)
        await bus.cut("s", f"of-{node}")
    for node in ("n1", "n2"):
        await wait_for(bus, storage, system, node)
    await compare(bus, storage)
    await empty(bus, storage)
    say("deletions, growth and cuts wait for the host that has the volume")


async def wait_for(bus, storage, system, node):
    """Stops the node's driver, restarts its agent, and requests the deletion of what it has."""
    driver, agent = (int(system.pid(f"{name}-{node}")) for name in ("plugin1", "agent"))
    os.kill(driver, signal.SIGSTOP)
    try:
        os.kill(agent, signal.SIGKILL)
        await until(f"the agent of {node} is restarted", lambda: restarted(bus, node))
        before = set(storage.volumes()), set(storage.snapshots())
        volume = f"of-{node}"
        await bus.persist("volume.delete", {"id": volume})
        await bus.persist("snapshot.delete", {"volume": volume, "snapshot": "s"})
        await until(f"{volume} waits for its host", lambda: has_waited(bus, volume))
        left = set(storage.volumes()), set(storage.snapshots())
        demand(left == before, f"a driver that is stopped has lost {before} to {left}")
        shown = (await bus.status(volume))["storage"]
        demand(shown["stage"] == "deleting", f"{volume} is on {node}, which is away: {shown}")
    finally:
        os.kill(driver, signal.SIGCONT)
    await bus.deleted(volume)
    await bus.snapshot_deleted(volume, "s")


async def has_waited(bus, volume):
    """Whether the deletion found nobody to call; a wrong controller would have been called then."""
    operation = (await bus.status(volume))["storage"].get("operation", {})
    return operation.get("waits_for") == "controller" or operation.get("tries", 0) >= 2


async def restarted(bus, node):
    """Whether the node's new agent has reported its driver, which does not answer it."""
    shown = (await bus.persist("plugin.status", {"id": PLUGIN}, to=()))["plugins"][0]
    here = [one for one in shown["instances"] if one["node"] == node]
    return here and all(not one["healthy"] for one in here)
