//! Links between the pages of the repository lead somewhere.

use std::path::Path;

use berth_tidy::markdown::local_links;
use berth_tidy::repository::{files, root};

use crate::assert_none;

#[test]
fn links_between_documents_resolve() {
    let mut breaches = Vec::new();
    for page in files().iter().filter(|file| file.is("md")) {
        let folder = Path::new(&page.path).parent().unwrap_or(Path::new(""));
        for link in local_links(&page.text) {
            if !root().join(folder).join(link).exists() {
                breaches.push(format!("{}: {link}", page.path));
            }
        }
    }
    assert_none(breaches, "links lead to a file that is there");
}
