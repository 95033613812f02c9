//! `berth dev`: the whole system on one machine, as child processes.
//!
//! **Owns** one directory, and the processes it starts there. **Promises** that they are the real
//! programs, configured like those of a fleet; that a dead process is restarted; that no process
//! outlives this one; and that a second `berth dev` in the same directory continues with its data.
//!
//! **Never** touches what it did not start, and listens on loopback only.

mod config;
mod health;
mod identities;
mod layout;
mod log_tail;
mod namespace;
mod nats;
mod own_plugin;
mod program;
mod supervisor;
mod talk;

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use berth_service::Shutdown;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::args::Dev;
use crate::exit;
use crate::failure::Failure;
use crate::output::print_note;
use config::Settings;
use health::BusAddress;
use identities::Identities;
use layout::Layout;
use log_tail::LogTail;
use own_plugin::OwnPlugin;
use program::Binaries;
use supervisor::{Ended, Supervisor};

/// How long all processes together may take to become healthy.
const START_MAX: Duration = Duration::from_secs(60);
/// The exit code of Berth's programs when their configuration has faults (`EX_USAGE`).
const BAD_CONFIG: i32 = 64;
/// Lines of a process's log that are shown when the start fails.
const TAIL_LINES: usize = 12;

/// Runs the system until a signal ends it.
pub async fn dev(args: &Dev, insecure: bool) -> Result<u8, Failure> {
    namespace::enter_unless_root()?;
    let binaries = Binaries::beside_our_own()?;
    let nodes: Vec<String> = (1..=args.nodes).map(|number| format!("n{number}")).collect();
    let own = OwnPlugin::read_all(&args.plugins)?;
    let (layout, _claimed) = Layout::make(&args.dir, &nodes)?;
    let nats = nats::find()?;
    let port = nats::choose_port(&layout, rand::random())?;
    let bind_below = config::find_dirs(&args.bind_below)?;
    let settings = Settings { port, call_timeout: args.volume_timeout, bind_below };
    if let Some(file) = &args.ready_file {
        forget(file)?;
    }
    let identities = Identities::prepare(&layout, insecure)?;
    config::write(&layout, &nodes, &own, &settings, &identities)?;
    let person = identities.of_person()?;
    let env = talk::env_file(&settings.url(), person.as_ref(), binaries.dir());
    fs::write(layout.env(), env)
        .map_err(|error| Failure::local(error, "name a directory that you may write"))?;

    let shutdown = Shutdown::on_signals()
        .map_err(|error| Failure::local(error, "look at the limits of this shell: ulimit -a"))?;
    let mut system =
        Supervisor::start(program::all_programs(&nats, &binaries, &layout, &nodes, &own));
    let bus = BusAddress { url: settings.url(), proof: person };
    let outcome = tokio::select! {
        failed = live(&mut system, args, &layout, &nodes, &own, &bus) => failed,
        () = shutdown.requested() => Ok(()),
    };
    print_note("stopping");
    system.stop().await;
    if let Some(file) = &args.ready_file {
        forget(file)?;
    }
    outcome?;
    print_note(talk::what_stays(&layout));
    Ok(exit::OK)
}

/// Waits until everything is healthy and prints that. Then prints each end and restart of a
/// process. Returns only when the system does not become healthy.
async fn live(
    system: &mut Supervisor,
    args: &Dev,
    layout: &Layout,
    nodes: &[String],
    own: &[OwnPlugin],
    bus: &BusAddress,
) -> Result<(), Failure> {
    let started = Instant::now();
    until_healthy(system, layout, bus, nodes.len()).await?;
    print_note(talk::summary(layout, nodes, &bus.url, started.elapsed()));
    for plugin in own {
        print_note(talk::own_plugin(plugin));
    }
    if let Some(file) = &args.ready_file {
        write_whole(file, &format!("{}\n", bus.url))?;
    }
    while let Some(ended) = system.ended().await {
        print_note(talk::restarted(&ended));
    }
    Ok(())
}

/// Waits until everything is healthy; prints what is missing when that fails.
async fn until_healthy(
    system: &mut Supervisor,
    layout: &Layout,
    bus: &BusAddress,
    nodes: usize,
) -> Result<(), Failure> {
    let deadline = Instant::now() + START_MAX;
    let missing = watch::Sender::new("nothing answered".to_owned());
    let mut last_ended: Option<Ended> = None;
    let healthy = health::wait(bus, nodes, &missing);
    tokio::pin!(healthy);
    loop {
        tokio::select! {
            () = &mut healthy => return Ok(()),
            Some(ended) = system.ended() => {
                print_note(talk::restarted(&ended));
                let hopeless = ended.code == Some(BAD_CONFIG);
                last_ended = Some(ended);
                if hopeless {
                    break;
                }
            }
            () = sleep_until(deadline) => break,
        }
    }
    Err(not_healthy(layout, &missing.borrow(), last_ended.as_ref()))
}

fn not_healthy(layout: &Layout, missing: &str, ended: Option<&Ended>) -> Failure {
    let log = ended.map(|ended| {
        let tail = LogTail::whole(&layout.log(&ended.name)).last_lines(TAIL_LINES).join("\n");
        format!("\n{} {}; the end of its log:\n{tail}", ended.name, ended.how)
    });
    Failure::Local {
        exit: exit::UNAVAILABLE,
        message: format!("the system did not become healthy: {missing}{}", log.unwrap_or_default()),
        next: format!("read the logs in {}", layout.dir().join("log").display()),
    }
}

fn forget(file: &Path) -> Result<(), Failure> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            let message = format!("{} cannot be removed: {error}", file.display());
            Err(Failure::local(message, "name another --ready-file"))
        }
        _ => Ok(()),
    }
}

/// Writes the file atomically: a program that waits for it never reads a part.
fn write_whole(file: &Path, text: &str) -> Result<(), Failure> {
    let mut part = file.as_os_str().to_owned();
    part.push(".part");
    fs::write(&part, text).and_then(|()| fs::rename(&part, file)).map_err(|error| {
        let message = format!("{} cannot be written: {error}", file.display());
        Failure::local(message, "name another --ready-file")
    })
}
