"""Owners: none stops the allocs of another one; a lease that ends leaves them to be adopted."""

import asyncio

from berth_client import Never, Wait
from nats_py.reference import demand

from .fleet import TTL, refused, until


async def story(fleet, say):
    one = await fleet.scheduler("anna", "one")
    two = await fleet.scheduler("anna", "two")
    ben = await fleet.scheduler("ben", "ben")
    alloc = await one.register("owned", "n1", [await fleet.volume("owned")])
    await alloc.mount(overall=30)
    await foreign(one, two, ben, say)
    await lease_ends(fleet, one, ben, alloc, say)
    await two.close()
    await ben.close()
    await one.close()


async def foreign(one, two, ben, say):
    """Another owner neither stops, changes, guards nor adopts it."""
    mine = (await one.own())[0]
    for other in (two, ben):
        theirs = other._alloc({"id": mine.id, "node": mine.node, "state": "live"})
        await refused("another's stop", Never, "BERTH0308", theirs.stop())
        work = theirs.guard(cgroup="/sys/fs/cgroup")
        await refused("another's guard", Never, "BERTH0308", work)
        work = other.register(mine.id, mine.node, ["owned"], note="mine")
        await refused("another's change", Never, "BERTH0308", work)
        await refused("another's adoption", Wait, "BERTH0309", other.adopt("one"))
        demand(await other.stop_all() == [] and await other.own() == [], "it owns nothing")
    demand([alloc.id for alloc in await one.own()] == ["owned"], "it has kept its alloc")
    say("two owners, of one identity or of two, cannot stop, change, guard or adopt each other's")


async def lease_ends(fleet, one, ben, alloc, say):
    """An owner whose process is frozen loses its lease, and finds that out."""
    lost = asyncio.create_task(alloc.lost())
    wire = one._session.wire
    once = wire.once

    async def cut_off(verb, body, **more):
        if verb == "owner.hold":
            await asyncio.sleep(3600)
        return await once(verb, body, **more)

    wire.once = cut_off
    await asyncio.wait_for(one.lease_lost.wait(), 3 * TTL)

    async def is_unowned():
        return (await fleet.status("owned")).get("unowned_since")

    await until("the alloc is unowned", 10, is_unowned)
    demand(not lost.done(), f"an alloc that nobody adopted is lost: {lost}")
    adopted = await ben.adopt("one")
    demand([alloc.id for alloc in adopted] == ["owned"], f"adopted: {adopted}")
    why = await asyncio.wait_for(lost, 15)
    demand(why.kind == "owner" and "ben" in why.detail, f"lost: {why}")
    wire.once = once
    await refused("the stop of the one before", Never, "BERTH0308", alloc.stop())

    async def is_held():
        return await one.own() == [] and not one.lease_lost.is_set()

    await until("the lease is held again", 10, is_held)
    await adopted[0].stop()
    await adopted[0].wait("free", overall=20)
    say(f"a lease that was lost: lease_lost is set, another owner adopts: {why}")
