//! As an ordinary user: in a user namespace with mounts of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use berth_csi::{Client, v1};
use berth_csi_dev::backend::{Backend, VolumeMeta};
use berth_csi_dev::capability::AccessMode::SingleNodeWriter;
use berth_harness::dirs::Dir;
use berth_harness::process::Program;
use berth_harness::{root, wait};
use nix::mount::{MsFlags, mount};

use crate::request::{Context, publish, unpublish, volume_context};
use crate::world::{TIMEOUT, binary};

const UNSHARE: [&str; 3] = ["--user", "--map-root-user", "--mount"];

#[tokio::test]
async fn mounts_in_a_user_namespace() {
    if !root::or_skip("mounts in a user namespace") {
        return;
    }
    let mut possible = Command::new("unshare");
    possible.args(UNSHARE).arg("true").stderr(Stdio::null());
    if !possible.status().is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED (needs user namespaces): mounts in a user namespace");
        return;
    }
    let dir = Dir::new("userns");
    let socket = dir.join("csi.sock");
    // A file system with flags that a user namespace must not drop.
    let (fs, flags) =
        (dir.join("fs"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOATIME);
    fs::create_dir(&fs).unwrap();
    mount(Some("none"), &fs, Some("tmpfs"), flags, None::<&str>).unwrap();
    let backend = Backend::open(fs.join("backend")).unwrap();
    let (volume_id, volume_context) = ("v".to_owned(), volume_context());
    backend.provision(&VolumeMeta { volume_id, volume_context, ..VolumeMeta::default() }).unwrap();
    let daemon = Program::new("n1", "unshare", dir.join("output.log"))
        .args(UNSHARE)
        .arg(binary())
        .args(["serve", "--node-id", "n1", "--no-attach", "--no-stage"])
        .args(["--endpoint", &format!("unix://{}", socket.display())])
        .args([Path::new("--backend"), &fs.join("backend")])
        .args([Path::new("--log"), &dir.join("calls.log")])
        .start();
    let client = Client::new(&*socket);
    wait::until("the instance answers", TIMEOUT, async || {
        client.call(v1::ProbeRequest {}, Duration::from_secs(1)).await.map_err(|_| daemon.log())
    })
    .await;

    let target = dir.join("t").to_str().unwrap().to_owned();
    // Where the mount is seen: its process's root.
    let seen_from_here = PathBuf::from(format!("/proc/{}/root{target}", daemon.pid()));
    let mut request = publish("v", ("", &target), SingleNodeWriter, &Context::new());
    client.call(request.clone(), TIMEOUT).await.unwrap();
    fs::write(seen_from_here.join("file"), "x").unwrap();
    client.call(unpublish("v", &target), TIMEOUT).await.unwrap();

    request.readonly = true;
    client.call(request, TIMEOUT).await.unwrap();
    assert_eq!(fs::read_to_string(seen_from_here.join("file")).unwrap(), "x");
    fs::write(seen_from_here.join("file"), "y").unwrap_err();
    client.call(unpublish("v", &target), TIMEOUT).await.unwrap();
    assert!(!Path::new(&target).exists());
}
