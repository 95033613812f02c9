//! `--help` of every command.

use berth_cli::args::Cli;
use clap::{Command, CommandFactory as _};

use crate::berth::berth;

/// The long help of a command and of its subcommands, by name.
fn pages(command: &Command, path: &str, pages: &mut Vec<(String, String)>) {
    let name = format!("{path}{}", command.get_name());
    // A fixed width, because the default is the width of the terminal.
    let mut command_copy = command.clone().term_width(100).bin_name(name.clone());
    pages.push((name.clone(), command_copy.render_long_help().to_string()));
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        self::pages(sub, &format!("{name} "), pages);
    }
}

fn all() -> Vec<(String, String)> {
    let mut command = Cli::command();
    // Options of every command are shown with every command once it is built.
    command.build();
    let mut all_pages = Vec::new();
    pages(&command, "", &mut all_pages);
    all_pages
}

/// A page without the options of every command, which `berth --help` shows once.
fn without_global(page: &str) -> String {
    let (own, rest) = page.split_once("\nConnection:").unwrap();
    let examples = rest.find("\nEXAMPLES").map(|at| &rest[at..]);
    format!("{own}{}", examples.unwrap_or_default())
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn the_help_of_every_command() {
    let page = |(name, page): &(String, String)| {
        let page = if name == "berth" { page.clone() } else { without_global(page) };
        format!("==> {name} --help\n{page}")
    };
    insta::assert_snapshot!(all().iter().map(page).collect::<Vec<_>>().join("\n"));
}

/// A command that changes something has a paragraph and an example.
#[test]
fn every_command_that_acts_teaches() {
    for (name, page) in all() {
        let is_group = page.contains("\nCommands:\n");
        assert!(is_group || page.contains("EXAMPLES\n"), "{name} shows no example:\n{page}");
        let paragraph = page.split("\n\n").nth(1).unwrap_or_default();
        assert!(is_group || !paragraph.starts_with("Usage:"), "{name} has no paragraph:\n{page}");
    }
}

#[test]
fn usage_errors_say_what_is_known() {
    let cases: &[&[&str]] = &[
        &[],
        &["volum"],
        &["volume", "status", "data", "--plugin", "p"],
        &["volume", "status", ""],
        &["volume", "register"],
        &["volume", "create", "data", "--size", "0", "--limit", "10", "--param", "x"],
        &["volume", "create", "data.toml", "--size", "10GiB"],
        &["volume", "create", "data", "--class", "fast", "--plugin", "p", "--size", "-1GiB"],
        &["volume", "create", "x", "--from-volume", "a", "--from-snapshot", "a@b"],
        &["volume", "expand", "data", "20"],
        &["volume", "modify", "data", "iops"],
        &["volume", "delete", "data", "--even-retained"],
        &["volume", "list", "--external", "p", "--watch"],
        &["volume", "adopt", "p", "vol-1", "--fs-type", "/etc"],
        &["snapshot", "delete", "data"],
        &["snapshot", "restore", "data", "copy", "--size", "99999999PiB"],
        &["snapshot", "group", "create", "monday"],
        &["class", "create"],
        &["plugin", "capacity"],
        &["plugin", "capacity", "p", "--topology", "zone"],
        &["run", "--volume", "new:10", "--", "true"],
        &["run", "--volume", "data", "--class", "fast", "--", "true"],
        &["run", "--volume", "data"],
        &["run", "--volume", "data:srv", "--", "true"],
        &["run", "--volume", "data", "--access", "all", "--", "true"],
        &["dev", "--nodes", "0"],
        &["dev", "--volume-timeout", "soon"],
        &["explain", "BERTH4242"],
        &["--namespace", "", "claim", "status"],
        &["events", "--kind", "lease"],
        &["events", "--last", "10001"],
        &["trace"],
    ];
    let errors = cases.iter().map(|args| {
        let ran = berth(args);
        assert_eq!(ran.code, 2, "{args:?}: {ran:?}");
        assert_eq!(ran.out, "", "{args:?}");
        format!("$ berth {}\n{}", args.join(" "), ran.err)
    });
    insta::assert_snapshot!(errors.collect::<Vec<_>>().join("\n"));
}

#[test]
fn completions_are_written_for_each_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = berth(&["completions", shell]);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(ran.out.contains("deregister") && ran.err.is_empty(), "{shell}");
    }
}

#[test]
fn codes_are_explained() {
    let one_code = berth(&["explain", "berth0106"]);
    let json = berth(&["explain", "106", "--json"]);
    insta::assert_snapshot!(format!("{}\n{}", one_code.golden(), json.golden()));
    let all_codes = berth(&["explain"]);
    for code in berth_contract::code::Code::ALL {
        assert!(all_codes.out.contains(code.as_str()), "{code} is not listed");
    }
}
