//! `berth why`: gathers the facts that [`berth_explain`] judges.
//!
//! **Never** changes anything, and never waits longer than some seconds.

mod gather;

pub use gather::{complete, gather};

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::args::Cli;

    #[test]
    fn every_command_that_is_advised_runs_as_it_is_printed() {
        let commands = include_str!("../../../../shared/explain/src/tests/commands.txt");
        assert!(commands.lines().count() > 10, "{commands}");
        for line in commands.lines() {
            let parsed = Cli::try_parse_from(line.split_whitespace());
            assert!(parsed.is_ok(), "{line}: {parsed:?}");
        }
    }
}
