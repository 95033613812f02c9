//! What a sweep of the collector did.

use berth_contract::message::collect::Sweep;

use crate::table::plain;

/// One line for each thing.
pub fn sweep(sweep: &Sweep) -> String {
    if sweep.collected.is_empty() && sweep.kept.is_empty() {
        return "nothing is left behind\n".to_owned();
    }
    let told = |word: &str, lines: &[String]| -> String {
        lines.iter().map(|line| format!("{word} {}\n", plain(line))).collect()
    };
    told("collected", &sweep.collected) + &told("kept     ", &sweep.kept)
}
