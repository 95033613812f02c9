//! The answer of `berth search`; pure.
//!
//! **Owns** the kinds that are searched, and how their answers become one.
//!
//! **Promises** that the answer names each kind that the caller may not list, and each kind that
//! has more matches than are shown.

use std::fmt;

use berth_contract::code::Code;
use berth_contract::record::UnreadableRecord;
use berth_domain::Namespace;
use serde::Serialize;

use crate::failure::Failure;

/// The most matches of one kind.
pub const MATCHES_MAX: u32 = 20;

/// A kind of things with ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SearchKind {
    /// Volumes of the namespace.
    Volumes,
    /// Allocs of the namespace, also those that have ended.
    Allocs,
    /// Plugins.
    Plugins,
    /// Nodes.
    Nodes,
    /// Snapshots of the namespace.
    Snapshots,
    /// Classes that the namespace may use.
    Classes,
}

impl SearchKind {
    /// Every kind.
    pub const ALL: [Self; 6] =
        [Self::Volumes, Self::Allocs, Self::Plugins, Self::Nodes, Self::Snapshots, Self::Classes];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Volumes => "volumes",
            Self::Allocs => "allocs",
            Self::Plugins => "plugins",
            Self::Nodes => "nodes",
            Self::Snapshots => "snapshots",
            Self::Classes => "classes",
        }
    }
}

impl fmt::Display for SearchKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A thing whose id begins with the text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SearchMatch {
    /// Its kind.
    pub kind: SearchKind,
    /// Its namespace, if it is in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// Its id; of a snapshot `VOLUME@SNAPSHOT`.
    pub id: String,
    /// Its state, for people.
    pub state: String,
}

/// The matches of one kind.
#[derive(Debug)]
pub struct SearchPage {
    /// The first matches.
    pub matches: Vec<SearchMatch>,
    /// Whether there are more.
    pub has_more: bool,
    /// Records that cannot be read.
    pub unreadable: Vec<UnreadableRecord>,
}

/// What `berth search` prints with `--json`.
#[derive(Debug, Default, Serialize)]
pub struct SearchAnswer {
    /// The text.
    pub prefix: String,
    /// The matches, by kind and id.
    pub matches: Vec<SearchMatch>,
    /// The kinds with more matches than are shown.
    pub more: Vec<SearchKind>,
    /// The kinds that were not searched, because the caller may not list them.
    pub not_allowed: Vec<SearchKind>,
    /// Records that cannot be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableRecord>,
}

impl SearchAnswer {
    /// One answer of the answers about each kind. Fails if the caller may list none of them, or if
    /// one could not be listed for another reason: a search without it would look complete.
    pub fn from_pages(
        prefix: &str,
        pages: Vec<(SearchKind, Result<SearchPage, Failure>)>,
    ) -> Result<Self, Failure> {
        let mut answer = Self { prefix: prefix.to_owned(), ..Self::default() };
        let (mut is_any_allowed, mut denial) = (false, None);
        for (kind, page) in pages {
            match page {
                Ok(page) => {
                    is_any_allowed = true;
                    answer.matches.extend(page.matches);
                    answer.unreadable.extend(page.unreadable);
                    answer.more.extend(page.has_more.then_some(kind));
                }
                Err(failure) if failure.code() == Some(Code::NotAllowed) => {
                    answer.not_allowed.push(kind);
                    denial.get_or_insert(failure);
                }
                Err(failure) => return Err(failure),
            }
        }
        match denial {
            Some(failure) if !is_any_allowed => Err(failure),
            _ => Ok(answer),
        }
    }
}

#[cfg(test)]
mod tests {
    use berth_contract::problem::Problem;

    use super::*;

    fn page(kind: SearchKind, has_more: bool) -> (SearchKind, Result<SearchPage, Failure>) {
        let (id, state) = ("data".to_owned(), "ready".to_owned());
        let matches = vec![SearchMatch { kind, namespace: None, id, state }];
        (kind, Ok(SearchPage { matches, has_more, unreadable: Vec::new() }))
    }

    fn failed(kind: SearchKind, code: Code) -> (SearchKind, Result<SearchPage, Failure>) {
        (kind, Err(Problem::new(code, "no").into()))
    }

    #[test]
    fn a_kind_that_may_not_be_listed_is_named_and_fails_no_other() {
        let pages = vec![
            page(SearchKind::Volumes, true),
            failed(SearchKind::Plugins, Code::NotAllowed),
            failed(SearchKind::Nodes, Code::NotAllowed),
            page(SearchKind::Classes, false),
        ];
        let answer = SearchAnswer::from_pages("da", pages).unwrap();
        let kinds: Vec<_> = answer.matches.iter().map(|found| found.kind).collect();
        assert_eq!(kinds, [SearchKind::Volumes, SearchKind::Classes]);
        assert_eq!(answer.more, [SearchKind::Volumes]);
        assert_eq!(answer.not_allowed, [SearchKind::Plugins, SearchKind::Nodes]);
    }

    #[test]
    fn a_search_fails_without_an_allowed_kind_and_with_a_kind_that_is_not_answered() {
        let denied = || failed(SearchKind::Volumes, Code::NotAllowed);
        let code = |pages| SearchAnswer::from_pages("da", pages).unwrap_err().code();
        assert_eq!(code(vec![denied()]), Some(Code::NotAllowed));
        let away = failed(SearchKind::Nodes, Code::NoResponder);
        assert_eq!(
            code(vec![page(SearchKind::Volumes, false), denied(), away]),
            Some(Code::NoResponder)
        );
    }
}
