"""A volume's life, once without a fault: all that the driver has announced, and nothing else."""

import itertools
import os
import signal
from pathlib import Path

from nats.errors import Error
from nats.errors import TimeoutError as NoMore

from hostpath.bus import NotYet, Refused, until
from hostpath.killer import is_replaced, pid
from nats_py.reference import demand

from .descriptions import CopiesOf

MIB = 1 << 20
# Calls that did their work and were answered with an error: each is made again.
AGAIN = tuple(
    {"rpc": rpc, "when": "after", "code": "UNKNOWN", "times": 1}
    for rpc in ("CreateVolume", "NodePublishVolume", "DeleteVolume")
)
NOT_MOUNTED = "BERTH0210"  # the driver says OK, and the kernel has nothing mounted there


class Life:
    """The steps of volumes' lives at one driver; each is done where the driver announces it."""

    def __init__(self, bus, driver, can):
        self.bus, self.driver, self.can = bus, driver, can
        self.copies, self.numbers = [], itertools.count()
        if can["create_delete_snapshot"]:
            self.copies.append("snapshot")
        if can["clone_volume"]:
            self.copies.append("volume")

    async def created(self, id, node="n1"):
        await self.bus.create(id, node, size=4 * MIB)
        return await self.bus.ready(id)

    async def grown(self, id):
        if not self.can["expand_volume"]:
            return
        await self.bus.persist("volume.expand", {"id": id, "size": 8 * MIB})
        grown = await self.bus.ready(id)
        demand(grown["capacity_bytes"] == 8 * MIB, f"{id} is not grown: {grown}")

    async def written(self, id, text, node="n1"):
        """An alloc writes into the volume; with a mock driver, it is told why it cannot."""
        alloc = self.alloc(id)
        if self.driver.mounts:
            Path(await self.bus.mounted(alloc, node, id), "f").write_text(text)
        else:
            await self.refused(alloc, node, id)
        await self.ended(alloc, id)

    async def ended(self, alloc, id):
        """The alloc ends and the volume is free, after a person's word where that is needed."""
        await self.bus.persist("alloc.stop", {"id": alloc})

        async def is_free():
            claims = (await self.bus.status(id)).get("claims", [])
            if claims and claims[0].get("tries") and not self.driver.unmounts_again:
                word = {"id": id, "node": claims[0]["node"], "unstaged_by": "drivers"}
                await self.bus.persist("volume.detach", word)
            return not claims

        await until(f"{id} is free of {alloc}", is_free)

    async def reads(self, id, text, node="n1"):
        if not self.driver.mounts:
            return
        alloc = self.alloc(id)
        path = Path(await self.bus.mounted(alloc, node, id), "f")
        demand(path.read_text() == text, f"{id} reads {path.read_text()!r}, and not {text!r}")
        await self.ended(alloc, id)

    def alloc(self, id):
        """The id of a new alloc."""
        return f"{id}-{next(self.numbers)}"

    async def refused(self, alloc, node, id):
        """Every call to mount is made; then the agent finds that nothing is mounted."""
        body = {"id": alloc, "node": node, "volumes": [{"source": id}]}
        await self.bus.persist("alloc.register", body)
        mount = {"namespace": "default", "alloc": alloc, "volume": id}

        async def is_found():
            try:
                await self.bus.ask(f"agent.{node}.mount", mount)
            except (Error, NoMore) as fault:
                # Its agent may have been killed, too.
                return isinstance(fault, NotYet) and fault.code == NOT_MOUNTED
            demand(False, f"{id} counts as mounted, and nothing is")

        await until(f"{alloc} is told that nothing is mounted", is_found)

    async def cut(self, id):
        if "snapshot" in self.copies:
            await self.bus.cut("s", id)

    async def copied(self, id, way, text, node="n1"):
        """A copy of the volume or of its snapshot has its content, or is failed."""
        copy = f"{id}-of-{way}"
        source = {"volume": id} | ({"snapshot": "s"} if way == "snapshot" else {})
        await self.bus.create(copy, node, **{"from": source})
        shown = (await self.bus.rested(copy))["storage"]
        another = self.driver.copies is CopiesOf.ANOTHER
        is_told = bool(shown.get("faults")) == (self.driver.copies is CopiesOf.NOTHING)
        demand(shown["stage"] == ("failed" if another else "ready"), f"{copy}: {shown}")
        demand(is_told, f"{copy}: {shown}")
        if not another:
            await self.reads(copy, text, node)
        return copy

    async def uncut(self, id):
        if "snapshot" in self.copies:
            await self.bus.snapshot_deleted(id, "s")

    async def story(self, storage, system, say):
        await self.created("plain")
        await self.written("plain", "first")
        await self.reads("plain", "first")
        say("created, claimed and released" if self.driver.mounts
            else "created; each call to mount it was made; told that nothing is mounted; released")
        if self.driver.nodes > 1:
            await self.afar("plain")
        if self.can["expand_volume"]:
            await self.grown("plain")
            say("grown")
        await self.cut("plain")
        await self.written("plain", "second")
        made = []
        for way, text in (("snapshot", "first"), ("volume", "second")):
            if way in self.copies:
                made.append(await self.copied("plain", way, text))
                say(f"a copy of a {way}; the driver says it is one of {self.driver.copies.value}")
        counted = await storage.compare()
        say(f"{counted[0]} volumes and {counted[1]} snapshots: as recorded ({storage.told()})")
        await self.bus.deleted("plain")
        await self.uncut("plain")
        for copy in made:
            await self.bus.deleted(copy)
        demand(await storage.compare() == [0, 0], "something is left")
        say("deleted")
        if self.driver.one_snapshot:
            self.copies.remove("snapshot")
        await self.frozen(system)
        say("a creation goes on when the driver, which was stopped, does")

    async def afar(self, id):
        """The other node gets the volume, or is refused where volumes are bound to their nodes."""
        if not self.driver.topology_key:
            return await self.reads(id, "first", "n2")
        try:
            await self.bus.mounted("afar", "n2", id)
        except Refused as refused:
            await self.bus.persist("alloc.stop", {"id": "afar"})
            demand("n1" in str(refused), f"refused for another reason: {refused}")
        else:
            demand(False, f"n2 mounted {id}, which is bound to n1")

    async def frozen(self, system):
        """A driver that does not answer for a while. The request is not lost, nor done twice."""
        stopped = pid(system, "driver-n1")
        os.kill(stopped, signal.SIGSTOP)
        try:
            await self.bus.create("late", "n1", size=4 * MIB)

            async def is_overdue():
                shown = (await self.bus.persist("plugin.status", {"id": self.bus.plugin}, to=()))
                [here] = [one for one in shown["plugins"][0]["instances"]
                          if (one["node"], one["half"]) == ("n1", "controller")]
                return not here["healthy"]

            await until("the driver is found unhealthy", is_overdue)
        finally:
            os.kill(stopped, signal.SIGCONT)
        await self.bus.ready("late")
        await self.bus.deleted("late")

    async def repeated(self, proxy):
        """Calls whose first answer was an error although they had done their work."""
        proxy.plant(*AGAIN)
        await self.created("again")
        await self.written("again", "once")
        await self.reads("again", "once")
        await self.bus.deleted("again")
        proxy.plant()

    async def forgotten(self, storage, system):
        """The driver is killed, and knows nothing of its volumes then; they can still be ended."""
        await self.created("old")
        await self.cut("old")
        path = None
        if self.driver.mounts:
            path = Path(await self.bus.mounted("holder", "n1", "old"), "f")
            path.write_text("kept")
        victim = "driver-n1", pid(system, "driver-n1")
        os.kill(victim[1], signal.SIGKILL)

        async def is_back():
            return is_replaced(system, *victim)

        await until("the driver is started again", is_back)
        if path:
            demand(path.read_text() == "kept", "a kill of the driver has taken a mount away")
            await self.ended("holder", "old")
            await self.reads("old", "kept")
        await self.uncut("old")
        await self.bus.deleted("old")
        demand(await storage.compare() == [0, 0], "something is left")
