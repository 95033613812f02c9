"""Bulk requests, each entry with an answer of its own; and many waits at once."""

import asyncio
import time

from berth_client import Alloc, Elsewhere, Never, Registration, Volume
from nats_py.reference import demand

COUNT = 200  # allocs of one owner, in several requests


async def story(fleet, say):
    volume = await fleet.volume("bulk")
    scheduler = await fleet.scheduler("anna", "bulk")
    other = await fleet.scheduler("anna", "bulk-other")
    wanted = [Registration(f"bulk-{number}", "n1", meta={"n": str(number)})
              for number in range(COUNT)]
    wanted[70] = Registration("bulk-70", "n1", ["nothing"])
    wanted[90] = Registration("bulk-90", "n9")
    answers = await scheduler.register_many(wanted)
    demand(len(answers) == COUNT, f"{len(answers)} answers")
    bad = {number: one for number, one in enumerate(answers) if not isinstance(one, Alloc)}
    demand(bad.keys() == {70, 90}, f"refused: {bad}")
    demand(type(bad[70]) is Never and bad[70].code == "BERTH0101", f"refused: {bad[70]}")
    demand(type(bad[90]) is Elsewhere and bad[90].code == "BERTH0203", f"refused: {bad[90]}")
    allocs = [one for one in answers if isinstance(one, Alloc)]
    demand(len(await scheduler.own()) == COUNT - 2, "not all of them are its own")
    say(f"register-many: {COUNT - 2} allocs, and 2 refusals in their places")

    each = Volume(volume, per_alloc=True)  # of which alloc is not said
    placed = await scheduler.place_many([[volume], [each], ["nothing"]])
    demand(type(placed[1]) is Never and placed[1].code == "BERTH0001", f"placed: {placed}")
    demand(len(placed[0].now) == 2 and len(placed[2].never) == 2, f"placed: {placed}")
    codes = {one.code for node in placed[2].never for one in node.obstacles}
    demand(codes == {"BERTH0101"}, f"placed: {placed}")

    foreign = await other.register("bulk-foreign", "n2")
    stopped = await scheduler.stop_many([allocs[0], foreign, allocs[1]], "failed", "in bulk")
    states = [one.state if isinstance(one, Alloc) else one.code for one in stopped]
    demand(states == ["failed", "BERTH0308", "failed"], f"stopped: {states}")
    say("stop-many: an alloc of another owner is refused, and the others are stopped")
    await many_waits(scheduler, allocs[2:], say)
    await foreign.stop()
    await other.close()
    await scheduler.close()


async def many_waits(scheduler, allocs, say):
    """Waits share their requests."""
    asked = []
    wire = scheduler._session.wire
    once = wire.once

    async def counted(verb, body, **more):
        asked.append(verb)
        return await once(verb, body, **more)

    wire.once = counted
    waits = [asyncio.create_task(one.wait("free", overall=60)) for one in allocs]
    waits += [asyncio.create_task(one.lost(overall=60)) for one in allocs]
    await asyncio.sleep(1)
    demand(not any(wait.done() for wait in waits), "a wait ended before its alloc")
    begun = time.monotonic()
    stopped = await scheduler.stop_all("stopped", "all of them")
    demand(len(stopped) == len(allocs), f"stopped {len(stopped)} of {len(allocs)}")
    await asyncio.gather(*waits)
    took, reads = time.monotonic() - begun, [verb for verb in asked if verb != "owner.hold"]
    demand(len(reads) < len(allocs) / 2, f"{len(waits)} waits took {len(reads)} requests")
    wire.once = once
    say(f"stop-owned: {len(waits)} waits ended {took:.2f} s later, with {len(reads)} requests")
