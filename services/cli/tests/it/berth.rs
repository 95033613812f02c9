//! Runs `berth`, and replaces the parts of its output that differ from run to run.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

/// The result of a run of `berth`.
#[derive(Debug)]
pub struct Ran {
    /// Its exit code.
    pub code: i32,
    /// What it wrote to stdout.
    pub out: String,
    /// What it wrote to stderr.
    pub err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let Output { status, stdout, stderr } = output;
        Self {
            code: status.code().unwrap(),
            out: String::from_utf8(stdout).unwrap(),
            err: String::from_utf8(stderr).unwrap(),
        }
    }
}

impl Ran {
    /// The whole result, as in a golden file.
    pub fn golden(&self) -> String {
        let Self { code, out, err } = self;
        format!("exit code {code}\n--- stdout\n{}--- stderr\n{}", redact(out), redact(err))
    }
}

/// `berth` without this shell's environment, on a bus without access control.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_berth"));
    for (key, _) in std::env::vars_os() {
        if key.to_string_lossy().starts_with("BERTH_") {
            command.env_remove(key);
        }
    }
    command.env("BERTH_INSECURE", "true").args(args);
    command
}

/// Runs `berth`.
pub fn berth(args: &[&str]) -> Ran {
    run(args, "")
}

/// As [`berth`], with this on stdin.
pub fn run(args: &[&str], stdin: &str) -> Ran {
    run_with(&[], args, stdin)
}

/// As [`run`], with these variables.
pub fn run_with(variables: &[(&str, String)], args: &[&str], stdin: &str) -> Ran {
    let mut child = command(args)
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that does not read stdin closes it, which is no failure.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    child.wait_with_output().unwrap().into()
}

/// Replaces ids, times and paths of a run. No other function does.
pub fn redact(text: &str) -> String {
    let words = text.split_inclusive([' ', '\n', '"', ',']);
    words.map(redact_word).collect()
}

fn redact_word(word: &str) -> String {
    let bare = word.trim_end_matches([' ', '\n', '"', ',', ':', ';']);
    let tail = &word[bare.len()..];
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let plain = match bare {
        id if id.len() == 32 && is_hex(id) => "[trace]".to_owned(),
        id if id.strip_prefix("run-").is_some_and(|id| id.len() == 8 && is_hex(id)) => {
            "[alloc]".to_owned()
        }
        path if path.starts_with("/tmp/") => {
            format!("[dir]/{}", path.rsplit('/').next().unwrap_or_default())
        }
        span if is_span(span) => "[span]".to_owned(),
        other => other.to_owned(),
    };
    plain + tail
}

/// `1.2s`, `350.1ms`
fn is_span(text: &str) -> bool {
    let number = text.strip_suffix("ms").or_else(|| text.strip_suffix('s'));
    number.is_some_and(|number| number.contains('.') && number.parse::<f64>().is_ok())
}
