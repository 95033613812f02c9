"""Berth with drivers of others: `python -m drivers BINARIES NAME=DRIVER...`.

Owns a system of its own for each driver, whose calls pass through berth-csi-proxy. Promises exit
code 0 only if each driver's volumes lived and ended as their records say, also while processes were
killed; if the storage's own list, where it has one, names what the records name; and if the judge
finds nothing in the calls but what the driver is known to say of mounts that is not so.
"""

import asyncio
import json
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path

import nats

from hostpath.bus import Bus, until
from hostpath.proxy import Proxy
from nats_py.reference import NotAsDocumented, demand
from nats_py.system import System

from . import storm
from .descriptions import DRIVERS
from .life import Life
from .storage import Storage

# A node service whose controller is elsewhere, as a split driver answers.
NO_CONTROLLER = {"rpc": "ControllerGetCapabilities", "when": "before", "code": "UNIMPLEMENTED"}
WITHIN = 900  # seconds for one driver: a bound against a hang
BEHIND = Path(__file__).resolve().parents[1] / "hostpath" / "behind.sh"


def plugin_file(driver, binaries, directory):
    """The plugin's file: the driver with the proxy in front."""
    command = [BEHIND, "${CSI_ENDPOINT}", "${NODE}", "${DIR}", binaries / "berth-csi-proxy"]
    command += ["${DIR}/driver", *driver.flags]
    words = ", ".join(f"'{word}'" for word in command)
    text = f"id = '{driver.plugin}'\ncommand = [{words}]\n"
    return text.replace("${SOCKET}", "unix://${DIR}/behind-${NODE}.sock").replace(
        "${DIR}", str(directory))


async def tell(driver, system, say):
    client = await nats.connect(
        system.url, name="peer/drivers", max_reconnect_attempts=-1, **system.identity.options()
    )
    bus = Bus(client, driver.plugin, driver.topology_key)
    try:
        can = await announced(bus, driver, say)
        storage = Storage(bus, driver, can, system.dir)
        await storage.note_before()
        life = Life(bus, driver, can)
        await life.story(storage, system, say)
        await life.repeated(Proxy(system, ["n1"]))
        say("created, published and deleted again, after errors of calls that had done their work")
        await storm.story(life, storage, system, say, seed=1)
        if not driver.remembers:
            await life.forgotten(storage, system)
            say("killed, it has forgotten its volumes; they ended all the same")
        demand(await storage.compare() == [0, 0], "something is left")
        judge(driver, Proxy(system, [f"n{one + 1}" for one in range(driver.nodes)]), say)
    finally:
        await client.close()


async def announced(bus, driver, say):
    """What the driver says that it can do, once it is healthy on each node."""
    found = {}

    async def is_there():
        shown = (await bus.persist("plugin.status", {"id": driver.plugin}, to=()))["plugins"]
        found.update(shown[0] if shown else {})
        return shown and shown[0]["nodes"]["healthy"] == driver.nodes

    await until(f"{driver.plugin} is healthy on each node", is_there)
    here = {one["half"]: one for one in found["instances"] if one["node"] == "n1"}
    can = here["controller"]["controller"]
    names = [name for half in (can, here["node"]["abilities"])
             for name, value in sorted(half.items()) if value is True]
    say(f"{driver.plugin} {', '.join(found['versions'])} on {driver.nodes} node(s)")
    say(f"  announces {', '.join(names)}")
    return can


def judge(driver, proxy, say):
    """The judge's findings: none, but what the driver is known to say of mounts that is not so."""
    found = proxy.findings()
    false = [one for one in found if one["rule"]["name"] == driver.false_report]
    other = [f"{one['about']}: {one['what']}" for one in found if one not in false]
    demand(not other, f"the judge: {other}")
    demand(bool(false) == bool(driver.false_report), f"the judge: {len(false)} false reports")
    calls = sum(1 for line in proxy.calls() if line["entry"] == "end")
    wrong = f"{len(false)} times {driver.false_report}, else " if false else ""
    say(f"the judge of {calls} calls: {wrong}nothing is wrong")


def keep_logs(driver, system):
    """Of a failed run: what its system has written, but for the bus."""
    kept = Path(__file__).resolve().parents[3] / "target" / "failed" / "drivers" / driver.name
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    for source in (system.dir / "dev" / "log", *system.dir.glob("calls-*.jsonl")):
        if source.is_dir():
            shutil.copytree(source, kept / "log")
        elif source.is_file():
            shutil.copy(source, kept)
    print(f"drivers: the logs are in {kept}", file=sys.stderr)


@contextmanager
def own_tmp(system):
    """/tmp is a directory of the system meanwhile, in this mount namespace."""
    subprocess.run(["mount", "--bind", system.dir / "tmp", "/tmp"], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", "/tmp"], check=True)


def run(driver, program, binaries):
    """One driver, from its start to its end."""
    started = time.monotonic()

    def say(text):
        print(f"{driver.name:>13} {time.monotonic() - started:5.1f}s  {text}", flush=True)

    system = System(binaries, nodes=driver.nodes)
    system.plugin = plugin_file(driver, binaries, system.dir)
    (system.dir / "tmp").mkdir()
    if driver.one_controller:
        (system.dir / "faults-n2.json").write_text(json.dumps([NO_CONTROLLER]))
    shutil.copy(program, system.dir / "driver")
    with own_tmp(system) if driver.in_tmp else nullcontext(), system:
        try:
            asyncio.run(asyncio.wait_for(tell(driver, system, say), WITHIN))
        except BaseException as fault:
            # The end finds what is left of a failure, and says only that.
            print(f"drivers: {driver.name} FAILED: {fault!r}", file=sys.stderr)
            keep_logs(driver, system)
            raise
    say("stopped; no process, no mount and no file is left")


def main():
    binaries = Path(sys.argv[1]).resolve()
    programs = dict(argument.split("=", 1) for argument in sys.argv[2:])
    try:
        for driver in DRIVERS:
            if driver.name in programs:
                run(driver, Path(programs[driver.name]), binaries)
    except NotAsDocumented as fault:
        print(f"drivers: NOT AS IT SHOULD BE: {fault}", file=sys.stderr)
        return 1
    return 0


sys.exit(main())
