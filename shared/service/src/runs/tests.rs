//! Runs and guards, with real files and locks.

use std::os::fd::AsRawFd as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use berth_contract::message::agent::Guard;
use berth_domain::alloc::AllocState;

use super::*;

fn run(alloc: &str) -> Run {
    let (namespace, alloc) = (Namespace::default(), AllocId::new(alloc).unwrap());
    Run { namespace, alloc, pid: std::process::id(), mark: String::new(), ended: None, guard: None }
}

fn observe(runs: &Runs, alloc: &str) -> Option<ObservedRun> {
    runs.find(&Namespace::default(), &AllocId::new(alloc).unwrap()).unwrap()
}

/// Waits until the run looks like this. A process that a parallel test starts has every open file
/// of this test between its fork and its exec, and therefore also its locks.
fn seen_once(runs: &Runs, alloc: &str, is_so: impl Fn(&ObservedRun) -> bool) -> ObservedRun {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let observed = observe(runs, alloc).unwrap();
        if is_so(&observed) {
            return observed;
        }
        assert!(Instant::now() < deadline, "{observed:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_longest_ids_have_files_and_each_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let runs = Runs::below(dir.path());
    let ids = ["x".repeat(256), format!("{}y", "x".repeat(255)), "ü/".repeat(85)];
    let names: Vec<String> = ids
        .iter()
        .map(|id| file_name(&Namespace::default(), &AllocId::new(id.as_str()).unwrap()))
        .collect();
    assert!(names.iter().all(|name| name.len() <= NAME_BYTES_MAX), "{names:?}");
    assert!(names[0] != names[1] && names[1] != names[2], "{names:?}");
    runs.heal().unwrap();
    assert!(ids.iter().all(|id| observe(&runs, id).is_none()), "they can be looked for");
    let announced = ids.map(|id| runs.announce(run(&id)).unwrap());
    assert_eq!(runs.list().unwrap().0.len(), announced.len());
}

#[test]
fn a_run_is_over_when_runner_and_command_are_gone_or_when_it_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let runs = Runs::below(dir.path());
    runs.heal().unwrap();
    assert!(observe(&runs, "a/b").is_none());
    let announced = runs.announce(run("a/b")).unwrap();
    assert!(!observe(&runs, "a/b").unwrap().is_over());
    assert!(matches!(runs.announce(run("a/b")), Err(AnnounceError::Taken)));
    assert!(!observe(&runs, "a/b").unwrap().is_over(), "who came too late changed nothing");

    // The runner is gone, and a process of the command is not.
    let held = announced.held().unwrap().0.try_clone().unwrap();
    let mut command = Command::new("cat").stdin(Stdio::piped()).stdout(held).spawn().unwrap();
    drop(announced);
    let without_runner = seen_once(&runs, "a/b", |observed| !observed.has_runner);
    assert!(without_runner.is_held && !without_runner.is_over(), "{without_runner:?}");
    drop(command.stdin.take());
    command.wait().unwrap();
    let over = seen_once(&runs, "a/b", |observed| !observed.is_held);
    assert!(over.is_over(), "{over:?}");
    assert_eq!(runs.list().unwrap().0.len(), 1);
    runs.forget(&over.name, &over.held_name).unwrap();
    assert_eq!(fs::read_dir(runs.dir()).unwrap().count(), 0);

    let mut announced = runs.announce(run("a/b")).unwrap();
    let ended = Ended { state: AllocState::Complete, note: "exit code 0".to_owned() };
    announced.ended(ended.clone()).unwrap();
    let over = observe(&runs, "a/b").unwrap();
    assert!(over.is_over() && over.has_runner, "{over:?}");
    assert_eq!(over.run.ended, Some(ended));
    announced.forget_ended().unwrap();
    assert_eq!(fs::read_dir(runs.dir()).unwrap().count(), 0);
}

/// Agents of two systems on one host: neither takes the other's command for its own.
#[test]
fn runs_of_one_name_in_two_directories_have_marks_of_their_own() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [one, other] = dirs.each_ref().map(|dir| {
        let runs = Runs::below(dir.path());
        runs.heal().unwrap();
        let announced = runs.announce(run("a")).unwrap();
        let (_, path) = announced.held().unwrap();
        (observe(&runs, "a").unwrap(), path, announced)
    });
    assert_eq!(one.0.name, other.0.name);
    assert!(is_inherited(&one.0.held_name, &one.1));
    assert!(!is_inherited(&one.0.held_name, &other.1));
    // The file of an older version has no mark.
    assert!(is_inherited(&held_name("default.a", &run("a")), Path::new("/r/default.a.held")));
}

#[test]
fn what_cannot_be_watched_is_not_begun() {
    let dir = tempfile::tempdir().unwrap();
    let runs = Runs::below(dir.path());
    assert!(matches!(runs.announce(run("a")), Err(AnnounceError::Write { .. })));
    runs.heal().unwrap();
    fs::write(runs.dir().join("x.json"), "{").unwrap();
    let (listed, unread) = runs.list().unwrap();
    assert!(listed.is_empty() && unread.len() == 1, "{listed:?} {unread:?}");
}

#[test]
fn a_process_is_known_by_its_mounts() {
    // Another mount's path is not valid text, and is skipped.
    let mounts = b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
        40 22 8:1 /\xff /mnt/\xff\xfe rw - ext4 /dev/sda1 rw\n\
        41 22 8:1 /var/lib/berth/runs/default.a=2Fb.held /x rw - ext4 /dev/sda1 rw\n\
        42 22 8:1 /var/lib/berth/runs/default.c.held//deleted /x rw - ext4 /dev/sda1 rw\n";
    assert!(is_of("default.c", mounts));
    assert!(is_of("default.a=2Fb", mounts));
    assert!(!is_of("default.b", mounts) && !is_of("b", mounts));
    assert!(is_inherited("default.b", Path::new("/r/default.b.held")));
    assert!(!is_inherited("b", Path::new("/r/default.b.held")));
}

fn guard_of(lock: &str) -> RunGuard {
    let guard = Guard { lock: Some(lock.to_owned()), ..Guard::default() };
    RunGuard { guard, boot_id: berth_host::read_boot_id().unwrap(), file: None }
}

fn process_guard() -> RunGuard {
    let pid = std::process::id();
    let start = berth_host::process::read_stat(pid).unwrap().unwrap().starttime;
    let guard = Guard { pid: Some(pid), start: Some(start), ..Guard::default() };
    RunGuard { guard, boot_id: berth_host::read_boot_id().unwrap(), file: None }
}

fn set(runs: &Runs, alloc: &str, guard: &RunGuard) -> io::Result<GuardSet> {
    runs.set_guard(&Namespace::default(), &AllocId::new(alloc).unwrap(), guard.clone())
}

/// Makes a file that this test has locked.
fn lock_in(dir: &Path, name: &str) -> File {
    let file = File::create_new(dir.join(name)).unwrap();
    file.try_lock().unwrap();
    file
}

#[test]
fn a_guard_is_known_while_either_of_its_two_directories_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let runs = Runs::below(dir.path());
    assert!(matches!(set(&runs, "a", &process_guard()), Ok(GuardSet::Done)));
    for gone in ["runs", "known-runs"] {
        fs::remove_dir_all(dir.path().join(gone)).unwrap();
        let observed = observe(&runs, "a").unwrap();
        assert!(observed.has_runner && !observed.is_over(), "{observed:?}");
        assert_eq!(runs.list().unwrap().0.len(), 1);
        runs.heal().unwrap();
        assert!(dir.path().join(gone).is_dir());
    }
    fs::remove_file(dir.path().join("runs/default.a.json")).unwrap();
    assert!(observe(&runs, "a").unwrap().is_lost);
    runs.heal().unwrap();
    assert!(!observe(&runs, "a").unwrap().is_lost);
    let over = observe(&runs, "a").unwrap();
    runs.forget(&over.name, &over.held_name).unwrap();
    runs.heal().unwrap();
    assert!(observe(&runs, "a").is_none());
    for dir in ["runs", "known-runs"].map(|name| dir.path().join(name)) {
        assert_eq!(fs::read_dir(dir).unwrap().count(), 0);
    }
}

#[test]
fn that_nothing_runs_is_not_known_when_both_directories_are_lost() {
    let dir = tempfile::tempdir().unwrap();
    let runs = Runs::below(dir.path());
    // No run has been seen yet.
    runs.heal().unwrap();
    fs::remove_dir_all(runs.dir()).unwrap();
    runs.heal().unwrap();
    let guard = process_guard();
    assert!(matches!(set(&runs, "a", &guard).unwrap(), GuardSet::Done));
    for lost in ["runs", "known-runs"] {
        fs::remove_dir_all(dir.path().join(lost)).unwrap();
    }
    // This holds for the next process of the agent, too.
    for runs in [runs, Runs::below(dir.path())] {
        for refused in [
            runs.heal().map(drop),
            runs.find(&Namespace::default(), &AllocId::new("a").unwrap()).map(drop),
            set(&runs, "b", &guard).map(drop),
        ] {
            assert!(refused.unwrap_err().to_string().starts_with("both records"));
        }
        assert!(!runs.dir().exists());
    }
    // An operator confirms that no guarded process runs.
    fs::create_dir(dir.path().join("runs")).unwrap();
    let runs = Runs::below(dir.path());
    runs.heal().unwrap();
    assert!(observe(&runs, "a").is_none());
    assert!(matches!(set(&runs, "b", &guard).unwrap(), GuardSet::Done));
}

#[test]
fn that_nothing_runs_is_not_known_while_while_the_directory_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let runs = Runs::below(dir.path());
    let find = || runs.find(&Namespace::default(), &AllocId::new("a").unwrap());
    assert_eq!(find().unwrap_err().kind(), ErrorKind::NotFound);
    fs::write(dir.path().join("runs"), "a file").unwrap();
    assert_eq!(find().unwrap_err().kind(), ErrorKind::NotADirectory);
    assert_eq!(runs.heal().unwrap_err().kind(), ErrorKind::NotADirectory);
    assert_eq!(runs.list().unwrap().1.len(), 1);
    fs::remove_file(dir.path().join("runs")).unwrap();
    runs.heal().unwrap();
    assert!(find().unwrap().is_none());
}

#[test]
fn a_lock_lives_while_it_is_held_whatever_becomes_of_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let runs = Runs::below(dir.path());
    runs.heal().unwrap();
    for (alloc, is_restarted) in [("a", false), ("b", true)] {
        let lock = lock_in(runs.dir(), "x.lock");
        assert!(matches!(set(&runs, alloc, &guard_of("x.lock")), Ok(GuardSet::Done)));
        fs::remove_file(runs.dir().join("x.lock")).unwrap();
        // Another file of the same name is another lock.
        fs::write(runs.dir().join("x.lock"), "").unwrap();
        let runs = if is_restarted { Runs::below(dir.path()) } else { runs.clone() };
        assert!(observe(&runs, alloc).unwrap().has_runner);
        assert!(matches!(set(&runs, alloc, &guard_of("x.lock")), Ok(GuardSet::Done)));
        drop(lock);
        let over = seen_once(&runs, alloc, ObservedRun::is_over);
        assert!(matches!(set(&runs, alloc, &guard_of("x.lock")), Ok(GuardSet::Absent)));
        runs.forget(&over.name, &over.held_name).unwrap();
    }
}

/// An earlier version did not write which file was locked. The agent's copy has it, if the agent
/// saw the file.
#[test]
fn a_lock_of_an_earlier_version_that_is_gone_unseen_is_unknown() {
    let dir = tempfile::tempdir().unwrap();
    let runs = Runs::below(dir.path());
    runs.heal().unwrap();
    let lock = lock_in(runs.dir(), "x.lock");
    let write = |alloc| {
        let run = Run { guard: Some(guard_of("x.lock")), ..run(alloc) };
        let text = serde_json::to_string(&run).unwrap();
        fs::write(runs.dir().join(format!("default.{alloc}.json")), text).unwrap();
    };
    write("seen");
    runs.heal().unwrap();
    fs::remove_file(runs.dir().join("x.lock")).unwrap();
    write("unseen");
    assert!(observe(&runs, "seen").unwrap().has_runner);
    let unseen = observe(&runs, "unseen").unwrap();
    assert!(unseen.unknown.is_some() && !unseen.is_over(), "{unseen:?}");
    assert!(set(&runs, "unseen", &guard_of("x.lock")).is_err());
    drop(lock);
}

#[test]
fn a_command_whose_files_are_gone_is_left_to_its_processes() {
    let dir = tempfile::tempdir().unwrap();
    let runs = Runs::below(dir.path());
    runs.heal().unwrap();
    let announced = runs.announce(run("a")).unwrap();
    runs.heal().unwrap();
    let inherited = format!("/proc/self/fd/{}", announced.held().unwrap().0.as_raw_fd());
    fs::remove_dir_all(runs.dir()).unwrap();
    let lost = observe(&runs, "a").unwrap();
    assert!(lost.is_lost && !lost.has_runner && !lost.is_held, "{lost:?}");
    assert!(is_inherited(&lost.held_name, &fs::read_link(inherited).unwrap()));
    runs.heal().unwrap();
    assert!(observe(&runs, "a").unwrap().is_lost, "its locks cannot be made again");
}
