"""What needs no system: the table of advice, tokens, the start of a process, the lease's end."""

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from berth_client import TABLE, advice_for, process_start
from berth_client.guard import parse_start
from berth_client.lease import Lease
from berth_client.subject import token, untoken
from nats_py.reference import demand

ROOT = Path(__file__).resolve().parents[3]


async def check(say):
    codes(say)
    for text in ("n1", "team_a/b", "ebs.csi.aws.com", "team a", "data[0]", "é", "=41"):
        demand(untoken(token(text)) == text, f"token of {text}: {token(text)}")
    demand(token("data[0] é") == "data=5B0=5D=20=C3=A9", f"token: {token('data[0] é')}")
    starts(say)
    await lease_ends(say)


def codes(say):
    """The table has each code of the contract."""
    schema = json.loads((ROOT / "docs" / "contract.schema.json").read_text())
    known = set(schema["$defs"]["Problem"]["properties"]["code"]["enum"])
    demand(known == TABLE.keys(), f"codes without advice, or unknown: {known ^ TABLE.keys()}")
    demand(advice_for("BERTH0305", True) == "wait", "a retryable error is given up")
    demand(advice_for("BERTH0217", True) == "elsewhere", "a retryable error keeps its advice")
    demand(advice_for("BERTH7777", False) == "never", "the advice for a code of later")
    say(f"each of the {len(known)} error codes of the contract has its advice")


def starts(say):
    """A process may have any name."""
    fields = " ".join(str(number) for number in range(3, 53))
    demand(parse_start(f"4711 (a ) (b) c) {fields}") == 22, "field 22 is another one")
    with tempfile.TemporaryDirectory(prefix="berth-peer-") as place:
        program = Path(place, "a ) (b) R 1")
        shutil.copy(shutil.which("sleep"), program)
        before = process_start(os.getpid())
        process = subprocess.Popen([program, "60"])
        try:
            start = process_start(process.pid)
        finally:
            process.kill()
            process.wait()
    seconds = float(Path("/proc/uptime").read_text().split()[0])
    uptime = round(seconds * os.sysconf("SC_CLK_TCK"))
    demand(before <= start <= uptime, f"the start of a process: {start}, after {before}")
    say("the start of a process is read, whatever its name")


class Bus:
    """Answers a renewal when it is told to."""

    def __init__(self):
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def once(self, verb, body, attempt):
        self.asked.set()
        await self.may_answer.wait()


async def lease_ends(say):
    """A lease is given up also while it is renewed: at each step of a renewal."""
    for steps in range(4):
        bus = Bus()
        bus.may_answer.set()
        lease = Lease(bus, "anna", 1)
        await lease.take()
        bus.asked.clear(), bus.may_answer.clear()
        await bus.asked.wait()
        bus.may_answer.set()
        for _ in range(steps):
            await asyncio.sleep(0)
        await asyncio.wait_for(lease.abandon(), 5)
    say("a lease is given up at each step of its renewal")
