//! Mirrors of a process that was paused: only the server's clock shows for how long.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread::JoinHandle;

use berth_bus::{Mirror, PurgePosition};
use berth_contract::bucket::BucketSpec;
use berth_harness::nats::Server;
use berth_harness::proxy::Proxy;
use berth_harness::wait;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::sleep;

use crate::support::{Keys, PATIENCE, STATE, agrees, connect, mirror, set, unset};

const BRIEF: BucketSpec =
    BucketSpec { name: "brief", marker_ttl: std::time::Duration::from_secs(1), ..STATE };

/// A mirror on a runtime of its own, which can be frozen as SIGSTOP freezes a process.
struct Process {
    mirror: Mirror<Keys>,
    freeze: Option<UnboundedSender<mpsc::Receiver<()>>>,
    thread: Option<JoinHandle<()>>,
}

impl Process {
    async fn start(url: String) -> Self {
        let (freeze, mut frozen) = unbounded_channel::<mpsc::Receiver<()>>();
        let (started, start) = tokio::sync::oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let bucket = connect(&url).await.bucket(&BRIEF, 1).await.unwrap();
                assert!(started.send(mirror(&bucket, ">").await).is_ok());
                while let Some(thaw) = frozen.recv().await {
                    // Blocks the only thread, so that nothing of this runtime goes on meanwhile.
                    let _: Result<(), _> = thaw.recv();
                }
            });
        });
        let mirror = start.await.unwrap();
        Self { mirror, freeze: Some(freeze), thread: Some(thread) }
    }

    /// Pauses the process until the returned sender is dropped.
    fn freeze(&self) -> mpsc::Sender<()> {
        let (thaw, until) = mpsc::channel();
        self.freeze.as_ref().unwrap().send(until).unwrap();
        thaw
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.freeze.take();
        self.thread.take().map(JoinHandle::join);
    }
}

/// The process notices the pause only when it goes on. By then the marker of a delete has expired,
/// and the last message that it applied is still in the stream.
#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_frozen_for_longer_than_markers_live_reads_all_keys_again() {
    let server = Server::start().await;
    let bucket = connect(&server.url()).await.bucket(&BRIEF, 1).await.unwrap();
    let proxy = Proxy::start(SocketAddr::from(([127, 0, 0, 1], server.port()))).await;
    set(&bucket, "v.deleted", "1").await;
    let anchor = set(&bucket, "v.kept", "2").await;
    let process = Process::start(proxy.url()).await;
    assert_eq!(process.mirror.applied(), anchor);

    let thaw = process.freeze();
    sleep(std::time::Duration::from_millis(50)).await;
    proxy.snap();
    unset(&bucket, "v.deleted").await;
    wait::until("the marker is purged", PATIENCE, async || {
        match bucket.purge_deleted(&mut PurgePosition::default()).await.unwrap() {
            0 => Err("it is young"),
            _ => Ok(()),
        }
    })
    .await;
    assert_eq!(bucket.head(">").await.unwrap(), anchor, "the head has fallen to the anchor");
    drop(thaw);
    agrees(&process.mirror, &bucket, ">").await;
}
