//! A call ends by its deadline with the right outcome, whatever serves the path.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use berth_csi::{CallAnswer, CallError, Class, Client, Code, Failure, Remedy, Rpc, v1};

use crate::plugin::{Script, Stage, socket};

/// So long that only a hang reaches it.
const AMPLE: Duration = Duration::from_secs(20);
/// So short that a test can wait for it.
const SHORT: Duration = Duration::from_millis(200);

async fn info(client: &Client, timeout: Duration) -> Result<String, CallError> {
    client.call(v1::GetPluginInfoRequest {}, timeout).await.map(|info| info.name)
}

fn stage_request() -> v1::NodeStageVolumeRequest {
    v1::NodeStageVolumeRequest {
        volume_id: "vol-1".into(),
        secrets: [("password".into(), "hunter2".into())].into(),
        ..v1::NodeStageVolumeRequest::default()
    }
}

#[tokio::test]
async fn a_client_waits_for_no_plugin_until_the_first_call() {
    let (_dir, socket) = socket();
    let client = Client::new(&socket);
    let _plugin = Script::default().serve(&socket);
    assert_eq!(info(&client, AMPLE).await.unwrap(), "test.csi");
}

#[tokio::test]
async fn an_error_of_the_plugin_arrives_with_its_code_and_without_the_secret() {
    let (_dir, socket) = socket();
    let stage = Stage::Fails(tonic::Code::NotFound, "no vol-1 for\nhunter2".into());
    let _plugin = Script { node: Some(vec![]), stage, ..Script::default() }.serve(&socket);
    let error = Client::new(&socket).call(stage_request(), AMPLE).await.unwrap_err();
    assert_eq!(error.code(), Some(Code::NotFound));
    assert_eq!(error.class(), Class::Retry(Remedy::VerifyId));
    let expected = format!("NodeStageVolume on {}: NOT_FOUND: no vol-1 for ***", socket.display());
    assert_eq!(error.to_string(), expected);
    assert!(!format!("{error:?}").contains("hunter2"));
}

#[tokio::test]
async fn a_service_that_is_not_served_is_unimplemented() {
    let (_dir, socket) = socket();
    let _plugin = Script::default().serve(&socket);
    let error = Client::new(&socket).call(stage_request(), AMPLE).await.unwrap_err();
    assert_eq!(error.code(), Some(Code::Unimplemented), "{error}");
}

#[tokio::test]
async fn a_plugin_that_does_not_answer_is_left_at_the_deadline_it_was_told() {
    let (_dir, socket) = socket();
    let script = Script { node: Some(vec![]), stage: Stage::NeverAnswers, ..Script::default() };
    let timeouts = script.timeouts.clone();
    let _plugin = script.serve(&socket);
    let client = Client::new(&socket);
    // Connects first, so that the time of the call itself is measured.
    info(&client, AMPLE).await.unwrap();
    let started = Instant::now();
    let error = client.call(stage_request(), SHORT).await.unwrap_err();
    assert!(started.elapsed() >= SHORT);
    assert_eq!(error.failure, Failure::Late { timeout: SHORT });
    assert_eq!(error.class(), Class::Uncertain(Remedy::Wait));
    assert_eq!(*timeouts.lock().unwrap(), ["200000u"]);
    // The connection still works.
    assert_eq!(info(&client, AMPLE).await.unwrap(), "test.csi");
}

/// Asserts that the call reached no plugin, and that the error has the reason.
async fn assert_unreachable(path: &Path, why: &str) {
    let error = info(&Client::new(path), AMPLE).await.unwrap_err();
    assert_eq!(error.answer(), CallAnswer::Unsent, "{error}");
    assert_eq!(error.rpc, Rpc::GetPluginInfo);
    let expected = format!("GetPluginInfo on {}: no plugin to talk to: {why}", path.display());
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn what_is_no_socket_is_named() {
    let (dir, socket) = socket();
    assert_unreachable(&socket, "there is no such file").await;
    assert_unreachable(dir.path(), "it is a directory, not a socket").await;

    let file = dir.path().join("file");
    std::fs::write(&file, "no socket").unwrap();
    assert_unreachable(&file, "it is a file, not a socket").await;

    drop(UnixListener::bind(&socket).unwrap());
    assert_unreachable(&socket, "no process listens on this socket").await;

    let long = dir.path().join("x".repeat(120));
    let error = info(&Client::new(&long), AMPLE).await.unwrap_err();
    assert_eq!(error.answer(), CallAnswer::Unsent, "{error}");
}

/// Accepts connections, does `act` with each, and ends with the test's process.
fn listen(socket: &Path, act: impl Fn(UnixStream) + Send + 'static) {
    let listener = UnixListener::bind(socket).unwrap();
    thread::spawn(move || listener.incoming().flatten().for_each(act));
}

#[tokio::test]
async fn a_socket_that_speaks_something_else_is_no_answer() {
    type Act = fn(UnixStream);
    let strangers: [(&str, Act); 4] = [
        ("hangs up at once", drop),
        ("sends noise", |mut stream| {
            let _ = stream.write_all(&[0xA5; 4096]);
            let _ = stream.read_to_end(&mut Vec::new());
        }),
        ("speaks HTTP/1", |mut stream| {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
            let _ = stream.read_to_end(&mut Vec::new());
        }),
        ("hangs up after listening", |mut stream| {
            let _ = stream.read(&mut [0; 1024]);
        }),
    ];
    for (name, act) in strangers {
        let (_dir, socket) = socket();
        listen(&socket, act);
        let error = Client::new(&socket).call(stage_request(), AMPLE).await.unwrap_err();
        let Failure::Broken { reason } = &error.failure else { panic!("{name}: {error:?}") };
        assert!(!reason.is_empty(), "{name}");
        assert!(error.to_string().contains(socket.to_str().unwrap()), "{name}: {error}");
        // The peer may have been a plugin that was killed at work.
        assert_eq!(error.class(), Class::Uncertain(Remedy::Wait), "{name}");
    }
}

#[tokio::test]
async fn a_plugin_is_called_localhost_since_some_refuse_a_path_as_authority() {
    // The form of HTTP/2: a literal for static name 1 (:authority), "localhost" in Huffman code.
    const AUTHORITY: [u8; 8] = [0x41, 0x86, 0xa0, 0xe4, 0x1d, 0x13, 0x9d, 0x09];
    let (_dir, socket) = socket();
    // Waits for the authority, reads it, and closes the connection.
    let (tell, told) = std::sync::mpsc::channel();
    listen(&socket, move |mut stream| {
        let (mut seen, mut next) = (Vec::new(), [0; 1024]);
        while !seen.windows(AUTHORITY.len()).any(|window| window == AUTHORITY) {
            match stream.read(&mut next) {
                Ok(0) | Err(_) => return,
                Ok(count) => seen.extend_from_slice(&next[..count]),
            }
        }
        tell.send(()).unwrap();
    });
    let error = info(&Client::new(&socket), AMPLE).await.unwrap_err();
    assert!(matches!(error.failure, Failure::Broken { .. }), "{error}");
    told.try_recv().unwrap();
}

#[tokio::test]
async fn a_socket_that_never_answers_is_left_at_the_deadline() {
    let (_dir, socket) = socket();
    // The socket is bound and never accepts: the kernel lets the client connect.
    let _listener = UnixListener::bind(&socket).unwrap();
    let error = info(&Client::new(&socket), SHORT).await.unwrap_err();
    assert_eq!(error.failure, Failure::Late { timeout: SHORT });
    let expected = format!("GetPluginInfo on {}: no answer within 200ms", socket.display());
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn a_restarted_plugin_is_found_again_by_the_same_client() {
    let (_dir, socket) = socket();
    let plugin = Script::default().serve(&socket);
    let client = Client::new(&socket);
    info(&client, AMPLE).await.unwrap();

    drop(plugin);
    let error = info(&client, AMPLE).await.unwrap_err();
    assert_eq!(error.code(), None, "{error}");

    let mut script = Script::default();
    script.info.name = "reborn.csi".into();
    let _plugin = script.serve(&socket);
    let give_up = Instant::now() + AMPLE;
    let name = loop {
        match info(&client, AMPLE).await {
            Ok(name) => break name,
            // The client may still have to notice that the old connection is broken.
            Err(error) => assert!(Instant::now() < give_up, "still {error}"),
        }
    };
    assert_eq!(name, "reborn.csi");
}

#[tokio::test]
async fn answers_may_be_large_but_not_without_bound() {
    for (megabytes, fits) in [(32, true), (65, false)] {
        let (_dir, socket) = socket();
        let mut script = Script::default();
        let padding = "x".repeat(megabytes * 1024 * 1024);
        script.info.manifest = [("padding".to_owned(), padding)].into();
        let _plugin = script.serve(&socket);
        let result = info(&Client::new(&socket), AMPLE).await;
        match result {
            Ok(_) => assert!(fits, "{megabytes} MiB"),
            Err(error) => {
                assert!(!fits, "{megabytes} MiB: {error}");
                // The plugin lives: this is no crash.
                assert!(matches!(error.failure, Failure::TooLarge { .. }), "{error}");
                assert!(error.to_string().contains("its answer is too large"), "{error}");
            }
        }
    }
}
