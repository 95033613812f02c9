"""Requests about volumes, as a program sends them that does not give up: the same one again."""

import asyncio
import json
import secrets
import time

from nats.errors import Error, NoRespondersError
from nats.errors import TimeoutError as NoMore

from nats_py.reference import demand

PLUGIN = "hostpath.csi.k8s.io"
TOPOLOGY_KEY = "topology.hostpath.csi/node"
ACTOR = "user.hostpath"
# A bound against a hang, in seconds: a loaded machine recovers from a kill late, not never.
RECOVERY = 240.0


class Refused(Exception):
    """A refusal that will not change by itself."""

    def __init__(self, problem):
        super().__init__(f"{problem['code']}: {problem['message']}")
        self.code = problem["code"]


class NotYet(Error):
    """A refusal that the same request, sent again, may overcome."""

    def __init__(self, problem):
        super().__init__(f"{problem['code']}: {problem['message']}")
        self.code = problem["code"]


class Bus:
    """One connection to a system, for the volumes of one plugin."""

    def __init__(self, nats, plugin=PLUGIN, topology_key=TOPOLOGY_KEY):
        """Without a key of its topology, the plugin's volumes are created without one."""
        self.nats, self.plugin, self.topology_key = nats, plugin, topology_key

    async def ask(self, verb, body, to=("default",), within=4.0):
        """One request. Raises what retrying may change as `Error`, a refusal as `Refused`."""
        headers = {
            "traceparent": f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01",
            "Berth-Deadline": str(int((time.time() + within) * 1000)),
        }
        subject = ".".join(["berth.v1", verb, *to, ACTOR])
        raw = json.dumps(body).encode()
        reply = await self.nats.request(subject, raw, timeout=within + 0.5, headers=headers)
        answer = json.loads(reply.data)
        problem = answer.get("error")
        if problem and problem["retryable"]:
            raise NotYet(problem)
        if problem:
            raise Refused(problem)
        return answer

    async def persist(self, verb, body, to=("default",), within=RECOVERY):
        """The same request until it is answered for certain."""
        deadline, last = time.monotonic() + within, None
        while time.monotonic() < deadline:
            try:
                return await self.ask(verb, body, to)
            except (Error, NoMore, NoRespondersError) as fault:
                last = fault
                await asyncio.sleep(0.1)
        demand(False, f"{verb} {body}: not answered in {within:.0f} s: {last!r}")

    async def create(self, id, node, **more):
        document = {
            "id": id,
            "plugin": self.plugin,
            "capability": [{"access": "single-node-writer"}],
        }
        if self.topology_key:
            document["topology"] = [{self.topology_key: node}]
        return await self.persist("volume.create", document | more)

    async def status(self, id):
        return await self.persist("volume.status", {"id": id})

    async def rested(self, id, within=RECOVERY):
        """Waits until nothing is under way for the volume, and returns its status."""
        deadline = time.monotonic() + within
        while True:
            shown = await self.status(id)
            operation = shown.get("storage", {}).get("operation")
            # What a volume awaits that is staged nowhere comes with its next staging.
            if not operation or operation.get("waits_for"):
                return shown
            late = time.monotonic() > deadline
            demand(not late, f"{id} does not come to rest in {within:.0f} s: {operation}")
            await asyncio.sleep(0.1)

    async def ready(self, id):
        shown = await self.rested(id)
        demand(shown["storage"]["stage"] == "ready", f"{id}: {shown['storage']}")
        demand(not shown["storage"].get("faults"), f"{id}: {shown['storage']}")
        return shown

    async def snapshots(self):
        return (await self.persist("snapshot.list", {"plugin": self.plugin}))["snapshots"]

    async def cut(self, snapshot, *volumes):
        """Cuts a snapshot, of several volumes at once if there are several; waits until ready."""
        body = {"snapshot": snapshot, "volumes": list(volumes)}
        await self.persist("snapshot.create", body)

        async def is_cut():
            listed = {(one["volume"], one["snapshot"]): one for one in await self.snapshots()}
            states = [listed[volume, snapshot]["state"] for volume in volumes]
            demand("failed" not in states, f"{snapshot} of {volumes}: {states}")
            return states == ["ready"] * len(volumes)

        await until(f"{snapshot} of {volumes} is ready", is_cut)

    async def deleted(self, id):
        """Deletes a volume, and waits until it is on no record."""

        async def is_gone():
            try:
                shown = (await self.persist("volume.delete", {"id": id})).get("storage") or {}
                # A refusal of the driver leaves the volume, with its words.
                refused = shown.get("failure", {}).get("operation") == "delete"
                demand(not refused, f"{id} is not deleted: {shown}")
                return False
            except Refused as refused:
                if refused.code in NO_SUCH:
                    return True
                raise

        await until(f"{id} is gone", is_gone)

    async def snapshot_deleted(self, volume, snapshot, group=False):
        body = {"volume": volume, "snapshot": snapshot, "group": group}

        async def is_gone():
            try:
                await self.persist("snapshot.delete", body)
                return False
            except Refused as refused:
                if refused.code in NO_SUCH:
                    return True
                raise

        await until(f"{volume}@{snapshot} is gone", is_gone)

    async def mounted(self, alloc, node, volume):
        """Runs an alloc with the volume, and returns the path of its mount."""
        body = {"id": alloc, "node": node, "volumes": [{"source": volume}]}
        await self.persist("alloc.register", body)
        mount = {"namespace": "default", "alloc": alloc, "volume": volume}
        return (await self.persist(f"agent.{node}.mount", mount))["path"]

    async def stopped(self, alloc, volume):
        await self.persist("alloc.stop", {"id": alloc})

        async def is_free():
            return not (await self.status(volume)).get("claims")

        await until(f"{volume} is free of {alloc}", is_free)


# No such volume, no such snapshot.
NO_SUCH = ("BERTH0101", "BERTH0129")


async def until(what, look, within=RECOVERY):
    deadline = time.monotonic() + within
    while not await look():
        demand(time.monotonic() < deadline, f"not within {within:.0f} s: {what}")
        await asyncio.sleep(0.1)
