//! The owners whose files the kernel shows as those of its overflow user.
//!
//! In a user namespace, a user who is not in its map has no id. The kernel then shows the overflow
//! user (`user_namespaces(7)`, `/proc/sys/kernel/overflowuid`), which is usually called `nobody`.

use std::fs;

/// The overflow user, if it may stand for the owner of the host's files: this process is in a user
/// namespace that does not map the overflow user itself. `None` also if `/proc` cannot be read:
/// then only the named users are trusted.
pub(super) fn overflow_user() -> Option<u32> {
    let overflow = fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?.trim().parse().ok()?;
    let map = fs::read_to_string("/proc/self/uid_map").ok()?;
    (!maps(&map, overflow)?).then_some(overflow)
}

/// Whether the map has this id. Its lines are `first outside count`.
fn maps(map: &str, user: u32) -> Option<bool> {
    let mut is_mapped = false;
    for line in map.lines() {
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        let (first, _, count) =
            (numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
        is_mapped |= (first..first.saturating_add(count)).contains(&u64::from(user));
    }
    Some(is_mapped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_overflow_user_stands_for_others_only_where_it_is_not_mapped() {
        let initial = "         0          0 4294967295\n";
        let own_user_only = "         0      12345          1\n";
        let container = "         0       1000          1\n         1     100000      65536\n";
        let cases = [(initial, true), (own_user_only, false), (container, true), ("", false)];
        for (map, expected) in cases {
            assert_eq!(maps(map, 65534), Some(expected), "{map}");
        }
        for broken in ["0 0", "a b c", "0 0 -1"] {
            assert_eq!(maps(broken, 65534), None, "{broken}");
        }
    }
}
