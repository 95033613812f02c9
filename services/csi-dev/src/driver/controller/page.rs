//! Pages of lists.
//!
//! Owns: the form of tokens. Promises: a token has the last id of its page, so entries that appear
//! or disappear meanwhile neither repeat nor hide others. Never: keeps state between pages; with
//! `--list-pages process` a token names its process, and is of no use to another one.

use berth_csi::Code;

use crate::driver::profile::ListPages;
use crate::driver::refusal::Refusal;

/// Prefix of a token; the rest is the id of the last entry.
const AFTER: &str = "after:";

/// The entries of one page and the token of the next. `all` is ordered by id.
pub(in crate::driver) fn page<T>(
    mut all: Vec<T>,
    id: impl Fn(&T) -> &str,
    (starting_token, max_entries): (&str, i32),
    pages: ListPages,
) -> Result<(Vec<T>, String), Refusal> {
    let Ok(most) = usize::try_from(max_entries) else {
        let message = format!("max_entries: 0 (no limit) or more, not {max_entries}");
        return Err(Refusal::new(Code::InvalidArgument, message));
    };
    let prefix = match pages {
        ListPages::Process => format!("{}-{AFTER}", std::process::id()),
        ListPages::Stateless | ListPages::Cut => AFTER.to_owned(),
    };
    if !starting_token.is_empty() {
        let Some(last) = starting_token.strip_prefix(&prefix) else {
            let is_foreign = pages == ListPages::Process && starting_token.contains(AFTER);
            return if is_foreign {
                Ok((Vec::new(), String::new()))
            } else {
                Err(unknown(starting_token))
            };
        };
        all.retain(|entry| id(entry) > last);
    }
    if most == 0 || all.len() <= most {
        return Ok((all, String::new()));
    }
    all.truncate(most);
    let next = match (pages, all.last()) {
        (ListPages::Cut, _) | (_, None) => String::new(),
        (_, Some(last)) => format!("{prefix}{}", id(last)),
    };
    Ok((all, next))
}

fn unknown(token: &str) -> Refusal {
    let message = format!("starting_token {token:?} is not known; list again without one");
    Refusal::new(Code::Aborted, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_go_on_where_the_last_one_ended() {
        let long = "x/".repeat(128);
        let ids = ["a", "b/ü", &long];
        let page = |ids: &[&str], token: &str, most| {
            let ids = ids.iter().map(ToString::to_string).collect();
            page(ids, |id: &String| id.as_str(), (token, most), ListPages::Stateless)
        };
        let (first, token) = page(&ids, "", 2).unwrap();
        assert_eq!(first, ["a", "b/ü"]);
        // The entry in the token was deleted, and there is a new one.
        let (second, next) = page(&["a", "c", &long], &token, 2).unwrap();
        assert_eq!((second, next), (vec!["c".to_owned(), long.clone()], String::new()));
        let (all_at_once, next) = page(&ids, "", 0).unwrap();
        assert_eq!((all_at_once.len(), next.as_str()), (3, ""));

        assert_eq!(page(&ids, "invalid-token", 0).unwrap_err().code, Code::Aborted);
        assert_eq!(page(&ids, "", -1).unwrap_err().code, Code::InvalidArgument);
    }
    #[test]
    fn a_token_of_another_process_ends_the_list_and_a_cut_list_has_none() {
        let page = |token: &str, pages| {
            let ids = ["a", "b", "c"].map(str::to_owned).to_vec();
            page(ids, |id: &String| id.as_str(), (token, 2), pages).unwrap()
        };
        let (_, token) = page("", ListPages::Process);
        assert_eq!(page(&token, ListPages::Process).0, ["c"]);
        assert_eq!(page("0-after:b", ListPages::Process), (Vec::new(), String::new()));
        let (first, token) = page("", ListPages::Cut);
        assert_eq!((first.len(), token.as_str()), (2, ""));
    }
}
