//! `docs/causes.md` says what each cause means.

use std::fmt::Write as _;

use crate::cause::Cause;

fn page() -> String {
    let mut page = String::from(
        "# Causes\n\n\
         Made from `shared/explain/src/cause.rs`. These are the words of `cause` in \
         `berth why --json`. An earlier cause hides later ones: while it \
         holds, no remedy for a later one helps.\n\n\
         | cause | what it means | more |\n| --- | --- | --- |\n",
    );
    for cause in Cause::ALL {
        let name = serde_json::to_value(cause).unwrap();
        let (name, section) = (name.as_str().unwrap(), cause.section());
        let _ = writeln!(page, "| `{name}` | {} | [{section}]({section}) |", cause.meaning());
    }
    page
}

#[test]
fn the_page_of_causes_is_current() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/causes.md");
    if std::env::var_os("BERTH_WRITE_DOCS").is_some() {
        std::fs::write(file, page()).unwrap();
    }
    let written = std::fs::read_to_string(file).unwrap_or_default();
    assert!(written == page(), "run BERTH_WRITE_DOCS=1 cargo test -p berth-explain");
}
