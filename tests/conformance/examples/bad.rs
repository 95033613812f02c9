//! A scheduler that makes one mistake, to show that the kit reports it.
//!
//! `bad MISTAKE SERVER OWNER NODE CREDS CA`

use std::error::Error;
use std::process::Command;
use std::time::Duration;

use berth_client::scheduler::{Connect, Deadlines, Scheduler};
use berth_contract::message::alloc::{RegisterAlloc, WaitUntil};
use berth_domain::alloc::{AllocState, VolumeRequest};
use berth_domain::{AllocId, NodeId, OwnerId, VolumeId};
use tokio::task::{JoinSet, spawn_blocking};

type Failed = Box<dyn Error + Send + Sync>;

const SOON: Duration = Duration::from_secs(60);

async fn run(scheduler: Scheduler, node: NodeId, line: String, bad: String) -> Result<(), Failed> {
    let mut words = line.splitn(3, ' ');
    let mut next = || words.next().ok_or("a job is ID VOLUMES COMMAND");
    let (id, volumes, command) = (AllocId::new(next()?)?, next()?, next()?.to_owned());
    let volumes = volumes.split(',').map(VolumeId::new).collect::<Result<Vec<_>, _>>()?;
    let volumes = volumes.into_iter().map(VolumeRequest::for_volume).collect();
    let alloc = scheduler.register(RegisterAlloc::new(id, node, volumes)).await?;
    let overall = match bad.as_str() {
        "gives-up" => Duration::from_millis(1_500),
        "ignores-retryable" => Duration::from_millis(100),
        _ => SOON,
    };
    let deadlines = Deadlines { attempt: overall, overall };
    let volumes = match alloc.mount(true, deadlines).await {
        Ok(volumes) => volumes,
        // The error says to retry, and this scheduler takes it as final.
        Err(refusal) => {
            alloc.stop(AllocState::Failed, "refused").await?;
            return Err(refusal.into());
        }
    };
    let mut shell = Command::new("sh");
    shell.args(["-c", &command]);
    for volume in volumes {
        shell.env(format!("BERTH_VOLUME_{}", volume.name.to_uppercase()), volume.path);
    }
    let times = if bad == "runs-twice" { 2 } else { 1 };
    if bad == "stops-early" {
        let child = shell.spawn()?;
        tokio::time::sleep(Duration::from_millis(300)).await;
        alloc.stop(AllocState::Complete, "too early").await?;
        spawn_blocking(move || child.wait_with_output()).await??;
    } else {
        for _ in 0..times {
            shell = spawn_blocking(move || shell.status().map(|_| shell)).await??;
        }
        if bad != "leaves" {
            alloc.stop(AllocState::Complete, "done").await?;
        }
    }
    Ok(alloc.wait(WaitUntil::Free, SOON).await?)
}

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [bad, server, owner, node, identity @ ..] = &words[..] else { return Err("usage".into()) };
    let connect = Connect::new([server], OwnerId::new(owner)?).identified(identity);
    let scheduler = Scheduler::connect(connect).await?;
    let mut jobs = JoinSet::new();
    for line in std::io::stdin().lines() {
        let (node, bad) = (NodeId::new(node)?, bad.clone());
        jobs.spawn(run(scheduler.clone(), node, line?, bad));
    }
    jobs.join_all().await.into_iter().collect()
}
