//! The links and headings of a Markdown page.

/// Where a link leads to.
#[derive(Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// A path of the repository; empty for the page itself.
    pub path: &'a str,
    /// The anchor of a heading there; empty for the whole page.
    pub anchor: &'a str,
}

/// The targets of `[text](target)` outside of code, without those on the web.
pub fn local_links(text: &str) -> Vec<Target<'_>> {
    // Every other piece between backticks is code.
    let prose = lines_outside_of_code(text).flat_map(|line| line.split('`').step_by(2));
    prose.flat_map(|piece| piece.split("](").skip(1).filter_map(target)).collect()
}

/// The anchors of the page's headings, as GitHub makes them, and those that it sets by `<a id>`.
pub fn anchors(text: &str) -> Vec<String> {
    let headings = lines_outside_of_code(text).filter(|line| line.starts_with('#'));
    let made = headings.map(|heading| anchor(heading.trim_start_matches('#').trim()));
    let set = text.split("<a id=\"").skip(1).filter_map(|after| after.split_once('"'));
    made.chain(set.map(|(id, _)| id.to_owned())).collect()
}

fn anchor(heading: &str) -> String {
    let kept = |char: &char| char.is_alphanumeric() || matches!(char, ' ' | '-' | '_');
    heading.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
}

fn lines_outside_of_code(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// The text before the closing bracket, if it leads to a page of the repository.
fn target(after_opening: &str) -> Option<Target<'_>> {
    let (target, _) = after_opening.split_once(')')?;
    let elsewhere = target.contains("://") || target.starts_with("mailto:");
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    (!elsewhere).then_some(Target { path, anchor })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_targets_of_the_repository_outside_of_code_are_links() {
        let page = "See [a](docs/a.md#part), [b](../b.md) and ![c](c.png).\n\
                    [web](https://example.com#a) [mail](mailto:a@example.com) [here](#part)\n\
                    `[code](no.md)` after [d](d.md)\n\
                    ```\n[code](no.md)\n```\n[`berth`](services/cli)";
        let links = local_links(page).into_iter().map(|link| (link.path, link.anchor));
        let expected = [
            ("docs/a.md", "part"),
            ("../b.md", ""),
            ("c.png", ""),
            ("", "part"),
            ("d.md", ""),
            ("services/cli", ""),
        ];
        assert!(links.eq(expected));
    }

    #[test]
    fn an_anchor_is_made_of_words_and_hyphens() {
        let page = "# Is it well?\n```\n# a comment\n```\n### 4. A plugin's `--yes`\n\
                    | <a id=\"row\"></a> row |\n";
        assert_eq!(anchors(page), ["is-it-well", "4-a-plugins---yes", "row"]);
    }
}
