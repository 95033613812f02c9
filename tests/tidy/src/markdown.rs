//! The links of a Markdown page.

/// The targets of `[text](target)` outside of code, without their `#anchor`, that are paths of the
/// repository.
pub fn local_links(text: &str) -> Vec<&str> {
    let mut links = Vec::new();
    let mut in_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            // Every other piece between backticks is code.
            for prose in line.split('`').step_by(2) {
                links.extend(prose.split("](").skip(1).filter_map(target));
            }
        }
    }
    links
}

/// The text before the closing bracket, if it is a path.
fn target(after_opening: &str) -> Option<&str> {
    let (target, _) = after_opening.split_once(')')?;
    let path = target.split('#').next().unwrap_or_default();
    let elsewhere = path.contains("://") || path.starts_with("mailto:");
    (!path.is_empty() && !elsewhere).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_outside_of_code_are_links() {
        let page = "See [a](docs/a.md#part), [b](../b.md) and ![c](c.png).\n\
                    [web](https://example.com) [mail](mailto:a@example.com) [here](#part)\n\
                    `[code](no.md)` after [d](d.md)\n\
                    ```\n[code](no.md)\n```\n[e](e.md)";
        assert_eq!(local_links(page), ["docs/a.md", "../b.md", "c.png", "d.md", "e.md"]);
    }

    #[test]
    fn a_link_whose_text_is_code_counts() {
        assert_eq!(local_links("[`berth`](services/cli)"), ["services/cli"]);
    }
}
