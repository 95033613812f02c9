//! The agent is killed at every point of a mount and of an unmount: before and after each write of
//! the journal and each call of the plugin. Then `agent.status` is true, the operation can be
//! finished or undone, and the volume is unstaged once.

#![expect(clippy::print_stdout, reason = "what was done before it failed is half of a failure")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use berth_contract::message::agent::AgentStatus;
use berth_harness::process::{Daemon, Program};
use berth_harness::{root, wait};
use serde_json::{Value, json};

use crate::world::{Differences, PATIENCE, World};

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    In,
    Out,
}

/// Where the agent is killed.
#[derive(Debug, Clone, Copy)]
enum Point {
    /// On this side of the work of this plugin call.
    Call(&'static str, &'static str),
    /// As it begins to write the journal, or once it has written and before that is on the disk;
    /// before the first plugin call, or while this side of this call is done.
    Journal(Syscall, Option<(&'static str, &'static str)>),
}

#[derive(Debug, Clone, Copy)]
enum Syscall {
    Write,
    Sync,
}

const IN: [&str; 2] = ["NodeStageVolume", "NodePublishVolume"];
const OUT: [&str; 2] = ["NodeUnpublishVolume", "NodeUnstageVolume"];

fn points(way: Way) -> Vec<Point> {
    let calls = if way == Way::In { IN } else { OUT };
    let [first, last] = calls;
    let mut points = Vec::new();
    for syscall in [Syscall::Write, Syscall::Sync] {
        points.push(Point::Journal(syscall, None));
        if way == Way::In {
            points.push(Point::Journal(syscall, Some((first, "after"))));
        }
        points.push(Point::Journal(syscall, Some((last, "after"))));
    }
    for call in calls {
        points.extend(["before", "after"].map(|side| Point::Call(call, side)));
    }
    points
}

/// What the journal may say of a mount that was cut off, by what the driver was asked since: never
/// less than it was asked, and never more than it did.
fn known(asked: &[Value]) -> Vec<&'static str> {
    let is = |entry: &str, rpc: &str| {
        let of = |one: &&Value| one["entry"] == entry && one["rpc"] == rpc;
        asked.iter().filter(of).any(|one| entry == "begin" || one["code"] == "OK")
    };
    let [stage, publish] = IN;
    let least = [is("begin", stage), is("begin", publish)];
    let most = [is("end", stage), is("end", publish)];
    let states = ["nothing", "begun", "staged", "published"];
    let from = if least[1] { 2 } else { usize::from(least[0]) };
    let to = if most[1] {
        3
    } else if most[0] {
        2
    } else {
        1
    };
    states[from..=to].to_vec()
}

/// What the agent found in its journal of this claim as it came back.
fn found(world: &World, epoch: u64) -> String {
    let log = world.agent.log();
    let of_it = |line: &&str| {
        let its = format!("epoch={epoch} ");
        line.contains("found in the journal") && line.contains(&its)
    };
    let Some(line) = log.lines().rfind(of_it) else { return "nothing".to_owned() };
    let state = line.split("state=\"").nth(1).and_then(|rest| rest.split('"').next());
    state.unwrap_or(line).to_owned()
}

/// Kills the agent at its next write of the journal. A thread that began while the wire was laid
/// may be beside it; then it is laid again.
async fn tripwire(world: &World, syscall: Syscall) -> Daemon {
    wait::until("the tripwire lies across every thread", PATIENCE, async || {
        let strace = lay(world, syscall).await;
        let beside = beside(world);
        if beside.is_empty() { Ok(strace) } else { Err(format!("{beside:?}")) }
    })
    .await
}

/// The threads of the agent without a tracer.
fn beside(world: &World) -> Vec<PathBuf> {
    let threads = std::fs::read_dir(format!("/proc/{}/task", world.agent.pid())).unwrap();
    let threads = threads.flatten().map(|thread| thread.path());
    let is_free = |thread: &PathBuf| {
        let status = std::fs::read_to_string(thread.join("status")).unwrap_or_default();
        status.lines().any(|line| line == "TracerPid:\t0")
    };
    threads.filter(is_free).collect()
}

async fn lay(world: &World, syscall: Syscall) -> Daemon {
    let calls = match syscall {
        Syscall::Write => "write,writev,pwrite64",
        Syscall::Sync => "fsync,fdatasync",
    };
    let log = world.dir.join("tripwire.log");
    // That an earlier wire lay says nothing of this one.
    let _ = std::fs::remove_file(&log);
    let strace = Program::new("strace", "strace", log)
        .args(["-f", "-y", "-p"])
        .arg(world.agent.pid().to_string())
        .args(["-e", &format!("trace={calls}")])
        .args(["-e", &format!("inject={calls}:signal=KILL:when=1+")])
        .args(
            journal_files(world).into_iter().flat_map(|file| ["-P".into(), file.into_os_string()]),
        )
        .start();
    wait::until("the tripwire lies", PATIENCE, async || {
        let log = strace.log();
        if log.contains("attached") { Ok(()) } else { Err(log) }
    })
    .await;
    strace
}

/// The files that the journal is written to.
fn journal_files(world: &World) -> Vec<PathBuf> {
    let open = std::fs::read_dir(format!("/proc/{}/fd", world.agent.pid())).unwrap();
    let files = open.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    let journal = world.dir.join("state/journal");
    let ours: BTreeSet<PathBuf> = files.filter(|file| file.starts_with(&journal)).collect();
    assert!(!ours.is_empty(), "the journal is open somewhere");
    ours.into_iter().collect()
}

/// What the agent says is what the kernel says; and nothing is mounted that it does not know of.
fn agree(world: &World, status: &AgentStatus) {
    let shown = status.mounts.iter().filter(|mount| mount.mounted).map(|mount| mount.path.clone());
    let stagings = status.mounts.iter().filter(|mount| mount.staged);
    let stagings = stagings.filter_map(|mount| mount.staging.clone());
    let told: BTreeSet<PathBuf> = shown.chain(stagings).map(PathBuf::from).collect();
    assert_eq!(told, world.mounts().into_iter().collect(), "{status:?}");
    assert!(status.strays.is_empty(), "{status:?}");
}

/// Begins to do it, and kills the agent at the point.
async fn strike(world: &World, way: Way, point: Point, epoch: u64) {
    let (hang, syscall) = match point {
        Point::Call(rpc, side) => (Some((rpc, side)), None),
        Point::Journal(syscall, hang) => (hang, Some(syscall)),
    };
    let faults = hang.map(|(rpc, side)| json!({"rpc": rpc, "when": side, "hang": true}));
    world.plant(&json!(faults.into_iter().collect::<Vec<_>>()));
    let mut wire = None;
    if let (None, Some(syscall)) = (hang, syscall) {
        wire = Some(tripwire(world, syscall).await);
    }
    let doing = async {
        let within = Duration::from_secs(5);
        match way {
            Way::In => world.mount_within("a", within).await.map(drop),
            Way::Out => world.detach_within("a", epoch, 100 + epoch, within).await.map(drop),
        }
    };
    let striking = async {
        if let Some((rpc, side)) = hang {
            under_way(world, rpc, side).await;
            match syscall {
                Some(syscall) => {
                    wire = Some(tripwire(world, syscall).await);
                    world.plant(&json!([]));
                }
                None => world.agent.kill9(),
            }
        }
        world.agent.wait_exit(PATIENCE).await;
    };
    let (done, ()) = tokio::join!(doing, striking);
    assert!(done.is_err(), "{point:?}: it was done all the same");
    drop(wire);
    world.plant(&json!([]));
    world.agent.restart();
    world.healthy_now().await;
}

/// Waits until the call is held, before or after its work.
async fn under_way(world: &World, rpc: &str, side: &str) {
    wait::until(&format!("{rpc} is under way"), PATIENCE, async || {
        let status = world.status().await.map_err(|problem| problem.to_string())?;
        let at_work = status.work.iter().any(|work| work.rpc.as_deref() == Some(rpc));
        // On the far side what it did can be seen.
        let mounts = world.mounts().len();
        let done = match rpc {
            "NodeStageVolume" | "NodeUnpublishVolume" => mounts == 1,
            "NodePublishVolume" => mounts == 2,
            _ => mounts == 0,
        };
        if at_work && (side == "before" || done) {
            Ok(())
        } else {
            Err(format!("{mounts} mounts, {status:?}"))
        }
    })
    .await;
}

/// One point, and the way on from it: to its end, or back.
async fn walk(way: Way, finish: bool) {
    if !root::or_skip("mounts a volume, and lays a tripwire with strace") {
        return;
    }
    let world =
        World::start_with(Differences { driver: &["--no-attach"], ..Default::default() }).await;
    let mut ever = BTreeSet::new();
    for (at, point) in points(way).into_iter().enumerate() {
        let epoch = 7 + 10 * u64::try_from(at).unwrap();
        let (staged, unstaged) = (stages(&world), world.count("NodeUnstageVolume OK"));
        world.grant("a", epoch, &BTreeMap::new());
        if way == Way::Out {
            world.mount("a").await.unwrap();
        }
        let asked = world.log().len();
        strike(&world, way, point, epoch).await;
        let status = world.status().await.unwrap();
        agree(&world, &status);
        if way == Way::In {
            let (found, asked) = (found(&world, epoch), &world.log()[asked..]);
            assert!(known(asked).contains(&found.as_str()), "{point:?}: {found}, {asked:?}");
            ever.insert(found);
        }
        if way == Way::In && finish {
            let mounted = wait::until("it is mounted", PATIENCE, async || {
                world.mount("a").await.map_err(|problem| problem.to_string())
            })
            .await;
            assert_eq!(world.mounts().len(), 2, "{point:?}");
            assert!(world.mounts().contains(&mounted.path.into()), "{point:?}");
            agree(&world, &world.status().await.unwrap());
        }
        wait::until("it is gone", PATIENCE, async || {
            let gone = world.detach("a", epoch, 101 + epoch).await;
            gone.map_err(|problem| problem.to_string())
        })
        .await;
        let status = world.status().await.unwrap();
        assert_eq!(status.mounts, [], "{point:?}");
        assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]), "{point:?}");
        // Repeated calls are those that were cut off, and no call is made twice that was answered.
        let unstaged = world.count("NodeUnstageVolume OK") - unstaged;
        let staged = stages(&world) - staged;
        assert!(staged <= 2 && (1..=2).contains(&unstaged), "{point:?}: {staged}, {unstaged}");
        println!("{way:?} {point:?}: staged {staged}, unstaged {unstaged}");
    }
    // Not each kill may come quite where it was meant to; but one finds each of these.
    let every = ["begun", "staged"].iter().all(|state| ever.contains(*state));
    assert!(way == Way::Out || every, "{ever:?}");
    world.judge();
}

fn stages(world: &World) -> usize {
    world.count("NodeStageVolume OK")
}

#[tokio::test]
async fn killed_at_every_point_of_a_mount_it_is_brought_to_its_end() {
    walk(Way::In, true).await;
}

#[tokio::test]
async fn killed_at_every_point_of_a_mount_it_is_undone() {
    walk(Way::In, false).await;
}

#[tokio::test]
async fn killed_at_every_point_of_an_unmount_it_is_brought_to_its_end() {
    walk(Way::Out, true).await;
}
