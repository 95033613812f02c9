//! Volumes that are created, changed, copied and deleted at their storage, over a running system.

use std::fs;

use berth_harness::{root, wait};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::berth::Ran;
use crate::system::{SOON, System, signal};

const CLASS: &str = "id = 'fast'\nplugin = 'dev.berth'\nmin_size = '1MiB'\nmax_size = '1GiB'\n\
    default_size = '8MiB'\n[[capability]]\naccess = 'single-node-writer'\n\
    attachment = 'file-system'\n[secrets]\n'create/password' = 'hunter2'\n";

/// A system with the class `fast`.
async fn start() -> System {
    let system = System::start(1).await;
    let ran = system.run(&["class", "create", "-"], CLASS);
    assert_eq!((ran.code, ran.out.as_str()), (0, "class fast is defined\n"), "{ran:?}");
    system
}

fn plant(system: &System, faults: &Value) {
    fs::write(system.state("faults.json"), faults.to_string()).unwrap();
}

/// Runs a command that must succeed.
fn done(system: &System, args: &[&str]) -> Ran {
    let ran = system.berth(args);
    assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
    ran
}

/// The printed text with single spaces, because columns are as wide as other rows need.
fn words(ran: &Ran) -> String {
    ran.out.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn read(system: &System, args: &[&str]) -> Value {
    serde_json::from_str(&system.berth(&[args, &["--json"]].concat()).out).unwrap()
}

/// Waits until `berth why` gives this cause.
async fn cause_becomes(system: &System, volume: &str, cause: &str) -> Value {
    wait::until(&format!("why {volume} says {cause}"), SOON, async || {
        let ran = system.berth(&["why", &format!("volume/{volume}"), "--json"]);
        let answer: Value = serde_json::from_str(&ran.out).unwrap_or_default();
        let diagnosis = answer["diagnoses"][0].clone();
        if diagnosis["cause"] == cause { Ok(diagnosis) } else { Err(format!("{ran:?}")) }
    })
    .await
}

#[tokio::test]
async fn a_volume_is_created_grown_and_deleted() {
    if !root::or_skip("mounts volumes") {
        return;
    }
    let system = start().await;
    let create = ["volume", "create", "data", "--class", "fast", "--size", "10MiB"];
    let ran = done(&system, &create);
    assert!(ran.out.starts_with("volume default/data is created: 10MiB at plugin"), "{ran:?}");
    assert!(done(&system, &create).out.contains("was created so already: 10MiB"));
    let second_create = system.berth(&["volume", "create", "data", "--class", "fast"]);
    assert_eq!(second_create.code, 5, "{second_create:?}");
    let status = words(&done(&system, &["volume", "status", "data"]));
    for line in ["stage ready", "class fast", "reclaim delete", "size 10MiB", "secrets given"] {
        assert!(status.contains(line), "{line}: {status}");
    }
    let row = words(&done(&system, &["volume", "list"]));
    assert!(row.contains("data dev.berth fast 10MiB ready healthy"), "{row}");

    // The volume grows while it is in use.
    let run = ["run", "--node", "n1", "--alloc", "a", "--volume", "data", "--", "sleep", "600"];
    let run = system.spawn(&run);
    system.claims_become("data", &["taken a"]).await;
    let ran = done(&system, &["volume", "expand", "data", "20MiB"]);
    assert_eq!(ran.out, "volume default/data has 20MiB now\n", "{ran:?}");
    assert!(ran.err.contains("data: expanding to 20MiB"), "{ran:?}");
    let smaller = system.berth(&["volume", "expand", "data", "10MiB"]);
    assert_eq!(smaller.code, 1, "{smaller:?}");
    let ran = done(&system, &["volume", "modify", "data", "iops=1"]);
    assert_eq!(ran.out, "volume default/data is changed\n", "{ran:?}");
    let refused_delete = system.berth(&["volume", "delete", "data", "--yes"]);
    assert!(
        refused_delete.code == 5 && refused_delete.err.contains("BERTH0110"),
        "{refused_delete:?}"
    );
    signal(run.id(), Signal::SIGTERM);
    run.wait_with_output().unwrap();

    let unconfirmed = system.berth(&["volume", "delete", "data"]);
    assert_eq!(unconfirmed.code, 2, "{unconfirmed:?}");
    let class = system.berth(&["class", "delete", "fast"]);
    assert!(class.code == 5 && class.err.contains("default/data"), "{class:?}");
    let ran = done(&system, &["volume", "delete", "data", "--yes"]);
    assert_eq!(ran.out, "volume default/data is deleted at its storage\n", "{ran:?}");
    assert_eq!(system.berth(&["volume", "delete", "data", "--yes"]).code, 3);
    done(&system, &["class", "delete", "fast"]);
    system.stop().await;
}

#[tokio::test]
async fn a_refused_change_is_printed_with_the_plugins_words_and_what_to_do() {
    if !root::or_skip("runs a system") {
        return;
    }
    let system = start().await;
    // A creation that the plugin refuses for good.
    let wrong = ["volume", "create", "no", "--plugin", "dev.berth", "--param", "backing=tape"];
    let ran = system.berth(&wrong);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{ran:?}");
    for part in ["volume no was not created", "INVALID_ARGUMENT", "`berth volume delete no`"] {
        assert!(ran.err.contains(part), "{part}: {ran:?}");
    }
    let diagnosis = cause_becomes(&system, "no", "change-refused").await;
    assert!(diagnosis["evidence"][0].as_str().unwrap().contains("INVALID_ARGUMENT"), "{diagnosis}");
    // Nothing is at the storage, so no confirmation is needed.
    let ran = done(&system, &["volume", "delete", "no"]);
    assert!(ran.out.contains("nothing was at its storage"), "{ran:?}");
    let unknown = system.berth(&["volume", "create", "x", "--class", "slow"]);
    assert!(unknown.code == 3 && unknown.err.contains("use one of: fast"), "{unknown:?}");
    let large = system.berth(&["volume", "create", "x", "--class", "fast", "--size", "2GiB"]);
    assert!(large.code == 1 && large.err.contains("BERTH0133"), "{large:?}");

    // A creation that is retried visibly, whether anybody waits or not.
    plant(&system, &json!([{"rpc": "CreateVolume", "code": "UNAVAILABLE"}]));
    let create = ["volume", "create", "late", "--class", "fast", "--timeout", "2s"];
    let ran = system.berth(&create);
    assert_eq!((ran.code, ran.out.as_str()), (4, ""), "{ran:?}");
    for part in ["late: creating; try 1 failed: ", "UNAVAILABLE", "`berth why late`"] {
        assert!(ran.err.contains(part), "{part}: {ran:?}");
    }
    let diagnosis = cause_becomes(&system, "late", "plugin-retries").await;
    assert_eq!(diagnosis["state"], "creating");
    let status = words(&done(&system, &["volume", "status", "late"]));
    assert!(status.contains("operation creating for"), "{status}");
    assert!(status.contains("last error controller.create: "), "{status}");
    let finding = wait::until("the doctor finds it", SOON, async || {
        let report: Value =
            serde_json::from_str(&system.berth(&["doctor", "--json"]).out).unwrap_or_default();
        let checks = report["checks"].as_array().cloned().unwrap_or_default();
        let check = checks.into_iter().find(|check| check["check"] == "storage");
        let finding = check.map(|check| check["findings"][0].clone()).unwrap_or_default();
        if finding.is_object() { Ok(finding) } else { Err(report.to_string()) }
    });
    assert_eq!(finding.await["where"], "volume default/late");
    // A second caller joins the wait, and the creation goes on.
    let second_create = system.spawn(&["volume", "create", "late", "--class", "fast"]);
    plant(&system, &json!([]));
    let second_create: Ran = second_create.wait_with_output().unwrap().into();
    assert_eq!(second_create.code, 0, "{second_create:?}");
    done(&system, &["volume", "delete", "late", "--yes"]);

    // A creation that nobody waits for.
    let ran = done(&system, &["volume", "create", "bg", "--class", "fast", "--no-wait"]);
    assert!(ran.err.contains("berth volume status bg --watch"), "{ran:?}");
    cause_becomes(&system, "bg", "nothing").await;
    let ran = done(&system, &["volume", "delete", "bg", "--yes", "--no-wait"]);
    assert!(ran.out.contains("is being deleted"), "{ran:?}");
    wait::until("it is gone", SOON, async || {
        let ran = system.berth(&["volume", "status", "bg"]);
        if ran.code == 3 { Ok(()) } else { Err(format!("{ran:?}")) }
    })
    .await;
    system.stop().await;
}

#[tokio::test]
async fn snapshots_are_cut_restored_and_deleted() {
    if !root::or_skip("mounts volumes") {
        return;
    }
    let system = System::start(1).await;
    // The class has no secrets, so that no snapshot needs the secrets of a deleted volume.
    let class = CLASS.split("[secrets]").next().unwrap_or_default();
    assert_eq!(system.run(&["class", "create", "-"], class).code, 0);
    for volume in ["a", "b"] {
        done(&system, &["volume", "create", volume, "--class", "fast"]);
    }
    let write = ["run", "--node", "n1", "--volume", "a", "--", "sh", "-c"];
    done(&system, &[&write[..], &["echo old > $BERTH_VOLUME_A/f"]].concat());
    let cut = ["snapshot", "create", "a", "monday", "--param", "ready-after-ms=300"];
    let ran = done(&system, &cut);
    assert_eq!(ran.out, "snapshot a@monday is ready: 8MiB\n", "{ran:?}");
    done(&system, &[&write[..], &["echo new > $BERTH_VOLUME_A/f"]].concat());
    let ran = done(&system, &["snapshot", "restore", "a@monday", "old"]);
    assert!(ran.out.contains("volume default/old is created: 8MiB"), "{ran:?}");
    let read_file = ["run", "--node", "n1", "--volume", "old", "--", "sh", "-c"];
    let ran = done(&system, &[&read_file[..], &["cat $BERTH_VOLUME_OLD/f"]].concat());
    assert_eq!(ran.out, "old\n");
    done(&system, &["volume", "create", "copy", "--from-volume", "a"]);
    let status = words(&done(&system, &["volume", "status", "old"]));
    assert!(status.contains("copy of a@monday"), "{status}");

    let ran = system.berth(&["snapshot", "create", "a", "no", "--param", "x=1"]);
    assert!(ran.code == 1 && ran.err.contains("INVALID_ARGUMENT"), "{ran:?}");
    assert!(ran.err.contains("`berth snapshot delete a@no`"), "{ran:?}");
    done(&system, &["snapshot", "delete", "a@no"]);

    let ran = done(&system, &["snapshot", "group", "create", "all", "b", "a"]);
    assert_eq!(ran.out, "snapshots b@all, a@all are ready: 16MiB\n", "{ran:?}");
    let groups = words(&done(&system, &["snapshot", "group", "list"]));
    assert!(groups.contains("all ready") && groups.contains("a, b"), "{groups}");
    let single = system.berth(&["snapshot", "delete", "b@all", "--yes"]);
    assert_eq!(single.code, 5, "{single:?}");
    assert!(single.err.contains("`berth snapshot group delete b@all`"), "{single:?}");
    let unconfirmed = system.berth(&["snapshot", "group", "delete", "b@all"]);
    assert_eq!(unconfirmed.code, 2, "{unconfirmed:?}");
    let ran = done(&system, &["snapshot", "group", "delete", "b@all", "--yes"]);
    assert_eq!(ran.out, "snapshots a@all, b@all are deleted at the storage\n", "{ran:?}");

    // A snapshot outlives its volume.
    done(&system, &["volume", "delete", "a", "--yes"]);
    let list = read(&system, &["snapshot", "list", "a"]);
    assert_eq!(list["snapshots"][0]["state"], "ready", "{list}");
    done(&system, &["snapshot", "restore", "a@monday", "again", "--class", "fast"]);
    done(&system, &["snapshot", "delete", "a@monday", "--yes"]);
    assert_eq!(system.berth(&["snapshot", "delete", "a@monday", "--yes"]).code, 3);
    system.stop().await;
}

#[tokio::test]
async fn external_volumes_and_snapshots_are_listed_and_adopted() {
    if !root::or_skip("runs a system") {
        return;
    }
    let system = start().await;
    done(&system, &["volume", "create", "data", "--class", "fast"]);
    done(&system, &["snapshot", "create", "data", "monday"]);
    let listed = read(&system, &["volume", "list", "--external", "dev.berth"]);
    let external_id = listed["volumes"][0]["external_id"].as_str().unwrap().to_owned();
    assert_eq!(listed["volumes"][0]["registration"], "known", "{listed}");
    let refused_adopt = system.berth(&["volume", "adopt", "dev.berth", &external_id]);
    assert!(
        refused_adopt.code == 5 && refused_adopt.err.contains("as default/data"),
        "{refused_adopt:?}"
    );
    // Its data stays at the storage, and it can be registered again.
    done(&system, &["volume", "deregister", "data"]);
    let table = done(&system, &["volume", "list", "--external", "dev.berth"]).out;
    assert!(table.contains("not registered") && table.contains("berth volume adopt"), "{table}");
    let ran = done(&system, &["volume", "adopt", "dev.berth", &external_id, "--id", "mine"]);
    assert_eq!(ran.out, "volume default/mine registered\n", "{ran:?}");
    let mine = read(&system, &["volume", "status", "mine"]);
    assert_eq!(
        (&mine["capacity_bytes"], &mine["storage"]["stage"]),
        (&json!(8 << 20), &json!("ready"))
    );
    let unknown_volume = system.berth(&["volume", "adopt", "dev.berth", "nothing"]);
    assert_eq!(unknown_volume.code, 3, "{unknown_volume:?}");

    let listed = read(&system, &["snapshot", "list", "--external", "dev.berth"]);
    let snapshot = listed["snapshots"][0]["external_id"].as_str().unwrap().to_owned();
    let refused_adopt = system.berth(&["snapshot", "adopt", "dev.berth", &snapshot, "mine@monday"]);
    assert!(
        refused_adopt.code == 5 && refused_adopt.err.contains("BERTH0128"),
        "{refused_adopt:?}"
    );
    let capacity = done(&system, &["plugin", "capacity", "--class", "fast"]).out;
    assert!(capacity.starts_with("plugin dev.berth\n") && capacity.contains("iB"), "{capacity}");
    let both = done(&system, &["plugin", "capacity", "dev.berth", "--class", "fast"]).out;
    assert!(both.starts_with("plugin dev.berth\n"), "{both}");
    let unknown_plugin = system.berth(&["plugin", "capacity", "no.such", "--class", "fast"]);
    assert!(
        unknown_plugin.code != 0
            && unknown_plugin.err.contains("class fast is of plugin dev.berth"),
        "{unknown_plugin:?}"
    );
    let ran = done(&system, &["volume", "delete", "mine", "--yes"]);
    assert_eq!(ran.out, "volume default/mine is deleted at its storage\n", "{ran:?}");
    system.stop().await;
}

#[tokio::test]
async fn a_run_has_a_volume_of_its_own_that_is_gone_after_it() {
    if !root::or_skip("mounts volumes") {
        return;
    }
    let system = start().await;
    let place = system.dir.join("scratch");
    fs::create_dir(&place).unwrap();
    let volume = format!("new:8MiB:{}", place.display());
    let look = format!("touch $BERTH_VOLUME_NEW_0/f && ls {}", place.display());
    let run = ["run", "--node", "n1", "--alloc", "r", "--volume", &volume, "--", "sh", "-c", &look];
    let ran = done(&system, &run);
    assert_eq!(ran.out, "f\n", "{ran:?}");
    let position_of = |what: &str| ran.err.find(what);
    let steps = [
        position_of("created r-new-0: 8MiB for this run"),
        position_of("mounted r-new-0"),
        position_of("r-new-0: free"),
        position_of("r-new-0: deleted"),
    ];
    assert!(steps.iter().all(Option::is_some) && steps.is_sorted(), "{steps:?}: {ran:?}");
    assert_eq!(read(&system, &["volume", "list"])["volumes"], json!([]));

    // A run whose volume is refused leaves nothing, and its command does not start.
    plant(&system, &json!([{"rpc": "CreateVolume", "code": "INVALID_ARGUMENT"}]));
    let mark = system.dir.join("started");
    let touch = ["--", "touch", mark.to_str().unwrap()];
    let two = ["run", "--node", "n1", "--volume", "new:8MiB", "--volume", "new:fast:9MiB"];
    let ran = system.berth(&[&two[..], &touch].concat());
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.err.contains("was not created") && !mark.exists(), "{ran:?}");
    assert_eq!(read(&system, &["volume", "list"])["volumes"], json!([]));
    assert_eq!(read(&system, &["alloc", "list", "--all"])["allocs"].as_array().unwrap().len(), 1);
    plant(&system, &json!([]));

    // When `berth run` is killed, the volumewatcher deletes the volume.
    let killed =
        ["run", "--node", "n1", "--alloc", "k", "--volume", "new:8MiB", "--", "sleep", "600"];
    let mut killed = system.spawn(&killed);
    system.claims_become("k-new-0", &["taken k"]).await;
    killed.kill().unwrap();
    killed.wait().unwrap();
    wait::until("its volume is gone", SOON, async || {
        let ran = system.berth(&["volume", "status", "k-new-0"]);
        if ran.code == 3 { Ok(()) } else { Err(format!("{ran:?}")) }
    })
    .await;

    // The namespace has several classes, so one must be named.
    let plain = CLASS.replace("'fast'", "'plain'");
    assert_eq!(system.run(&["class", "create", "-"], &plain).code, 0);
    let run = ["run", "--node", "n1", "--volume", "new:8MiB"];
    let ran = system.berth(&[&run[..], &["--", "true"]].concat());
    assert!(ran.code == 125 && ran.err.contains("--class: fast, plain"), "{ran:?}");
    done(&system, &[&run[..], &["--class", "plain", "--", "true"]].concat());
    system.stop().await;
}
