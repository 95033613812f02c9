//! Aligned columns for people.
//!
//! **Owns** the form of every table: a heading, then one line per row, columns two spaces apart.
//!
//! **Promises** that what a stranger wrote into a name or an error cannot break the lines, nor
//! speak to the terminal: control characters are shown, not sent.

use std::fmt;

/// Rows under a heading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub fn new<const N: usize>(columns: [&str; N]) -> Self {
        Self { rows: vec![columns.map(str::to_owned).to_vec()] }
    }

    /// Adds a row; an empty cell is shown as `-`.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.map(|cell| plain(&cell)).to_vec());
    }

    /// Whether there is no row under the heading.
    pub fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }
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

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.first().map_or(0, Vec::len);
        let width = |column: usize| {
            self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
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
        let expected = "ID    STATE         NOTE\n\
                        data  taken         -\n\
                        データ   unpublishing  x\n";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn nobody_speaks_to_the_terminal() {
        let mut table = Table::new(["NOTE"]);
        table.row(["a\n\u{1b}[31mred".to_owned()]);
        assert_eq!(table.to_string(), "NOTE\na\\n\\u{1b}[31mred\n");
    }
}
