"""The proxy in front of the driver: the faults that it plants, and what its log says."""

import json
import subprocess

from nats_py.reference import demand

from .storage import NODES

# Of a plugin that answers late, otherwise or never. Kills are the storm's own.
STORM = (
    ("CreateVolume", {"when": "before", "code": "RESOURCE_EXHAUSTED"}, 0.05),
    ("CreateVolume", {"when": "after", "code": "UNAVAILABLE"}, 0.1),
    ("CreateVolume", {"lose_answer": True}, 0.03),
    ("CreateSnapshot", {"when": "after", "code": "INTERNAL"}, 0.1),
    ("CreateVolumeGroupSnapshot", {"when": "after", "code": "ABORTED"}, 0.1),
    ("ControllerExpandVolume", {"when": "after", "delay_ms": 3000}, 0.05),
    ("NodeStageVolume", {"when": "after", "delay_ms": 1500}, 0.1),
    ("NodePublishVolume", {"when": "after", "code": "UNKNOWN"}, 0.1),
    ("NodeUnpublishVolume", {"lose_answer": True}, 0.03),
    ("NodeUnstageVolume", {"when": "before", "code": "INTERNAL"}, 0.1),
    ("DeleteSnapshot", {"when": "after", "code": "UNAVAILABLE"}, 0.1),
    ("DeleteVolume", {"when": "after", "code": "DEADLINE_EXCEEDED"}, 0.1),
)


class Proxy:
    """The files of the proxies, one for each node."""

    def __init__(self, system, nodes=NODES):
        self.binaries, self.dir, self.nodes = system.binaries, system.dir, nodes

    def logs(self):
        return [self.dir / f"calls-{node}.jsonl" for node in self.nodes]

    def plant(self, *faults):
        """These faults from now on, and no others."""
        for node in self.nodes:
            file = self.dir / f"faults-{node}.json"
            new = file.with_suffix(".new")
            new.write_text(json.dumps(faults))
            new.rename(file)

    def storm(self, seed):
        faults = enumerate(STORM, seed)
        self.plant(*(
            {"rpc": rpc, "probability": share, "seed": number, **fault}
            for number, (rpc, fault, share) in faults
        ))

    def calls(self):
        """The lines of all logs; one that is being written is left out."""
        text = "".join(log.read_text() for log in self.logs())
        return [json.loads(line) for line in text.splitlines(keepends=True) if line[-1] == "\n"]

    def hits(self):
        """How many calls a fault did something to."""
        return sum(1 for line in self.calls() if line.get("fault"))

    def judge(self):
        """Nothing that a CO must never do is in the logs."""
        command = [self.binaries / "berth-csi-proxy", "judge", *self.logs()]
        judged = subprocess.run(command, capture_output=True, text=True)
        demand(judged.returncode == 0, f"the judge: {judged.stdout}{judged.stderr}")
        return judged.stderr.splitlines()[-1]

    def findings(self):
        """What the judge has found, as its JSON says it."""
        command = [self.binaries / "berth-csi-proxy", "judge", "--json", *self.logs()]
        judged = subprocess.run(command, capture_output=True, text=True)
        demand(judged.returncode in (0, 1), f"the judge: {judged.stderr}")
        return [json.loads(line) for line in judged.stdout.splitlines()]
