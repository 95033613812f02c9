//! Names that say nothing are not names.

use berth_tidy::repository::files;

use crate::assert_none;

/// A place of such a name takes in whatever comes, and grows.
const SAYS_NOTHING: [&str; 10] =
    ["common", "core", "helper", "helpers", "manager", "misc", "shared", "types", "util", "utils"];

#[test]
fn no_crate_or_module_has_a_name_that_says_nothing() {
    let mut breaches = Vec::new();
    for file in files() {
        // The folder of the shared crates is not itself a crate.
        let path = file.path.strip_prefix("shared/").unwrap_or(&file.path);
        if !file.is("rs") && !path.ends_with("Cargo.toml") {
            continue;
        }
        for part in path.split('/') {
            let name = part.trim_end_matches(".rs");
            if SAYS_NOTHING.contains(&name) {
                breaches.push(file.path.clone());
            }
        }
    }
    assert_none(breaches, "name it after what it owns, not");
}
