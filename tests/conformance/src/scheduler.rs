//! The scheduler under test: a process that reads jobs from its standard input.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};

/// The command of the scheduler, and its input.
#[derive(Debug, Clone)]
pub struct Start {
    /// The program and its arguments. `{server}`, `{owner}`, `{node}`, `{creds}` and `{ca}` are
    /// placeholders for the fleet and the identity.
    pub command: Vec<String>,
    /// The values of the placeholders.
    pub places: Vec<(&'static str, String)>,
    /// Its input, with a line for each job.
    pub jobs: String,
}

/// A running scheduler.
#[derive(Debug)]
pub struct Scheduler {
    child: Child,
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Scheduler {
    /// Starts it, and writes the jobs to its input.
    pub fn start(start: &Start) -> Self {
        let fill = |word: &String| {
            let fill = |word: String, (name, value): &(&str, String)| {
                word.replace(&format!("{{{name}}}"), value)
            };
            start.places.iter().fold(word.clone(), fill)
        };
        let words: Vec<String> = start.command.iter().map(fill).collect();
        let (program, args) = words.split_first().expect("the scheduler's command is not empty");
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .spawn()
            .expect("the scheduler can be started");
        let mut input = child.stdin.take().expect("it has an input");
        // A scheduler that has already ended does not read.
        let _: std::io::Result<()> = input.write_all(start.jobs.as_bytes());
        Self { child }
    }

    /// Kills it with SIGKILL. Its jobs go on.
    pub fn kill(&mut self) {
        // It may have ended by itself.
        let _: std::io::Result<()> = self.child.kill();
        let _: std::io::Result<_> = self.child.wait();
    }
}
