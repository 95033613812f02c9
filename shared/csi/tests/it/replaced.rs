//! Another process takes the path of the socket, while the earlier one lives or hangs.

use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use berth_csi::{CallError, Client, Failure, v1};
use tokio::io::copy_bidirectional;
use tokio::net::{UnixListener as Listener, UnixStream as Stream};
use tokio::sync::Notify;

use crate::plugin::{Running, Script, Stage, socket};

/// So long that only a hang reaches it.
const AMPLE: Duration = Duration::from_secs(20);
/// So short that a test can wait for it.
const SHORT: Duration = Duration::from_millis(200);

/// Serves a plugin of this name. Its socket takes the place of an earlier one.
fn serve(name: &str, socket: &Path) -> Running {
    let mut script = Script::default();
    script.info.name = name.into();
    script.serve(socket)
}

async fn name(client: &Client, timeout: Duration) -> Result<String, CallError> {
    client.call(v1::GetPluginInfoRequest {}, timeout).await.map(|info| info.name)
}

#[tokio::test]
async fn the_next_call_goes_to_a_new_process_while_the_old_one_lives() {
    let (_dir, socket) = socket();
    let _old = serve("old.csi", &socket);
    let client = Client::new(&socket);
    assert!(client.process().is_none(), "it is not connected yet");
    for _ in 0..2 {
        assert_eq!(name(&client, AMPLE).await.unwrap(), "old.csi");
    }
    assert_eq!(client.connections(), 1);
    assert_eq!(client.process().unwrap().pid, std::process::id());
    let _new = serve("new.csi", &socket);
    for _ in 0..2 {
        assert_eq!(name(&client.clone(), AMPLE).await.unwrap(), "new.csi");
    }
    assert_eq!(client.connections(), 2, "a caller sees that the process may be another one");
}

#[tokio::test]
async fn a_call_under_way_gets_the_old_process_answer() {
    let (_dir, socket) = socket();
    let told = Arc::new(Notify::new());
    let stage = Stage::Waits(Arc::clone(&told));
    let script = Script { node: Some(vec![]), stage, ..Script::default() };
    let begun = Arc::clone(&script.timeouts);
    let _old = script.serve(&socket);
    let client = Client::new(&socket);
    let caller = client.clone();
    let call =
        tokio::spawn(
            async move { caller.call(v1::NodeStageVolumeRequest::default(), AMPLE).await },
        );
    let give_up = Instant::now() + AMPLE;
    while begun.lock().unwrap().is_empty() {
        assert!(Instant::now() < give_up, "the call has not begun");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let _new = serve("new.csi", &socket);
    assert_eq!(name(&client, AMPLE).await.unwrap(), "new.csi");
    assert!(!call.is_finished());
    told.notify_one();
    call.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_process_that_hangs_is_left_when_another_one_takes_the_path() {
    let (_dir, socket) = socket();
    // The kernel lets the client connect, and nobody ever accepts.
    let _hung = UnixListener::bind(&socket).unwrap();
    let client = Client::new(&socket);
    let error = name(&client, SHORT).await.unwrap_err();
    assert_eq!(error.failure, Failure::Late { timeout: SHORT });
    let waits = client.clone();
    let before = tokio::spawn(async move { name(&waits, Duration::from_secs(2)).await });
    tokio::time::sleep(SHORT).await;
    let _new = serve("new.csi", &socket);
    assert_eq!(name(&client, AMPLE).await.unwrap(), "new.csi");
    // The call that had begun may still be carried out: it ends by its deadline only.
    assert!(matches!(before.await.unwrap().unwrap_err().failure, Failure::Late { .. }));
    assert_eq!(client.connections(), 2);
}

/// The old process may carry its call out after every deadline. Only there is the next one behind.
#[tokio::test]
async fn a_call_follows_one_without_an_answer_until_its_process_has_ended() {
    let (_dir, socket) = socket();
    let node = || Script { node: Some(vec![]), ..Script::default() };
    let hung = Script { stage: Stage::NeverAnswers, ..node() };
    let begun = Arc::clone(&hung.timeouts);
    let old = hung.serve(&socket);
    let client = Client::new(&socket);
    let stage = async |volume: &str, timeout| {
        let request = v1::NodeStageVolumeRequest { volume_id: volume.into(), ..Default::default() };
        client.call(request, timeout).await.map_err(|error| error.failure)
    };
    let late = Failure::Late { timeout: SHORT };
    assert_eq!(stage("v", SHORT).await.unwrap_err(), late);
    let new = node();
    let at_new = Arc::clone(&new.timeouts);
    let _new = new.serve(&socket);
    stage("w", AMPLE).await.unwrap();
    assert_eq!(stage("v", SHORT).await.unwrap_err(), late);
    let counts = || (begun.lock().unwrap().len(), at_new.lock().unwrap().len());
    assert_eq!(counts(), (2, 1), "other volumes go on at the new process");
    drop(old);
    // The end of the connection is seen by a call.
    let give_up = Instant::now() + AMPLE;
    while stage("v", AMPLE).await.is_err() {
        assert!(Instant::now() < give_up, "it stays at a process that is gone");
    }
    assert_eq!(counts(), (2, 2));
}

#[tokio::test]
async fn calls_go_on_while_no_socket_is_at_the_path() {
    let (dir, socket) = socket();
    let below = dir.path().join("below");
    std::fs::create_dir(&below).unwrap();
    let socket = below.join(socket.file_name().unwrap());
    let _old = serve("old.csi", &socket);
    let client = Client::new(&socket);
    name(&client, AMPLE).await.unwrap();
    std::fs::remove_file(&socket).unwrap();
    assert_eq!(name(&client, AMPLE).await.unwrap(), "old.csi");
    std::fs::remove_dir(&below).unwrap();
    assert_eq!(name(&client, AMPLE).await.unwrap(), "old.csi");
    assert_eq!(client.connections(), 1);
    std::fs::create_dir(&below).unwrap();
    let _new = serve("new.csi", &socket);
    assert_eq!(name(&client, AMPLE).await.unwrap(), "new.csi");
}

#[tokio::test]
async fn a_link_that_leads_to_another_socket_is_followed() {
    let (dir, link) = socket();
    let (first, second) = (dir.path().join("first.sock"), dir.path().join("second.sock"));
    let (_first, _second) = (serve("first.csi", &first), serve("second.csi", &second));
    symlink(&first, &link).unwrap();
    let client = Client::new(&link);
    for _ in 0..2 {
        assert_eq!(name(&client, AMPLE).await.unwrap(), "first.csi");
    }
    std::fs::remove_file(&link).unwrap();
    symlink(&second, &link).unwrap();
    assert_eq!(name(&client, AMPLE).await.unwrap(), "second.csi");
    assert_eq!(client.connections(), 2);
}

/// Passes connections on to a plugin. Once told to, the first one passes nothing on, and stays
/// open.
fn stalling(front: &Path, behind: PathBuf, stall: Arc<Notify>) {
    let listener = Listener::bind(front).unwrap();
    tokio::spawn(async move {
        let mut kept = Vec::new();
        loop {
            let (mut near, _) = listener.accept().await.unwrap();
            let mut far = Stream::connect(&behind).await.unwrap();
            let stall = kept.is_empty().then(|| Arc::clone(&stall));
            kept.push(tokio::spawn(async move {
                match stall {
                    Some(stall) => tokio::select! {
                        _ = copy_bidirectional(&mut near, &mut far) => {}
                        () = stall.notified() => std::future::pending().await,
                    },
                    None => drop(copy_bidirectional(&mut near, &mut far).await),
                }
            }));
        }
    });
}

#[tokio::test]
async fn a_connection_that_answers_nothing_any_more_is_left_for_a_new_one() {
    let (dir, socket) = socket();
    let behind = dir.path().join("behind.sock");
    let stall = Arc::new(Notify::new());
    let _plugin = serve("test.csi", &behind);
    stalling(&socket, behind, Arc::clone(&stall));
    let client = Client::new(&socket);
    name(&client, AMPLE).await.unwrap();
    stall.notify_one();
    // What was sent before may still be answered.
    let give_up = Instant::now() + AMPLE;
    while name(&client, SHORT).await.is_ok() {
        assert!(Instant::now() < give_up, "it still answers");
    }
    assert_eq!(name(&client, AMPLE).await.unwrap(), "test.csi");
    assert_eq!(client.connections(), 2);
}

/// A slow call says nothing of its connection, as long as others are answered.
#[tokio::test]
async fn a_connection_that_answers_other_calls_is_kept() {
    let (_dir, socket) = socket();
    let script = Script { node: Some(vec![]), stage: Stage::NeverAnswers, ..Script::default() };
    let _plugin = script.serve(&socket);
    let client = Client::new(&socket);
    let caller = client.clone();
    let slow =
        tokio::spawn(
            async move { caller.call(v1::NodeStageVolumeRequest::default(), 5 * SHORT).await },
        );
    tokio::time::sleep(SHORT).await;
    name(&client, AMPLE).await.unwrap();
    assert!(matches!(slow.await.unwrap().unwrap_err().failure, Failure::Late { .. }));
    name(&client, AMPLE).await.unwrap();
    assert_eq!(client.connections(), 1);
}
