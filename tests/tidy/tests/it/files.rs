//! The maximum length of files, functions and lines, and the first line of a file.

use berth_tidy::repository::rust_files;
use berth_tidy::source::functions;

use crate::assert_none;

/// Aim at 150 lines; review a file from 400.
const FILE_LINES: usize = 600;
const FUNCTION_LINES: usize = 120;
const LINE_COLUMNS: usize = 100;

#[test]
fn files_are_short() {
    let breaches = rust_files()
        .map(|file| (file.text.lines().count(), file.path))
        .filter(|(lines, _)| *lines > FILE_LINES)
        .map(|(lines, path)| format!("{path}: {lines} lines"));
    assert_none(breaches.collect(), "a file is about one thing, in at most 600 lines");
}

#[test]
fn functions_are_short() {
    let mut breaches = Vec::new();
    for file in rust_files() {
        for function in functions(&file.text).iter().filter(|f| f.lines > FUNCTION_LINES) {
            let (name, line, lines) = (function.name, function.line, function.lines);
            breaches.push(format!("{}:{line}: {name} has {lines} lines", file.path));
        }
    }
    assert_none(breaches, "a function fits a screen, or two: at most 120 lines");
}

#[test]
fn lines_fit_a_hundred_columns() {
    let mut breaches = Vec::new();
    for file in rust_files() {
        for (index, line) in file.text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > LINE_COLUMNS {
                breaches.push(format!("{}:{}: {columns} columns", file.path, index + 1));
            }
        }
    }
    assert_none(breaches, "lines have at most 100 columns");
}

#[test]
fn every_file_begins_by_saying_what_it_is() {
    let breaches = rust_files().filter(|file| !file.text.starts_with("//! "));
    assert_none(breaches.map(|file| file.path).collect(), "a file begins with module docs (//!)");
}
