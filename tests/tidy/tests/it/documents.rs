//! Pages have a fixed form, and the links between them have a target.

use std::fs;
use std::path::Path;

use berth_tidy::markdown::{anchors, local_links};
use berth_tidy::repository::{File, files, root};

use crate::assert_none;

/// Three screens, in lines.
const README_LINES: usize = 130;

/// Generated pages need no opening.
const NO_OPENING: [&str; 4] =
    ["docs/causes.md", "docs/contract.md", "docs/errors.md", "docs/metrics.md"];

/// The sections of a decision, in order.
const SECTIONS: [&str; 4] = ["Context", "Decision", "Consequences", "Alternatives"];

fn pages() -> Vec<File> {
    files().into_iter().filter(|file| file.is("md")).collect()
}

/// The decisions, without their index.
fn decisions() -> Vec<File> {
    let is_one = |file: &File| {
        let name = file.path.strip_prefix("docs/decisions/");
        name.is_some_and(|name| name != "README.md")
    };
    pages().into_iter().filter(is_one).collect()
}

#[test]
fn links_between_documents_resolve() {
    let mut breaches = Vec::new();
    for page in pages() {
        let folder = Path::new(&page.path).parent().unwrap_or(Path::new(""));
        for link in local_links(&page.text) {
            let path = root().join(folder).join(link.path);
            let is_page = link.path.is_empty() || path.extension() == Some("md".as_ref());
            let is_there = if is_page && !link.anchor.is_empty() {
                let text = match link.path {
                    "" => page.text.clone(),
                    _ => fs::read_to_string(path).unwrap_or_default(),
                };
                anchors(&text).iter().any(|anchor| anchor == link.anchor)
            } else {
                path.exists()
            };
            if !is_there {
                breaches.push(format!("{}: {}#{}", page.path, link.path, link.anchor));
            }
        }
    }
    assert_none(breaches, "links lead to a file and a heading that are there");
}

#[test]
fn the_readme_fits_three_screens() {
    let readme = pages().into_iter().find(|file| file.path == "README.md").unwrap();
    let lines = readme.text.lines().count();
    assert!(lines <= README_LINES, "README.md has {lines} lines, of {README_LINES} at most");
}

#[test]
fn a_page_says_first_for_whom_it_is_and_what_they_can_do_after_it() {
    let is_page = |file: &File| {
        let is_decision = file.path.starts_with("docs/decisions/0");
        file.path.starts_with("docs/") && !is_decision && !NO_OPENING.contains(&&*file.path)
    };
    let opens = |file: &File| {
        let first = file.text.split("\n\n").nth(1).unwrap_or_default();
        first.starts_with("For ") && first.replace('\n', " ").contains("After this page ")
    };
    let breaches = pages().into_iter().filter(|page| is_page(page) && !opens(page));
    let rule = "a page begins: For whom. After this page they can …";
    assert_none(breaches.map(|page| page.path).collect(), rule);
}

#[test]
fn a_decision_has_a_title_and_four_sections() {
    let mut breaches = Vec::new();
    for page in decisions() {
        let sections = page.text.lines().filter_map(|line| line.strip_prefix("## "));
        if !sections.eq(SECTIONS) {
            breaches.push(format!("{}: its sections are not {SECTIONS:?}", page.path));
        }
    }
    assert_none(breaches, "a decision says why, what, what follows and what else was thought of");
}

#[test]
fn the_index_lists_each_decision_by_its_title() {
    let pages = pages();
    let index = pages.iter().find(|file| file.path == "docs/decisions/README.md").unwrap();
    let mut breaches = Vec::new();
    for page in decisions() {
        let name = page.path.rsplit('/').next().unwrap_or_default();
        let title = page.text.lines().next().unwrap_or_default().trim_start_matches("# ");
        let number = name.split('-').next().unwrap_or_default();
        if !title.starts_with(&format!("{number} ")) {
            breaches.push(format!("{name}: its title does not begin with {number}"));
        }
        if !index.text.contains(&format!("- [{title}]({name})")) {
            breaches.push(format!("{name}: the index has no line for {title:?}"));
        }
    }
    assert_none(breaches, "docs/decisions/README.md lists the decisions");
}
