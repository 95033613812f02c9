//! A scheduler: runs the jobs of its input, one a line, `ID VOLUME,VOLUME COMMAND…`, on this node.
//! It may be killed and started again at any time: jobs that run are found and go on.
//! `cargo run -p berth-client --example scheduler SERVER OWNER NODE [CREDS CA]`

use std::collections::BTreeSet;
use std::error::Error;
use std::process::Command;

use berth_client::scheduler::{Alloc, Connect, Deadlines, Scheduler};
use berth_contract::message::alloc::{RegisterAlloc, WaitUntil};
use berth_domain::alloc::{AllocState, VolumeRequest};
use berth_domain::{AllocId, NodeId, OwnerId, VolumeId};
use tokio::task::{JoinSet, spawn_blocking};

type Failed = Box<dyn Error + Send + Sync>;

/// The alloc of a job, and its command.
fn parse(line: &str, node: &NodeId) -> Result<(RegisterAlloc, String), Failed> {
    let mut words = line.splitn(3, ' ');
    let mut next = || words.next().ok_or("a job is ID VOLUMES COMMAND");
    let (id, volumes, command) = (AllocId::new(next()?)?, next()?, next()?.to_owned());
    let volumes = volumes.split(',').map(VolumeId::new).collect::<Result<Vec<_>, _>>()?;
    let volumes = volumes.into_iter().map(VolumeRequest::for_volume).collect();
    Ok((RegisterAlloc::new(id, node.clone(), volumes), command))
}

/// Runs a job to its end. If the alloc is refused, it is stopped, and its volumes are free.
async fn run(scheduler: Scheduler, job: RegisterAlloc, command: String) -> Result<(), Failed> {
    let alloc = scheduler.register(job).await?;
    let volumes = match alloc.mount(true, Deadlines::default()).await {
        Ok(volumes) => volumes,
        Err(refusal) => {
            alloc.stop(AllocState::Failed, "it did not get its volumes").await?;
            return Err(refusal.into());
        }
    };
    let mut shell = Command::new("sh");
    // The lock is the job's standard input, and guards the alloc from before the job begins.
    shell.args(["-c", &command]).stdin(alloc.lock().await?);
    for volume in volumes {
        shell.env(format!("BERTH_VOLUME_{}", volume.name.to_uppercase()), volume.path);
    }
    // The lock is held until the scheduler has reported the job's end; otherwise the agent would
    // report it.
    let (status, lock) = spawn_blocking(move || (shell.status(), shell)).await?;
    let is_done = matches!(&status, Ok(status) if status.success());
    let state = if is_done { AllocState::Complete } else { AllocState::Failed };
    alloc.stop(state, &format!("{status:?}")).await?;
    drop(lock);
    end(alloc).await
}

/// Waits until the job has ended and its volumes are free.
async fn end(alloc: Alloc) -> Result<(), Failed> {
    Ok(alloc.wait(WaitUntil::Free, Deadlines::default().overall).await?)
}

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [server, owner, node, identity @ ..] = &words[..] else { return Err("see the top".into()) };
    let (connect, node) = (Connect::new([server], OwnerId::new(owner)?), NodeId::new(node)?);
    let scheduler = Scheduler::connect(connect.identified(identity)).await?;
    let (mut running, mut jobs) = (BTreeSet::new(), JoinSet::new());
    for alloc in scheduler.own_allocs().await? {
        // An alloc without a guard was never started; it is started when its job is read.
        if alloc.is_guarded().await? && running.insert(alloc.id().clone()) {
            jobs.spawn(end(alloc));
        }
    }
    for line in std::io::stdin().lines() {
        let (job, command) = parse(&line?, &node)?;
        if !running.contains(&job.id) {
            jobs.spawn(run(scheduler.clone(), job, command));
        }
    }
    jobs.join_all().await.into_iter().collect::<Result<(), Failed>>()?;
    Ok(scheduler.close().await?)
}
