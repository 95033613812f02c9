"""A scheduler: runs the jobs of its input on the nodes of this host. A job is a line of JSON, such
as `{"id": "a", "volumes": ["data"], "command": "date > $BERTH_VOLUME_DATA/now"}`. It may be killed
and started again: it finds the running jobs, which run on. Arguments: SERVER OWNER CREDS CA.
"""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from typing import Any

from berth_client import Alloc, Refused, Scheduler

# A shell is the guard. It begins the job when it reads a line, so no job runs without a guard. It
# then waits until the job's end is on record, or its scheduler is gone.
GUARD = 'read -r begin && { sh -c "$1" </dev/null >&2; echo $?; read -r end; }'


async def place(scheduler: Scheduler, job: dict[str, Any]) -> Alloc:
    nodes = await scheduler.nodes_for(job["volumes"])
    for candidate in nodes.now or nodes.later:
        return await scheduler.register(job["id"], candidate.node, job["volumes"])
    raise RuntimeError(f"no node can have job {job['id']}: {nodes.never}")


async def start(alloc: Alloc, command: str) -> Process:
    paths = {volume.variable: volume.path for volume in await alloc.mount()}
    words, env = ("sh", "-c", GUARD, "guard", command), os.environ | paths
    process = await asyncio.create_subprocess_exec(
        *words, stdin=PIPE, stdout=PIPE, env=env, start_new_session=True
    )
    try:
        await alloc.guard(pid=process.pid)
    except Refused:
        process.kill()
        raise
    return process


async def run(scheduler: Scheduler, job: dict[str, Any], existing: Alloc | None) -> str:
    alloc = existing or await place(scheduler, job)
    try:
        process = await start(alloc, job["command"])
    except Refused as refused:
        await alloc.stop("failed", str(refused))
        raise
    assert process.stdin and process.stdout
    process.stdin.write(b"begin\n")
    ended = asyncio.create_task(process.stdout.readline())
    lost = asyncio.create_task(alloc.lost())
    await asyncio.wait({ended, lost}, return_when=asyncio.FIRST_COMPLETED)
    if not ended.done():
        if lost.result().kind == "owner":
            return f"job {alloc.id} goes on under another owner"
        os.killpg(process.pid, signal.SIGKILL)
    code = (await ended).decode().strip() or f"none, lost: {lost.result()}"
    await alloc.stop("complete" if code == "0" else "failed", f"exit code {code}")
    process.stdin.close()
    lost.cancel()
    await alloc.wait("free", overall=86400)
    return f"job {alloc.id} has ended: exit code {code}"


async def main(server: str, owner: str, creds: str | None = None, ca: str | None = None) -> None:
    async with await Scheduler.connect(server, creds, ca, owner=owner, lease_ttl=5) as scheduler:
        allocs = {alloc.id: alloc for alloc in await scheduler.own()}
        started = {id for id, alloc in allocs.items() if await alloc.is_guarded()}
        print(f"found {len(started)} jobs", flush=True)
        ends = (allocs[id].wait("free", overall=86400) for id in started)
        tasks: list[asyncio.Task[Any]] = list(map(asyncio.create_task, ends))
        while line := await asyncio.to_thread(sys.stdin.readline):
            if (job := json.loads(line))["id"] not in started:
                tasks.append(asyncio.create_task(run(scheduler, job, allocs.get(job["id"]))))
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            print(result or "a job that was found has ended", flush=True)


asyncio.run(main(*sys.argv[1:]))
