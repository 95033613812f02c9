"""The example is killed: its jobs run on, and are found or adopted."""

import asyncio
import os
import signal

from berth_client import Wait
from nats_py.reference import demand

from .fleet import refused, until


async def story(fleet, say):
    await whole_run(fleet, say)
    await found_again(fleet, say)
    await adopted(fleet, say)


def job(fleet, volumes, id):
    """A job that writes its process id, and runs until it is told to end."""
    place = fleet.system.dir
    command = f"echo $$ > {place}/{id}.new; mv {place}/{id}.new {place}/{id}.pid; "
    command += f"echo ran >> $BERTH_VOLUME_{volumes[0].upper()}/log; "
    command += f"until [ -e {place}/{id}.end ]; do sleep 0.1; done"
    return {"id": id, "volumes": volumes, "command": command}


async def pid_of(fleet, id):
    file = fleet.system.dir / f"{id}.pid"

    async def is_there():
        return file.exists()

    await until(f"job {id} runs", 30, is_there)
    return int(file.read_text())


def end(fleet, id):
    (fleet.system.dir / f"{id}.end").touch()


async def output(process, within=60):
    told = await asyncio.wait_for(asyncio.to_thread(process.stdout.read), within)
    demand(process.wait() == 0, f"the example ended with {process.returncode}: {told}")
    return told.splitlines()


async def whole_run(fleet, say):
    """Several jobs on both nodes; two want one volume, so one waits for the other."""
    volumes = [await fleet.volume("exa"), await fleet.volume("exb")]
    jobs = [
        {"id": "ex-1", "volumes": volumes, "command": "date > $BERTH_VOLUME_EXA/one"},
        {"id": "ex-2", "volumes": volumes[:1], "command": "test -e $BERTH_VOLUME_EXA"},
        {"id": "ex-3", "volumes": volumes[1:], "command": "exit 7"},
        {"id": "ex-4", "volumes": ["nothing"], "command": "true"},
    ]
    told = (await output(fleet.example_scheduler("ex", jobs)))[1:]
    ends = {word: f"job {word} has ended: exit code {code}"
            for word, code in (("ex-1", 0), ("ex-2", 0), ("ex-3", 7))}
    demand(told[:3] == list(ends.values()), f"the example said {told}")
    demand("BERTH0101" in told[3], f"the example said {told}")
    states = [(await fleet.status(id))["state"] for id in ends]
    demand(states == ["complete", "complete", "failed"], f"ended as {states}")
    say("the example ran three jobs on shared volumes, and refused one without its volume")


async def found_again(fleet, say):
    """Started again as the same owner."""
    jobs = [job(fleet, ["exa"], "ex-5")]
    first = fleet.example_scheduler("ex", jobs)
    pid = await pid_of(fleet, "ex-5")
    first.send_signal(signal.SIGKILL)
    first.wait()
    second = fleet.example_scheduler("ex", jobs)
    first_line = await asyncio.wait_for(asyncio.to_thread(second.stdout.readline), 30)
    demand(first_line == "found 1 jobs\n", f"the example said {first_line}")
    os.kill(pid, 0)
    demand(second.poll() is None, "the example did not wait for the job that it found")
    demand((await fleet.status("ex-5"))["state"] == "live", "the job's alloc has ended")
    end(fleet, "ex-5")
    told = await output(second)
    demand(told == ["a job that was found has ended"], f"the example said {told}")
    status = await fleet.status("ex-5")
    demand(not status.get("claims") and status["state"] != "live", f"after the end: {status}")
    say(f"killed and started again: job {pid} ran on, was found, and its volume is free")


async def adopted(fleet, say):
    """Another owner, of another identity, adopts what the killed one has left."""
    first = fleet.example_scheduler("ex-gone", [job(fleet, ["exb"], "ex-6")])
    pid = await pid_of(fleet, "ex-6")
    ben = await fleet.scheduler("ben", "ben")
    await refused("an adoption too early", Wait, "BERTH0309", ben.adopt("ex-gone"))
    first.send_signal(signal.SIGKILL)
    first.wait()

    async def is_unowned():
        return (await fleet.status("ex-6")).get("unowned_since")

    await until("the job's alloc is unowned", 20, is_unowned)
    allocs = await ben.adopt("ex-gone")
    demand([one.id for one in allocs] == ["ex-6"], f"adopted: {allocs}")
    demand([one.id for one in await ben.own()] == ["ex-6"], "it is not its own")
    alloc = allocs[0]
    demand(await alloc.is_guarded(), "the guard is gone")
    lost = asyncio.create_task(alloc.lost())
    await asyncio.sleep(1)
    os.kill(pid, 0)
    demand(not lost.done(), f"lost while it ran: {lost}")
    end(fleet, "ex-6")
    why = await asyncio.wait_for(lost, 15)
    demand(why.kind == "ended", f"lost: {why}")
    await alloc.wait("free", overall=20)
    await ben.close()
    say(f"a killed scheduler's job {pid} was adopted by another owner, ran on, and ended: {why}")
