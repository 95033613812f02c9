//! Aligned columns for people.
//!
//! **Owns** the form of every table: a heading, then one line per row, columns two spaces apart.
//!
//! **Promises** that text in a name or an error cannot break the lines or control the terminal:
//! control characters are shown, not sent.

use std::cmp::Ordering;
use std::fmt;

use unicode_width::UnicodeWidthStr as _;

use crate::size;

/// The widest cell to which the other rows of a column are aligned, in columns of the terminal. A
/// longer one makes only its own row longer: an id may have 256 bytes, each of four characters.
const ALIGNED_MAX: usize = 64;

/// The index of a column, by its heading in any case.
pub fn column_index(columns: &[&str], name: &str) -> Option<usize> {
    columns.iter().position(|column| column.eq_ignore_ascii_case(name))
}

/// Rows under a heading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub fn new<'a>(columns: impl IntoIterator<Item = &'a str>) -> Self {
        Self { rows: vec![columns.into_iter().map(str::to_owned).collect()] }
    }

    /// Adds a row; an empty cell is shown as `-`.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| plain(&cell)).collect());
    }

    /// Sorts the rows by a column: numbers, counts and spans by size, other text by letters and by
    /// the size of the numbers in it. Empty cells come last. Without a column, or with an unknown
    /// one, the table is sorted by the first, which is the name.
    pub fn sort(&mut self, column: Option<&str>) {
        let Some((heading, rows)) = self.rows.split_first_mut() else { return };
        let heading: Vec<&str> = heading.iter().map(String::as_str).collect();
        let at = column.and_then(|name| column_index(&heading, name)).unwrap_or(0);
        rows.sort_by(|row, other| compare_cells(&row[at], &other[at]));
    }

    /// Whether there is no row under the heading.
    pub fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }
}

fn compare_cells(cell: &str, other: &str) -> Ordering {
    match (cell == "-", other == "-") {
        (false, false) => {}
        (cell, other) => return cell.cmp(&other),
    }
    match (quantity(cell), quantity(other)) {
        (Some(cell), Some(other)) => cell.total_cmp(&other),
        _ => text_key(cell).cmp(&text_key(other)),
    }
}

/// The size of `7`, `+12 ms`, `1/2`, `5.9s`, `10GiB`, `in 10m` or `now`; none for other text.
fn quantity(cell: &str) -> Option<f64> {
    if let Some(bytes) = size::shown_bytes(cell) {
        return Some(bytes);
    }
    let cell = cell.strip_prefix("in ").unwrap_or(cell);
    if cell == "now" {
        return Some(0.0);
    }
    let is_number = |c: char| c.is_ascii_digit() || "+-.".contains(c);
    let end = cell.find(|c| !is_number(c)).unwrap_or(cell.len());
    let (number, unit) = cell.split_at(end);
    let scale = match unit.trim() {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        of if of.starts_with('/') => 1.0,
        _ => return None,
    };
    number.parse::<f64>().ok().map(|number| number * scale)
}

/// Text split at its numbers, so that `n2` comes before `n10`.
fn text_key(text: &str) -> Vec<(String, u64)> {
    let mut parts: Vec<(String, u64)> = vec![(String::new(), 0)];
    let mut in_number = false;
    for c in text.chars() {
        let digit = c.to_digit(10).map(u64::from);
        if let Some((letters, number)) = parts.last_mut() {
            match digit {
                Some(digit) => *number = number.saturating_mul(10).saturating_add(digit),
                None if in_number => parts.push((c.to_string(), 0)),
                None => letters.push(c),
            }
        }
        in_number = digit.is_some();
    }
    parts
}

/// Text in one line, without control characters; `-` for nothing.
pub fn plain(text: &str) -> String {
    if text.is_empty() {
        return "-".to_owned();
    }
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            plain.extend(c.escape_default());
        } else {
            plain.push(c);
        }
    }
    plain
}

/// The text with spaces after it, up to this many columns of the terminal.
pub fn padded(text: &str, columns: usize) -> String {
    // `format!` would count characters, and some characters take two columns.
    format!("{text}{:spaces$}", "", spaces = columns.saturating_sub(text.width()))
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.first().map_or(0, Vec::len);
        let width = |column: usize| {
            let widths = self.rows.iter().map(|row| row[column].width());
            widths.filter(|width| *width <= ALIGNED_MAX).max()
        };
        let widths: Vec<usize> = (0..columns).filter_map(width).collect();
        for row in &self.rows {
            let cells = row.iter().zip(&widths).map(|(cell, width)| padded(cell, *width));
            writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// Names and values, one pair per line, values aligned.
pub fn pairs(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, value): &(&str, String)| format!("{name:<width$}  {}\n", plain(value));
    pairs.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_end_where_text_ends() {
        let mut table = Table::new(["ID", "STATE", "NOTE"]);
        assert!(table.is_empty());
        table.row(["data".to_owned(), "taken".to_owned(), String::new()]);
        table.row(["データ".to_owned(), "unpublishing".to_owned(), "x".to_owned()]);
        let expected = "ID      STATE         NOTE\n\
                        data    taken         -\n\
                        データ  unpublishing  x\n";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn one_long_cell_makes_its_own_row_longer_only() {
        let mut table = Table::new(["ID", "STATE"]);
        let long = "x".repeat(ALIGNED_MAX + 1);
        table.row(["data".to_owned(), "free".to_owned()]);
        table.row([long.clone(), "taken".to_owned()]);
        let expected = format!("ID    STATE\ndata  free\n{long}  taken\n");
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn rows_are_sorted_by_size_where_a_column_has_one() {
        let mut table = Table::new(["ID", "SINCE", "NODES", "NEXT TRY"]);
        for (id, since, nodes, next) in [
            ("n10", "9d", "10/12", "in 5.0s"),
            ("n2", "105s", "9/9", ""),
            ("a", "10m", "0/1", "now"),
        ] {
            table.row([id, since, nodes, next].map(str::to_owned));
        }
        let mut sorted = |column: Option<&str>| {
            table.sort(column);
            let ids = table.rows.iter().skip(1).map(|row| row[0].as_str());
            ids.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(sorted(None), "a n2 n10");
        assert_eq!(sorted(Some("since")), "n2 a n10");
        assert_eq!(sorted(Some("NODES")), "a n2 n10");
        assert_eq!(sorted(Some("next try")), "a n10 n2", "an empty cell comes last");
        assert_eq!(sorted(Some("elsewhere")), "a n2 n10");
    }

    #[test]
    fn control_characters_never_reach_the_terminal() {
        let mut table = Table::new(["NOTE"]);
        table.row(["a\n\u{1b}[31mred".to_owned()]);
        assert_eq!(table.to_string(), "NOTE\na\\n\\u{1b}[31mred\n");
    }
}
