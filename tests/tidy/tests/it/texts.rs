//! Causes are typed. Words are for people, and no program takes them apart.

use berth_tidy::repository::rust_files;
use berth_tidy::source::readings_of_text;

use crate::assert_none;

/// Places that have to, with the reason.
const HAVE_TO: [(&str, &str); 5] = [
    ("shared/bus/src/connection/denial.rs", "nats-server says only in words what it refuses"),
    ("shared/bus/src/connection/link.rs", "the same, for the log"),
    ("shared/csi/src/client.rs", "tonic says only in words that an answer is too large"),
    ("shared/contract/src/role.rs", "a role in a command line is a list of words"),
    (
        "shared/contract/src/problem.rs",
        "services of the last release say in words only that they \
        are older; and the placeholders of a command are filled in",
    ),
];

#[test]
fn nothing_reads_a_text_for_people() {
    let mut breaches = Vec::new();
    let mut needless: Vec<_> = HAVE_TO.iter().map(|(place, _)| *place).collect();
    for file in rust_files() {
        let is_ours = file.path.starts_with("services/") || file.path.starts_with("shared/");
        if !is_ours || file.path.contains("/tests") {
            continue;
        }
        let program = file.text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let readings = readings_of_text(program);
        if HAVE_TO.iter().any(|(place, _)| file.path.starts_with(place)) {
            needless.retain(|place| readings.is_empty() || !file.path.starts_with(place));
            continue;
        }
        let shown = readings.iter().map(|(line, text)| format!("{}:{line}: {text}", file.path));
        breaches.extend(shown);
    }
    assert_none(breaches, "a cause is typed, and its words are not taken apart");
    let needless = needless.into_iter().map(str::to_owned).collect();
    assert_none(needless, "an exception that is not needed goes (HAVE_TO)");
}
