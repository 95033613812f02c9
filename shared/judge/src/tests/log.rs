//! A log that is written call by call, by hand.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::{Finding, FindingKind, judge_files};

pub const CREATE: &str = "CreateVolume";
pub const DELETE: &str = "DeleteVolume";
pub const ATTACH: &str = "ControllerPublishVolume";
pub const DETACH: &str = "ControllerUnpublishVolume";
pub const STAGE: &str = "NodeStageVolume";
pub const UNSTAGE: &str = "NodeUnstageVolume";
pub const PUBLISH: &str = "NodePublishVolume";
pub const UNPUBLISH: &str = "NodeUnpublishVolume";
pub const EXPAND: &str = "ControllerExpandVolume";
pub const NODE_EXPAND: &str = "NodeExpandVolume";
pub const SNAPSHOT: &str = "CreateSnapshot";
pub const DELETE_SNAPSHOT: &str = "DeleteSnapshot";
pub const GET_SNAPSHOT: &str = "GetSnapshot";
pub const LIST_SNAPSHOTS: &str = "ListSnapshots";
pub const LIST_VOLUMES: &str = "ListVolumes";
pub const MODIFY: &str = "ControllerModifyVolume";
pub const GROUP: &str = "CreateVolumeGroupSnapshot";
pub const DELETE_GROUP: &str = "DeleteVolumeGroupSnapshot";
pub const GET_GROUP: &str = "GetVolumeGroupSnapshot";

/// Log lines, written call by call; each call takes 5 µs, and begins 10 µs after the last. `n1'` is
/// the next instance of node `n1`, after a restart.
#[derive(Default)]
pub struct Log {
    lines: Vec<Value>,
    now_us: u64,
}

/// The outcome of a call.
#[derive(Clone, Copy)]
pub enum Came<'a> {
    /// Done, and answered so.
    Ok,
    /// Nothing was changed.
    Refused,
    /// Refused by the driver's rule of this name.
    Noticed(&'a str),
    /// Done, and answered with an error.
    Lied,
    /// Done, and answered with `NOT_FOUND`.
    Unknown,
    /// Done, and not answered.
    Lost,
    /// Failed half-way.
    Failed,
    /// Without an end: its process was killed.
    Killed,
}

impl Log {
    /// Two nodes whose instances require that volumes are attached and staged.
    pub fn nodes() -> Self {
        Self::default().start("n1", json!([])).start("n2", json!([]))
    }

    /// An empty log that begins at this time. Calls are numbered by time, so that logs can be
    /// joined.
    pub fn at(now_us: u64) -> Self {
        Self { lines: Vec::new(), now_us }
    }

    /// An instance started, and found these volumes in use.
    pub fn start(mut self, instance: &str, holds: Value) -> Self {
        self.now_us += 10;
        let now = self.now_us;
        self.push(json!({
            "entry": "start", "start_us": now, "node_id": node(instance), "instance": instance,
            "attach": true, "stage": true, "holds": holds,
        }))
    }

    /// The storage fences a node, or lifts its fence.
    pub fn fence(mut self, at: &str, fenced: bool) -> Self {
        self.now_us += 10;
        let now = self.now_us;
        self.push(json!({
            "entry": "fence", "fence_us": now, "node_id": at, "instance": "storage",
            "fenced": fenced,
        }))
    }

    /// A call that succeeded.
    pub fn ok(self, at: &str, rpc: &str, args: Value) -> Self {
        self.call(at, rpc, args, Came::Ok)
    }

    /// A call with this outcome.
    pub fn call(self, at: &str, rpc: &str, args: Value, came: Came<'_>) -> Self {
        let log = self.begin(at, rpc, args);
        let line = log.lines.len();
        log.end(line, came)
    }

    /// The beginning of a call.
    pub fn begin(mut self, at: &str, rpc: &str, args: Value) -> Self {
        self.now_us += 10;
        let now = self.now_us;
        self.push(json!({
            "entry": "begin", "seq": now, "begin_us": now, "node_id": node(at), "instance": at,
            "rpc": rpc, "args": args,
        }))
    }

    /// The end of the call that began on this line.
    pub fn end(mut self, line: usize, came: Came<'_>) -> Self {
        self.now_us += 5;
        let mut end = self.lines[line - 1].clone();
        let (code, effect) = match came {
            Came::Ok | Came::Lost => ("OK", "done"),
            Came::Refused | Came::Noticed(_) => ("FAILED_PRECONDITION", "none"),
            Came::Lied => ("UNAVAILABLE", "done"),
            Came::Unknown => ("NOT_FOUND", "done"),
            Came::Failed => ("INTERNAL", "unknown"),
            Came::Killed => return self,
        };
        end["entry"] = "end".into();
        end["end_us"] = self.now_us.into();
        end["code"] = code.into();
        end["effect"] = effect.into();
        match came {
            Came::Noticed(rule) => end["violation"] = json!(rule),
            Came::Lied => end["fault"] = "after".into(),
            Came::Lost => end["fault"] = "lost".into(),
            _ => end["answer"] = answer(&end),
        }
        end["kernel"] = kernel(&end);
        self.push(end)
    }

    /// The caller of the call that began on this line has left.
    pub fn gone(mut self, line: usize) -> Self {
        self.now_us += 1;
        let mut gone = self.lines[line - 1].clone();
        gone["entry"] = "gone".into();
        gone["gone_us"] = self.now_us.into();
        self.push(gone)
    }

    /// Nothing happens for this long.
    pub fn later(mut self, us: u64) -> Self {
        self.now_us += us;
        self
    }

    /// Replaces the code on the newest line.
    pub fn code(mut self, code: &str) -> Self {
        self.lines.last_mut().unwrap()["code"] = code.into();
        self
    }

    /// Replaces the answer on the newest line.
    pub fn answer(mut self, answer: Value) -> Self {
        self.lines.last_mut().unwrap()["answer"] = answer;
        self
    }

    /// Replaces the kernel's mounts on the newest line.
    pub fn kernel(mut self, kernel: Value) -> Self {
        self.lines.last_mut().unwrap()["kernel"] = kernel;
        self
    }

    /// Sets whether the instances so far require that volumes are attached.
    pub fn attaching(mut self, attach: bool) -> Self {
        let starts = self.lines.iter_mut().filter(|line| line["entry"] == "start");
        starts.for_each(|start| start["attach"] = attach.into());
        self
    }

    /// Makes the driver of all lines so far a foreign one.
    pub fn foreign(mut self) -> Self {
        self.lines.iter_mut().for_each(|line| line["foreign"] = json!(true));
        self
    }

    /// Makes the driver of the newest line a lenient one.
    pub fn lenient(mut self) -> Self {
        self.lines.last_mut().unwrap()["lenient"] = true.into();
        self
    }

    /// Appends a line.
    pub fn push(mut self, line: Value) -> Self {
        self.lines.push(line);
        self
    }

    /// The lines.
    pub fn text(&self) -> String {
        text(&self.lines)
    }

    /// The judge's findings.
    pub fn findings(&self) -> Vec<Finding> {
        judged(&self.text())
    }

    /// The broken rules, each with the numbers of the lines that prove it.
    pub fn broken(&self) -> Vec<(FindingKind, String, Vec<usize>)> {
        let findings = self.findings().into_iter();
        findings.map(|finding| (finding.kind, finding.rule.name, numbers(&finding.proof))).collect()
    }

    /// Asserts that exactly this rule is found broken, with this proof.
    #[track_caller]
    pub fn proves(&self, rule: &str, proof: &[usize]) {
        let expected = vec![(FindingKind::Violation, rule.to_owned(), proof.to_vec())];
        assert_eq!(self.broken(), expected, "{}", self.text());
    }

    #[track_caller]
    pub fn proves_nothing(&self) {
        assert_eq!(self.broken(), vec![], "{}", self.text());
    }
}

/// The lines of a log.
pub fn text(lines: &[Value]) -> String {
    let mut text: Vec<_> = lines.iter().map(ToString::to_string).collect();
    text.push(String::new());
    text.join("\n")
}

/// The judge's findings in this log.
pub fn judged(text: &str) -> Vec<Finding> {
    let dir = tempfile::tempdir().unwrap();
    let path: PathBuf = dir.path().join("hand.log");
    fs::write(&path, text).unwrap();
    judge_files(&[path]).unwrap()
}

fn numbers(proof: &[crate::LogLine]) -> Vec<usize> {
    proof.iter().map(|line| line.number).collect()
}

fn node(instance: &str) -> &str {
    instance.trim_end_matches('\'')
}

/// The driver's answer: contexts and ids that follow from the request.
fn answer(end: &Value) -> Value {
    let args = &end["args"];
    match end["rpc"].as_str().unwrap() {
        ATTACH => json!({"publish_context": context(args["node_id"].as_str().unwrap())}),
        CREATE => json!({"volume": {"volume_id": args["name"]}}),
        SNAPSHOT => json!({"snapshot": {"snapshot_id": args["name"], "ready_to_use": true}}),
        GROUP => json!({"group_snapshot": group(&args["name"], &args["source_volume_ids"])}),
        _ => json!({}),
    }
}

/// A group with a member for each volume.
pub fn group(name: &Value, volumes: &Value) -> Value {
    let member = |volume: &Value| {
        json!({
            "snapshot_id": member(name.as_str().unwrap(), volume.as_str().unwrap()),
            "group_snapshot_id": name, "ready_to_use": true,
        })
    };
    let members: Vec<_> = volumes.as_array().unwrap().iter().map(member).collect();
    json!({"group_snapshot_id": name, "snapshots": members})
}

/// The id of a member of a group.
pub fn member(group: &str, volume: &str) -> String {
    format!("{group}-{volume}")
}

/// The kernel's mounts after the call.
pub fn kernel(end: &Value) -> Value {
    let args = &end["args"];
    let (staging, target) = (&args["staging_target_path"], &args["target_path"]);
    let mode = args.pointer("/volume_capability/access_mode/mode").and_then(Value::as_str);
    let read_only =
        args["readonly"] == true || mode.is_some_and(|mode| mode.ends_with("_READER_ONLY"));
    let mounted = |path: &Value, read_only: bool| {
        let root = format!("/volumes/{}", args["volume_id"]);
        json!({"path": path, "mounts": [{"device": "8:1", "root": root, "read_only": read_only}]})
    };
    let nothing = |path: &Value| json!({"path": path, "mounts": []});
    match end["rpc"].as_str().unwrap() {
        STAGE => json!([mounted(staging, false)]),
        PUBLISH => json!([mounted(staging, false), mounted(target, read_only)]),
        UNPUBLISH => json!([nothing(target)]),
        UNSTAGE => json!([nothing(staging)]),
        _ => Value::Null,
    }
}

/// The context that attaching to this node returns.
fn context(node: &str) -> Value {
    json!({"device": node})
}

/// The arguments, with `more` in place of or besides its own.
pub fn with(mut args: Value, more: Value) -> Value {
    for (key, value) in more.as_object().unwrap() {
        args[key] = value.clone();
    }
    args
}

/// A capability in this mode.
pub fn mode(mode: &str) -> Value {
    json!({"volume_capability": {
        "access_mode": {"mode": mode}, "access_type": {"mount": {"mount_flags": ["***"]}},
    }})
}

fn one_writer() -> Value {
    with(mode("SINGLE_NODE_WRITER"), json!({"volume_id": "v"}))
}

/// The arguments of an attaching or detaching call.
pub fn on(node: &str) -> Value {
    with(one_writer(), json!({"node_id": node}))
}

/// The arguments of a stage at `/s` of this node.
pub fn staging(node: &str) -> Value {
    with(one_writer(), json!({"staging_target_path": "/s", "publish_context": context(node)}))
}

/// The arguments of a publication at `/t` of this node.
pub fn target(node: &str) -> Value {
    with(staging(node), json!({"target_path": "/t"}))
}

/// The arguments of a call that needs only the volume `v`.
pub fn v() -> Value {
    json!({"volume_id": "v"})
}

/// The volume attached to `n1`; its calls are on lines 3 and 4.
pub fn attached() -> Log {
    Log::nodes().ok("n1", ATTACH, on("n1"))
}

/// As [`attached`], and staged there, on lines 5 and 6.
pub fn staged() -> Log {
    attached().ok("n1", STAGE, staging("n1"))
}

/// As [`staged`], and published there, on lines 7 and 8.
pub fn published() -> Log {
    staged().ok("n1", PUBLISH, target("n1"))
}
