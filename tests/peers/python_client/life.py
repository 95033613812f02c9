"""A job's whole life with two volumes: placed, mounted, guarded, waited for, stopped, free."""

import asyncio
import time
from pathlib import Path

from berth_client import Never, Volume, Wait
from nats_py.reference import demand

from .fleet import refused


async def story(fleet, say):
    scheduler = await fleet.scheduler("anna", "life")
    demand(scheduler.actor == "user.anna", f"the actor is {scheduler.actor}")
    volumes = [await fleet.volume("life.data"), Volume(await fleet.volume("logs"), alias="log")]
    nodes = await scheduler.nodes_for(volumes)
    demand([one.node for one in nodes.now] == ["n1", "n2"], f"where it fits: {nodes}")
    alloc = await scheduler.register("life", "n1", volumes, {"job": "web"}, "the whole life")
    again = await scheduler.register("life", "n1", volumes, {"job": "web"}, "the whole life")
    demand(again == alloc, f"registered again: {again}, {alloc}")
    mounted = await mount(fleet, alloc, say)
    process = fleet.start("sh", "-c", f"date > {mounted[0].path}/now; exec sleep 600")
    await alloc.guard(pid=process.pid)
    demand(await alloc.is_guarded(), "the guard is not known to the agent")
    await held(scheduler, volumes, nodes, say)
    await guarded(fleet, alloc, process, mounted, say)
    await lock_guards(fleet, scheduler, say)
    await dead_mount(fleet, scheduler, say)
    await scheduler.close()


async def mount(fleet, alloc, say):
    early = asyncio.create_task(alloc.wait("mounted", overall=30))
    # A wait that is over before anything is mounted would have been wrong.
    await asyncio.sleep(0.3)
    demand(not early.done(), f"mounted before it was mounted: {early}")
    before = time.monotonic()
    mounted = await alloc.mount(overall=30)
    took = time.monotonic() - before
    demand([one.name for one in mounted] == ["life.data", "log"], f"mounted: {mounted}")
    demand([one.volume for one in mounted] == ["life.data", "logs"], f"mounted: {mounted}")
    names = [one.variable for one in mounted]
    demand(names == ["BERTH_VOLUME_LIFE_DATA", "BERTH_VOLUME_LOG"], f"variables: {names}")
    there = [fleet.system.mounted(one.path, "n1") for one in mounted]
    demand(all(there), f"what the agent has mounted: {mounted}")
    await early
    seen = time.monotonic() - before
    demand(seen < took + 4, f"mounted was seen {seen:.1f} s after the mount was asked for")
    say(f"two volumes mounted in {took:.2f} s; the wait for that ended after {seen:.2f} s")
    return mounted


async def held(scheduler, volumes, before, say):
    """A second alloc cannot have the volumes now, and may wait in line."""
    nodes = await scheduler.nodes_for(volumes, other_than=before, overall=5)
    demand(not nodes.now and len(nodes.later) == 2 and not nodes.never, f"held: {nodes}")
    codes = {one.code for node in nodes.later for one in node.obstacles}
    demand(codes == {"BERTH0106"}, f"obstacles: {nodes}")
    begun = time.monotonic()
    same = await scheduler.nodes_for(volumes, other_than=nodes, overall=1)
    demand(same.index == nodes.index, f"another placement: {same}")
    demand(time.monotonic() - begun > 0.7, "the wait for another placement did not wait")
    second = await scheduler.register("second", "n2", volumes)
    work = second.mount(wait=False, overall=20)
    await refused("a mount of what is held", Wait, "BERTH0106", work)
    await refused("a wait that is over", Wait, "BERTH0107", second.wait("mounted", overall=0.5))
    await second.stop("failed", "the volumes are held")
    await second.wait("free", overall=20)
    await refused("mounted, of one that has ended", Never, "BERTH0302", second.wait("mounted"))
    say("a second alloc is refused while they are held: wait, BERTH0106; and is free after its end")


async def guarded(fleet, alloc, process, mounted, say):
    """The release waits for the process."""
    lost = asyncio.create_task(alloc.lost())
    await asyncio.sleep(0.5)
    demand(not lost.done(), f"lost while it ran: {lost}")
    await alloc.stop("complete", "the test says so")
    ended = await asyncio.wait_for(lost, 5)
    demand(ended.kind == "ended", f"lost: {ended}")
    await alloc.wait("ended", overall=5)
    await refused("free while it ran", Wait, "BERTH0107", alloc.wait("free", overall=2))
    still = [fleet.system.mounted(one.path, "n1") for one in mounted]
    demand(all(still) and process.poll() is None, "the guard does not hold the release")
    demand((Path(mounted[0].path) / "now").exists(), "the job does not see its volume")
    process.kill()
    process.wait()
    ended = time.monotonic()
    await alloc.wait("free", overall=20)
    took = time.monotonic() - ended
    demand(await fleet.holders("life.data") == [], "free, and the volume is held")
    left = [fleet.system.mounted(one.path, "n1") for one in mounted]
    demand(not any(left), f"free, and mounted: {mounted}")
    status = await fleet.status("life")
    demand(status["state"] == "complete", f"the end: {status}")
    say(f"stopped while process {process.pid} ran: held until its end, and free {took:.2f} s later")


async def lock_guards(fleet, scheduler, say):
    """A lock that a workload inherits guards its alloc."""
    alloc = await scheduler.register("locked", "n2", ["logs"])
    await alloc.mount(overall=30)
    file = await alloc.lock()
    process = fleet.start("sleep", "600", stdin=file)
    file.close()
    lost = asyncio.create_task(alloc.lost())
    await asyncio.sleep(1)
    demand(not lost.done(), f"lost while it ran: {lost}")
    process.kill()
    process.wait()
    ended = await asyncio.wait_for(lost, 10)
    demand(ended.kind == "ended", f"lost: {ended}")
    await alloc.wait("free", overall=20)
    say(f"guarded by a lock; the agent reported its end: {ended}")


async def dead_mount(fleet, scheduler, say):
    """A mount that is gone is noticed."""
    alloc = await scheduler.register("unmounted", "n1", ["logs"])
    mounted = await alloc.mount(overall=30)
    await alloc.wait("mounted", overall=10)
    lost = asyncio.create_task(alloc.lost())
    fleet.unmount(mounted[0].path, "n1")
    why = await asyncio.wait_for(lost, 30)
    demand(why.kind == "mount", f"lost: {why}")
    await alloc.stop("failed", str(why))
    await alloc.wait("free", overall=30)
    say(f"a mount that was taken away: {why}")
