//! The exit codes of `berth`.
//!
//! **Owns** the numbers and the text that documents them. **Promises** that a number never changes
//! its meaning. `berth --help` prints the table below, and a test compares them.

use berth_contract::code::Code;

/// Done.
pub const OK: u8 = 0;
/// Refused by the service, or failed here.
pub const FAILED: u8 = 1;
/// The command line is wrong; nothing was sent.
pub const USAGE: u8 = 2;
/// What was named does not exist.
pub const NOT_FOUND: u8 = 3;
/// The bus, a service, a node or a plugin does not answer or cannot work now; try again later.
pub const UNAVAILABLE: u8 = 4;
/// Another alloc holds it, or another operation is under way.
pub const CONFLICT: u8 = 5;
/// `berth doctor`: there are warnings, and no faults.
pub const DOCTOR_WARNINGS: u8 = 1;
/// `berth doctor`: there are faults.
pub const DOCTOR_FAULTS: u8 = 2;
/// A document (a volume spec) has faults; nothing was sent.
pub const BAD_DOCUMENT: u8 = 64;
/// `berth run`: others hold a volume, so CMD was not started.
pub const RUN_HELD: u8 = 124;
/// `berth run`: CMD was not started for another reason.
pub const RUN_NOT_STARTED: u8 = 125;
/// `berth run`: CMD was found and could not be executed.
pub const RUN_NOT_EXECUTABLE: u8 = 126;
/// `berth run`: CMD was not found.
pub const RUN_NO_SUCH_COMMAND: u8 = 127;
/// `berth run`: added to the number of the signal that ended CMD, or `berth run` before CMD began.
pub const RUN_SIGNAL: u8 = 128;

/// The exit code of `berth run` for a signal of this number.
pub fn signal_exit(number: i32) -> u8 {
    u8::try_from(number).map_or(u8::MAX, |number| RUN_SIGNAL.saturating_add(number))
}

/// The table, as `berth --help` prints it.
pub const HELP: &str = "\
Exit codes:
    0  done
    1  refused by the service, or failed here
    2  the command line is wrong; nothing was sent
    3  what was named does not exist
    4  the bus, a service, a node or a plugin is not there now; try again later
    5  somebody else holds it, or something else is under way
   64  a document has faults; nothing was sent
`berth doctor` exits with 0 when nothing is wrong, 1 with warnings, 2 with faults.
`berth run` exits as its command did, 128 + n when signal n ended it, and else with
  124  others hold a volume; the command was not started
  125  the command was not started for another reason
  126  the command could not be executed
  127  the command was not found";

/// The exit code for a problem that a service answered with.
pub fn code_of_problem(code: Code) -> u8 {
    use Code as C;
    match code {
        C::BadInput => BAD_DOCUMENT,
        C::NoSuchVolume
        | C::NoSuchClaim
        | C::NoSuchPlugin
        | C::NoSuchNode
        | C::NoSuchAlloc
        | C::NoSuchSnapshot
        | C::NoSuchClass => NOT_FOUND,
        C::Late
        | C::NoResponder
        | C::NoAnswer
        | C::BusUnavailable
        | C::Overloaded
        | C::PluginUnhealthy
        | C::PluginUnable
        | C::NodeDown
        | C::NodeReturning => UNAVAILABLE,
        C::VolumeClosing
        | C::AccessInUse
        | C::Held
        | C::Busy
        | C::Releasing
        | C::ClaimDiffers
        | C::ClaimsLive
        | C::UnsafeUpdate
        | C::Waiting
        | C::Changed
        | C::PluginInUse
        | C::PluginHeld
        | C::AllocKept
        | C::StillBusy
        | C::VolumeNotReady
        | C::VolumeExists
        | C::OperationUnderWay
        | C::VolumeInUse
        | C::StorageInUse
        | C::SnapshotExists
        | C::SnapshotInGroup
        | C::ClassInUse
        | C::NodeReady => CONFLICT,
        // Refused, or failed in a way that a retry does not repair.
        _ => FAILED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_documented_and_no_other() {
        let documented: Vec<u8> =
            HELP.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect();
        let named = [
            OK,
            FAILED,
            USAGE,
            NOT_FOUND,
            UNAVAILABLE,
            CONFLICT,
            BAD_DOCUMENT,
            RUN_HELD,
            RUN_NOT_STARTED,
            RUN_NOT_EXECUTABLE,
            RUN_NO_SUCH_COMMAND,
        ];
        assert_eq!(documented, named);
        assert!(HELP.contains(&format!("{RUN_SIGNAL} + n")));
    }

    #[test]
    fn problem_codes_map_to_distinct_exit_codes() {
        assert_eq!(code_of_problem(Code::NoSuchVolume), NOT_FOUND);
        assert_eq!(code_of_problem(Code::NotAllowed), FAILED);
        assert_eq!(code_of_problem(Code::Held), CONFLICT);
        assert_eq!(code_of_problem(Code::NoResponder), UNAVAILABLE);
        assert_eq!(code_of_problem(Code::BadInput), BAD_DOCUMENT);
        assert_eq!(code_of_problem(Code::PluginRefused), FAILED);
    }
}
