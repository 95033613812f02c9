//! The commands in a page of Markdown, and the words that may be names.

/// Every command of `berth` and `nats`, with its line: after a prompt in a block, with the comment
/// behind it, or in a span of code that is nothing else.
pub fn commands(page: &str) -> Vec<(usize, String)> {
    let mut commands = Vec::new();
    let mut in_block = false;
    let mut open: Option<(usize, String)> = None;
    for (at, line) in page.lines().enumerate().map(|(at, line)| (at + 1, line)) {
        if line.starts_with("```") {
            in_block = !in_block;
            open = None;
        } else if in_block {
            // At a prompt, or printed as the next step.
            let printed = line.trim_start().trim_start_matches("next:").trim_start();
            let command = line.strip_prefix("$ ").unwrap_or(printed);
            commands.push((at, command.to_owned()));
        } else {
            // A span may continue in the next line.
            for (part, text) in line.split('`').enumerate() {
                match (part, &mut open) {
                    (0, Some((_, span))) => span.extend([" ", text]),
                    (0, None) => {}
                    (_, Some(_)) => commands.extend(open.take()),
                    (_, None) => open = Some((at, text.to_owned())),
                }
            }
        }
    }
    let ours = |(_, command): &(usize, String)| {
        matches!(command.split_whitespace().next(), Some("berth" | "nats"))
    };
    commands.retain(ours);
    commands
}

/// Every word that may be a name, with its line.
pub fn names(page: &str) -> Vec<(usize, String)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "._-=".contains(c);
    let mut names = Vec::new();
    for (at, line) in page.lines().enumerate() {
        // The heading of an endpoint in `nats micro info`.
        if let Some(endpoint) = line.strip_suffix(" Endpoint Statistics") {
            names.push((at + 1, format!("endpoint {}", endpoint.trim())));
        }
        // Lease keys look like steps; they are checked with their command.
        let line = if line.contains("berth-leases") { "" } else { line };
        let words = line.split(|c| !is_part(c)).map(|word| word.trim_end_matches('.'));
        let words = words.filter(|word| !word.is_empty());
        names.extend(words.map(|word| (at + 1, word.to_owned())));
    }
    names
}

/// The words of a command as a shell splits them, and the comment behind it.
pub fn split(command: &str) -> (Vec<String>, &str) {
    let (command, comment) = command.split_once(" #").unwrap_or((command, ""));
    let mut words = Vec::new();
    for (part, text) in command.split('\'').enumerate() {
        if part % 2 == 1 {
            words.push(text.to_owned());
        } else {
            words.extend(text.split_whitespace().map(str::to_owned));
        }
    }
    (words, comment)
}
