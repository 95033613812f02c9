//! What runs an alloc, as its node's agent is told.

use std::fs;
use std::io;

use berth_contract::message::agent::Guard;

/// Field 22 of `/proc/PID/stat`, counted from the first field after the process's name.
const START: usize = 19;

/// A process of this host as a guard, with the time of its start.
pub fn process_guard(pid: u32) -> io::Result<Guard> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let start = read_start(&text).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("/proc/{pid}/stat is not as it should be"),
        )
    })?;
    Ok(Guard { pid: Some(pid), start: Some(start), ..Guard::default() })
}

/// The name may contain blanks and parentheses, so it ends at the last one.
fn read_start(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(START)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_is_found_behind_any_name() {
        let fields: Vec<String> = (3..=30).map(|field| field.to_string()).collect();
        let stat = format!("4711 (a ) (b) {}", fields.join(" "));
        assert_eq!(read_start(&stat), Some(22));
        assert_eq!(read_start("4711 (a)"), None);
        let own = process_guard(std::process::id()).unwrap();
        assert!(own.start.unwrap() > 0);
    }
}
