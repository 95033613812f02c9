//! The samples of the page, and their comparison with the output.

use std::fs;
use std::path::Path;

use serde_json::Value;

/// A command and its output on the page.
#[derive(Debug, Clone)]
pub struct Sample {
    /// The command without the prompt and the comment behind it; empty for a block without a
    /// command.
    pub command: String,
    /// The lines below it.
    pub lines: Vec<String>,
}

/// Every command in a block, with the lines up to the next command or the block's end.
pub fn samples() -> Vec<Sample> {
    let mut samples_read: Vec<Sample> = Vec::new();
    for block in blocks() {
        for line in block {
            if let Some(command) = line.strip_prefix("$ ") {
                let command = command.split(" #").next().unwrap_or_default().trim().to_owned();
                samples_read.push(Sample { command, lines: Vec::new() });
            } else if let Some(sample) = samples_read.last_mut().filter(|_| !line.trim().is_empty())
            {
                sample.lines.push(line);
            }
        }
    }
    samples_read
}

/// The block without a command that begins with this line.
pub fn block(begins: &str) -> Sample {
    let lines_found = blocks().into_iter().find(|lines| lines[0].starts_with(begins));
    let lines = lines_found.unwrap_or_else(|| panic!("the page has no block {begins:?}"));
    Sample { command: String::new(), lines }
}

/// The JSON on the page that begins with this text, over one or more lines.
pub fn json(begins: &str) -> Value {
    let mut block = blocks().into_iter().map(|lines| lines.join(" "));
    let text_found = block.find_map(|text| Some(text.get(text.find(begins)?..)?.to_owned()));
    let text_found = text_found.unwrap_or_else(|| panic!("the page has no {begins:?}"));
    let mut values = serde_json::Deserializer::from_str(&text_found).into_iter::<Value>();
    values.next().unwrap().unwrap()
}

fn blocks() -> Vec<Vec<String>> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/inspect.md");
    let page = fs::read_to_string(file).unwrap();
    let blocks = page.split("```").skip(1).step_by(2);
    let lines = |block: &str| block.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    blocks.map(lines).filter(|lines| !lines.is_empty()).collect()
}

impl Sample {
    /// An error that names the first line of the sample which was not printed.
    pub fn missing(&self, printed: &str) -> Result<(), String> {
        let printed_lines: Vec<String> = printed.lines().map(normal).collect();
        for line in self.lines.iter().filter(|line| line.trim() != "…") {
            let wanted = normal(line);
            if !printed_lines.iter().any(|line| fits(line, &wanted)) {
                return Err(format!("{wanted:?} is not in\n{printed}"));
            }
        }
        Ok(())
    }
}

/// Whether a line matches, where `…` matches any text.
fn fits(line: &str, wanted: &str) -> bool {
    let mut parts = wanted.split('…');
    let first = parts.next().unwrap_or_default().trim_end();
    let Some(mut unmatched) = line.strip_prefix(first) else { return false };
    let mut last = None;
    for part in parts.map(str::trim) {
        let Some(at) = unmatched.find(part) else { return false };
        unmatched = &unmatched[at + part.len()..];
        last = Some(part);
    }
    match last {
        None => unmatched.is_empty(),
        Some(part) => part.is_empty() || unmatched.is_empty(),
    }
}

/// A line with everything replaced that differs from run to run.
fn normal(line: &str) -> String {
    let words: Vec<String> = line.split_whitespace().map(normal_word).collect();
    words.join(" ").replace("in #s", "now").replace("in #m", "now")
}

fn normal_word(word: &str) -> String {
    let bare = word.trim_end_matches([',', ';', ':', ')', ']']);
    let tail = &word[bare.len()..];
    let is_hex = bare.len() >= 8 && bare.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hex {
        return format!("#{tail}");
    }
    if Path::new(bare).extension().is_some_and(|extension| extension == "sock") {
        return format!("{}{tail}", bare.rsplit('/').next().unwrap_or_default());
    }
    for service in ["volumewatcher/", "claim/"] {
        if bare.starts_with(service) {
            return format!("{service}#{tail}");
        }
    }
    let is_time = bare.len() >= 20 && bare.as_bytes()[4] == b'-' && bare.ends_with('Z');
    if is_time {
        return format!("<time>{tail}");
    }
    // A version ends in the commit of its build.
    let is_version = |number: &str| number.split('.').filter(|part| !part.is_empty()).count() == 3;
    let bare = match bare.split_once('+') {
        Some((number, _)) if is_version(number) => number,
        _ => bare,
    };
    let mut plain = String::new();
    for c in bare.chars() {
        let in_number = plain.ends_with('#');
        let in_name = plain.ends_with(|c: char| c.is_alphanumeric());
        match c {
            '0'..='9' | '.' | ':' | '-' if in_number => {}
            '0'..='9' if !in_name => plain.push('#'),
            c => plain.push(c),
        }
    }
    plain.replace("+#", "#").replace("-#", "#") + tail
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_differ_from_run_to_run_compare_equal() {
        for (shown, printed) in [
            ("n1  ready  105s   -3 ms   0.1.0", "n1 ready 7.2s +12 ms 0.1.0+g1a2b3c4d"),
            (
                "by claim/vm/13031, until 2026-11-21T20:00:35.743Z",
                "by claim/h/1, until 2027-01-02T01:02:03.004Z",
            ),
            ("on /run/n1.sock: UNAVAILABLE: …", "on /tmp/x/run/n1.sock: UNAVAILABLE: planted"),
            ("x  6  in 1.8s", "x 11 now"),
        ] {
            assert!(
                fits(&normal(printed), &normal(shown)),
                "{} {}",
                normal(shown),
                normal(printed)
            );
        }
        for (shown, printed) in
            [("n1  ready", "n2  ready"), ("BERTH0207", "BERTH0202"), ("a", "a b")]
        {
            assert!(!fits(&normal(printed), &normal(shown)), "{shown} {printed}");
        }
    }
}
