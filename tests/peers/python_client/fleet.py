"""The system under test, with two identities that may mount, and volumes.

Owns what the tests start: schedulers and processes. Promises that all of it is gone on leaving.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time

from berth_client import Refused, Scheduler
from berth_client.identity import read_identity
from berth_client.wire import Wire
from nats_py.reference import demand

PLUGIN = "dev.berth"
TTL = 5.0  # seconds that an owner's lease lives


class Fleet:
    """Entered for all tests together."""

    def __init__(self, system, example):
        self.system, self.example = system, example
        self.access = system.dir / "dev" / "access"
        self.ca = self.access / "ca.pem"
        self.open = contextlib.AsyncExitStack()
        self.processes = []

    async def __aenter__(self):
        for name in ("anna", "ben"):
            command = [self.system.binaries / "berth", "access", "--dir", self.access]
            command += ["user", name, "--grant", "default=mount"]
            subprocess.run(command, check=True, capture_output=True)
        admin = read_identity(self.creds("admin", "dev"), self.ca, "dev")
        self.admin = await Wire.connect([self.system.url], admin, "default", "test", 10)
        return self

    async def __aexit__(self, failed, *_):
        for process in self.processes:
            # Each is the first of a group of its own.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()
        try:
            await self.open.aclose()
            if failed is not None:
                await self.give_all_up()
        finally:
            await self.admin.close()

    async def give_all_up(self):
        """After a failure nothing is to be left either."""
        live = await self.admin.ask("alloc.list", {"state": "live"})
        for alloc in live["allocs"]:
            stop = {"id": alloc["id"], "state": "failed", "revision": alloc["modify_index"]}
            await self.admin.ask("alloc.stop", stop, overall=5)
        await self.settle()

    def creds(self, kind, name):
        return self.access / "creds" / f"{kind}-{name}.creds"

    async def scheduler(self, name, owner, ttl=TTL):
        """Connected as that user; closed with the fleet, or before."""
        scheduler = await Scheduler.connect(
            self.system.url, self.creds("user", name), self.ca, owner=owner, lease_ttl=ttl
        )
        return await self.open.enter_async_context(scheduler)

    async def volume(self, name):
        """A new volume for one writer."""
        self.system.provision(f"{name}-storage")
        capability = [{"access": "single-node-writer", "attachment": "file-system"}]
        document = {"id": name, "plugin": PLUGIN, "external_id": f"{name}-storage"}
        await self.admin.ask("volume.register", document | {"capability": capability})
        return name

    def start(self, *command, **options):
        """A process in a group of its own."""
        process = subprocess.Popen(command, start_new_session=True, **options)
        self.processes.append(process)
        return process

    def example_scheduler(self, owner, jobs):
        """The example as user anna, with these jobs. Its output has a pipe."""
        command = [sys.executable, self.example, self.system.url, owner]
        command += [self.creds("user", "anna"), self.ca]
        process = self.start(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        process.stdin.write("".join(f"{json.dumps(job)}\n" for job in jobs))
        process.stdin.close()
        return process

    def agent(self, node):
        """The process of a node's agent."""
        pids = self.system.dir / "dev" / "pids"
        return int((pids / f"agent-{node}.pid").read_text())

    def signal_agent(self, node, name):
        os.kill(self.agent(node), getattr(signal, f"SIG{name}"))

    def unmount(self, path, node):
        """Behind the agent's back, where the agent sees it."""
        command = ["nsenter", "--mount", "--target", str(self.agent(node)), "umount", path]
        subprocess.run(command, check=True, capture_output=True)

    async def status(self, alloc):
        return await self.admin.ask("alloc.status", {"id": alloc})

    async def holders(self, volume):
        """The allocs that have a claim on the volume."""
        claims = await self.admin.ask("claim.status", {"volume": volume})
        return [claim["alloc"] for claim in claims["claims"]]

    async def settle(self):
        """Nothing of all this is left."""

        async def is_at_rest():
            live = await self.admin.ask("alloc.list", {"state": "live"})
            claims = await self.admin.ask("claim.status", {})
            agents = [await self.admin.ask("agent.status", {}, node=node) for node in ("n1", "n2")]
            left = [one for agent in agents for one in (*agent["mounts"], *agent.get("guards", ()))]
            self.left = (live["allocs"], claims["claims"], left)
            return not any(self.left)

        await until("everything is at rest", 20, is_at_rest, lambda: self.left)


async def until(what, within, look, else_say=lambda: ""):
    """Waits until `look` finds something, and returns it."""
    deadline = time.monotonic() + within
    while not (found := await look()):
        demand(time.monotonic() < deadline, f"not within {within} s: {what} {else_say()}")
        await asyncio.sleep(0.1)
    return found


async def refused(what, kind, code, work):
    """Demands a refusal of this kind."""
    try:
        done = await work
    except Refused as refusal:
        is_it = type(refusal) is kind and refusal.code == code
        demand(is_it, f"{what}: {type(refusal).__name__} {refusal}, not {kind.__name__} {code}")
        return refusal
    demand(False, f"{what} was not refused: {done}")
