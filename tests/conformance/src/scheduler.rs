//! The scheduler that is looked at: a process that reads jobs from its standard input.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};

/// How the scheduler is started, and what it is given.
#[derive(Debug, Clone)]
pub struct Start {
    /// The program and its arguments. `{server}`, `{owner}`, `{node}`, `{creds}` and `{ca}` in them
    /// stand for the fleet and the identity.
    pub command: Vec<String>,
    /// What they stand for.
    pub places: Vec<(&'static str, String)>,
    /// Its input: a line for each job.
    pub jobs: String,
}

/// A scheduler that runs.
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
    /// Starts it, and gives it the jobs.
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
        // One that has ended already does not read.
        let _: std::io::Result<()> = input.write_all(start.jobs.as_bytes());
        Self { child }
    }

    /// kill -9. Its jobs go on.
    pub fn kill(&mut self) {
        // It may have ended by itself.
        let _: std::io::Result<()> = self.child.kill();
        let _: std::io::Result<_> = self.child.wait();
    }
}
