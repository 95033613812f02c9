//! The failures of a command.
//!
//! **Promises** that each failure names what happened, where, and the next thing to try (H5), and
//! maps to one exit code.

use std::fmt;

use berth_contract::code::Code;
use berth_contract::decode::Fault;
use berth_contract::problem::Problem;
use serde_json::{Value, json};

use crate::exit;

/// Why a command failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// A service refused the request, or could not be reached.
    Problem(Box<Problem>),
    /// A document has faults; nothing was sent.
    Document {
        /// The file, or `-`.
        name: String,
        /// Every fault.
        faults: Vec<Fault>,
        /// The next thing to try.
        next: String,
    },
    /// Several things of one command failed, each for itself.
    Several {
        /// The failures; at least one.
        failures: Vec<Failure>,
        /// The answers about all things, as they came over the bus, if they were sent.
        answers: Option<Value>,
    },
    /// The failure is on this machine or in the command line.
    Local {
        /// The exit code.
        exit: u8,
        /// What happened.
        message: String,
        /// The next thing to try, in one or more lines.
        next: String,
    },
}

impl Failure {
    /// Something on this machine failed.
    pub fn local(message: impl fmt::Display, next: impl fmt::Display) -> Self {
        Self::Local { exit: exit::FAILED, message: message.to_string(), next: next.to_string() }
    }

    /// The command line is invalid.
    pub fn usage(message: impl fmt::Display, next: impl fmt::Display) -> Self {
        Self::Local { exit: exit::USAGE, message: message.to_string(), next: next.to_string() }
    }

    /// The command line has faults: each with the option or argument that it is about. `help` is
    /// the command, without `berth`.
    pub fn command_line(faults: &[Fault], help: &str) -> Self {
        let told: Vec<String> =
            faults.iter().map(|fault| format!("{} {}", fault.path, fault.problem)).collect();
        let next = format!("see `berth {help} --help`");
        match told.as_slice() {
            [one] => Self::usage(format_args!("{one}; nothing was sent"), next),
            many => {
                let count = many.len();
                let lines = many.join("\n    ");
                Self::usage(
                    format_args!(
                        "{count} faults in the command line; nothing was sent\n    {lines}"
                    ),
                    next,
                )
            }
        }
    }

    /// The problem in a service's answer, if it was one.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Problem(problem) => Some(problem.code),
            Self::Several { failures, .. } => failures.first().and_then(Self::code),
            Self::Document { .. } | Self::Local { .. } => None,
        }
    }

    /// Failures before anything was sent.
    pub fn unsent(mut failures: Vec<Self>) -> Self {
        match failures.pop() {
            Some(only) if failures.is_empty() => only,
            last => {
                failures.extend(last);
                Self::Several { failures, answers: None }
            }
        }
    }

    /// The exit code.
    pub fn exit(&self) -> u8 {
        match self {
            Self::Problem(problem) => exit::code_of_problem(problem.code),
            Self::Several { failures, .. } => failures.first().map_or(exit::FAILED, Self::exit),
            Self::Document { .. } => exit::BAD_DOCUMENT,
            Self::Local { exit, .. } => *exit,
        }
    }

    /// The failure in the form of a reply on the bus: what `--json` prints.
    pub fn json(&self) -> Value {
        let problem = match self {
            Self::Problem(problem) => return json!({ "error": problem }),
            Self::Several { answers: Some(answers), .. } => return answers.clone(),
            Self::Several { failures, answers: None } => {
                let error = |failure: &Self| failure.json()["error"].take();
                let errors: Vec<Value> = failures.iter().map(error).collect();
                return json!({ "error": errors.first(), "errors": errors });
            }
            Self::Document { name, faults, next } => {
                let problem = Problem::bad_input(faults.clone()).at_step("read");
                let message = format!("{name}: {}", problem.message);
                Problem { message, ..problem }.next(next)
            }
            Self::Local { message, next, .. } => Problem::new(Code::BadInput, message).next(next),
        };
        let mut value = json!({ "error": problem });
        if let (Self::Local { .. }, Some(error)) = (self, value["error"].as_object_mut()) {
            // It was not sent over the bus, so no code of the contract fits.
            error.remove("code");
        }
        value
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self::Problem(Box::new(problem))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Problem(problem) => display_problem(problem, f),
            Self::Several { failures, .. } => {
                let each: Vec<String> = failures.iter().map(ToString::to_string).collect();
                f.write_str(&each.join("\n"))
            }
            Self::Document { name, faults, next } => {
                for fault in faults {
                    writeln!(f, "{}", in_file(name, fault))?;
                }
                let s = if faults.len() == 1 { "" } else { "s" };
                writeln!(f, "error: {} fault{s} in {name}; nothing was sent", faults.len())?;
                write!(f, "  next:   {next}")
            }
            Self::Local { message, next, .. } => {
                write!(f, "error: {message}\n  next:   {}", next.replace('\n', "\n          "))
            }
        }
    }
}

/// `FILE:LINE: field: problem`, as compilers print it, so that editors can jump there.
fn in_file(name: &str, fault: &Fault) -> String {
    let line = fault.line.map(|line| format!(":{line}")).unwrap_or_default();
    let field = if fault.path.is_empty() { String::new() } else { format!(" {}:", fault.path) };
    format!("{name}{line}:{field} {}", fault.problem)
}

fn display_problem(problem: &Problem, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "error: {}", problem.message)?;
    for (what, value) in [
        ("step", &problem.step),
        ("volume", &problem.volume),
        ("plugin", &problem.plugin),
        ("node", &problem.node),
    ] {
        if let Some(value) = value {
            write!(f, "\n  {:<8}{value}", format!("{what}:"))?;
        }
    }
    write!(
        f,
        "\n  code:   {} ({})\n  next:   {}",
        problem.code,
        problem.code.title(),
        problem.next
    )?;
    if let Some(trace) = &problem.trace {
        write!(f, "\n  trace:  {trace}")?;
    }
    Ok(())
}
