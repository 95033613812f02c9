//! Every command in Berth's hints is accepted by its own parser.
//!
//! The sources are read, so that no hint is missed: each `berth …` in a string literal of a service
//! or a shared crate counts. One in backticks ends with them; any other runs to the end of its
//! line.

use std::fs;
use std::path::{Path, PathBuf};

use berth_cli::args::Cli;
use berth_contract::code::Code;
use berth_contract::hint::PLACEHOLDERS;
use berth_contract::problem::Problem;
use clap::{CommandFactory as _, Parser as _};

use crate::inspect::words;

/// Texts that name a program, and are no hints.
const NAMES: [&str; 6] = [
    "berth run",
    "berth access",
    "berth access install",
    "berth bus backup",
    "berth bus restore",
    "berth bus accept",
];
/// Placeholders for a value that the reader chooses.
const CHOSEN: [&str; 4] = ["FILE", "NAME", "CLASS", "DIR"];
/// An id, a number, and the value of a format string's argument.
const SAMPLE: &str = "7";

/// A command in a printed text, and its place in the source.
struct Hint {
    place: String,
    command: String,
}

#[test]
fn every_command_in_a_hint_runs_as_printed() {
    let hints: Vec<Hint> = sources().iter().flat_map(|file| hints_of(file)).collect();
    assert!(hints.len() > 100, "only {} hints were found", hints.len());
    let wrong: Vec<String> = hints.iter().filter_map(fault).collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), hints.len(), wrong.join("\n"));
}

/// The advice of a code has no placeholder left once the problem names its volume, node or plugin.
#[test]
fn the_next_step_of_a_code_names_what_the_problem_is_about() {
    for code in Code::ALL {
        let problem = Problem::new(*code, "").volume("team/data").plugin("p1").node("n1");
        for command in commands(&problem.next) {
            let hint = Hint { place: code.to_string(), command: command.clone() };
            assert_eq!(fault(&hint), None);
            // The command fills in `VOLUME@SNAPSHOT`, because it knows the snapshot.
            let placeholder =
                PLACEHOLDERS.iter().find(|word| command.split(' ').any(|one| one == **word));
            assert_eq!(placeholder, None, "{code}: {command}");
        }
    }
    let problem = Problem::new(Code::MountUnaccounted, "").node("n1").volume("default/data");
    assert!(problem.next.contains("`berth node unmount n1 data`"), "{}", problem.next);
    let problem = Problem::new(Code::MountUnaccounted, "").node("n1").volume("team/data");
    assert!(
        problem.next.contains("`berth node unmount n1 data --namespace team`"),
        "{}",
        problem.next
    );
}

/// The parser's error for a command; none when the parser accepts it.
fn fault(hint: &Hint) -> Option<String> {
    let Hint { place, command } = hint;
    if NAMES.contains(&command.as_str()) {
        return None;
    }
    let is_code = place.starts_with("shared/contract/src/code.rs");
    let (words, _) = words::split(command);
    let is_placeholder = |word: &&String| {
        let upper = word.len() > 1 && word.chars().all(|letter| letter.is_ascii_uppercase());
        upper
            && !CHOSEN.contains(&word.as_str())
            && !(is_code && PLACEHOLDERS.contains(&word.as_str()))
    };
    if let Some(word) = words.iter().find(is_placeholder) {
        return Some(format!("{place}: {word} is not filled in: {command}"));
    }
    let error = Cli::try_parse_from(&words).err()?;
    let why = error.to_string();
    Some(format!("{place}: {command}: {}", why.lines().take(3).collect::<Vec<_>>().join(" ")))
}

/// The source files of every crate that prints hints, without tests.
fn sources() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for group in ["services", "shared"] {
        for crate_dir in fs::read_dir(root.join(group)).unwrap() {
            collect(&crate_dir.unwrap().path().join("src"), &mut files);
        }
    }
    files.sort();
    files
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("tests") {
            collect(&path, files);
        } else if path.extension().is_some_and(|kind| kind == "rs") && !path.ends_with("tests.rs") {
            files.push(path);
        }
    }
}

fn hints_of(file: &Path) -> Vec<Hint> {
    let text = fs::read_to_string(file).unwrap();
    let printed = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let name = file.to_string_lossy();
    let name = name.split("/../../").last().unwrap_or_default();
    let literals = literals(printed).into_iter();
    literals
        .flat_map(|(line, literal)| {
            let hints = commands(&literal).into_iter();
            hints
                .map(|command| Hint { place: format!("{name}:{line}"), command })
                .collect::<Vec<_>>()
        })
        .collect()
}

/// The commands in a text, with a sample for each argument of a format string.
fn commands(text: &str) -> Vec<String> {
    let subcommands = Cli::command();
    let subcommands: Vec<&str> =
        subcommands.get_subcommands().map(clap::Command::get_name).collect();
    let mut commands = Vec::new();
    for (at, _) in text.match_indices("berth ") {
        let before = &text[..at];
        if before.ends_with(|letter: char| letter.is_alphanumeric() || "-_/.".contains(letter)) {
            continue;
        }
        let quoted = before.matches('`').count() % 2 == 1;
        let tail = &text[at..];
        let end = if quoted { tail.find('`') } else { tail.find(['\n', '|', '&', '>', ')']) };
        let command = tail[..end.unwrap_or(tail.len())].trim();
        let sub = command.split_whitespace().nth(1).unwrap_or_default();
        if subcommands.contains(&sub) {
            commands.push(with_samples(command));
        }
    }
    commands
}

fn with_samples(command: &str) -> String {
    let mut filled = String::new();
    let mut unfilled = command;
    while let Some((before, after)) = unfilled.split_once('{') {
        let after = after.split_once('}').map_or("", |(_, after)| after);
        filled = filled + before + SAMPLE;
        unfilled = after;
    }
    filled + unfilled
}

/// The string literals of a source, each with its first line.
fn literals(text: &str) -> Vec<(usize, String)> {
    let mut literals = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['"', '\'', '/']) {
        let line = 1 + text[..text.len() - rest.len() + at].matches('\n').count();
        let raw = rest[..at].ends_with("r#");
        rest = &rest[at..];
        let skip = match rest.as_bytes() {
            [b'/', b'/', ..] => rest.find('\n').unwrap_or(rest.len()),
            [b'\'', b'\\', _, b'\'', ..] => 4,
            [b'\'', _, b'\'', ..] => 3,
            [b'"', ..] if raw => rest.find("\"#").map_or(rest.len(), |end| end + 2),
            [b'"', ..] => end_of_literal(rest),
            _ => 1,
        };
        if rest.starts_with('"') {
            literals.push((line, unescaped(&rest[1..skip - 1])));
        }
        rest = &rest[skip..];
    }
    literals
}

/// Where a literal ends that begins here.
fn end_of_literal(text: &str) -> usize {
    let mut escaped = false;
    let end = text.char_indices().skip(1).find(|(_, letter)| {
        let ends = *letter == '"' && !escaped;
        escaped = *letter == '\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |(at, _)| at + 1)
}

/// A literal as it is printed: continued lines are joined.
fn unescaped(literal: &str) -> String {
    let mut parts = literal.split("\\\n");
    let mut text = parts.next().unwrap_or_default().to_owned();
    text.extend(parts.map(str::trim_start));
    text.replace("\\\"", "\"").replace("\\n", "\n").replace("\\\\", "\\")
}
