//! The result of a sweep of the collector.

use berth_contract::message::collect::Sweep;

use crate::table::plain;

/// One line for each record.
pub fn sweep(sweep: &Sweep) -> String {
    if sweep.collected.is_empty() && sweep.kept.is_empty() {
        return "nothing is left behind\n".to_owned();
    }
    let collected = sweep.collected.iter().map(|line| format!("collected  {}", plain(line)));
    let kept = sweep.kept.iter().map(|line| format!("kept       {}", plain(line)));
    collected.chain(kept).collect::<Vec<_>>().join("\n")
}
