"""A system to look at: `berth dev` with two nodes, in a directory of its own."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from .identity import Identity
from .reference import demand


class System:
    """Started on entering, stopped on leaving; leaves no process, no mount and no file."""

    def __init__(self, binaries: Path, plugin: str = "", nodes: int = 2):
        """With the text of a plugin's file, each node gets that driver as well."""
        self.binaries, self.plugin, self.nodes = binaries, plugin, nodes
        self.dir = Path(tempfile.mkdtemp(prefix="berth-peer-"))

    def __enter__(self):
        self.chosen = self.dir / "below" / "chosen"
        self.chosen.mkdir(parents=True)
        ready, log = self.dir / "ready", open(self.dir / "dev.out", "wb")
        command = [self.binaries / "berth", "dev", "--nodes", str(self.nodes)]
        command += ["--dir", self.dir / "dev"]
        command += ["--volume-timeout", "2s", "--ready-file", ready]
        command += ["--bind-below", self.chosen.parent]
        if self.plugin:
            file = self.dir / "plugin.toml"
            file.write_text(self.plugin.replace("${DIR}", str(self.dir)))
            command += ["--plugin", file]
        self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + 30
        while not ready.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                said = (self.dir / "dev.out").read_text()
                self.__exit__()
                raise SystemExit(f"berth dev did not become healthy:\n{said}")
            time.sleep(0.05)
        self.url = ready.read_text().strip()
        access = self.dir / "dev" / "access"
        self.identity = Identity(access / "creds" / "admin-dev.creds", access / "ca.pem")
        return self

    def provision(self, volume):
        """Makes a volume in the development driver's storage."""
        command = [self.binaries / "berth-csi-dev", "provision"]
        command += ["--backend", self.dir / "dev" / "backend", "--volume", volume]
        subprocess.run(command, check=True, capture_output=True)

    def mounted(self, path, node):
        """Whether the node's agent has something mounted there."""
        pid = self.pid(f"agent-{node}")
        mounts = Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
        return any(line.split()[4] == path for line in mounts)

    def pid(self, name):
        """The process that has this name at present."""
        return (self.dir / "dev" / "pids" / f"{name}.pid").read_text().strip()

    def __exit__(self, *_):
        pids = [int(file.read_text()) for file in (self.dir / "dev" / "pids").glob("*.pid")]
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        left = [pid for pid in pids if self.runs(pid)]
        mounts = self.mounts_left()
        # A failed run leaves nothing on the machine either.
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        for mount in reversed(mounts):
            subprocess.run(["umount", "--lazy", mount], check=False)
        demand(not self.mounts_left(), f"mounts below {self.dir} cannot be undone")
        shutil.rmtree(self.dir)
        demand(not left, f"processes were left: {left}")
        demand(not mounts, f"mounts were left: {mounts}")

    def mounts_left(self):
        """The mounts below the system's directory, in the order in which they were made."""
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        paths = [line.split()[4] for line in mounts]
        return [path for path in paths if path.startswith(f"{self.dir}/")]

    def runs(self, pid):
        try:
            return str(self.dir) in Path(f"/proc/{pid}/cmdline").read_text()
        except OSError:
            return False
