//! The table of verbs, by noun.
//!
//! **Owns** for each verb its name, its subject, which service answers and who sends it, its
//! request, its reply, its errors, and one line of documentation, which people also read in
//! `nats micro info`.
//!
//! To add a verb, add its row to the file of its noun, register its handler where the service
//! answers, and write its test: see "Adding a verb" in CONTRIBUTING.md.

#![expect(clippy::doc_markdown, reason = "`nats micro info` shows the text as it is")]

use super::Row;
use crate::actor::Actor;

/// Makes each row a type that implements [`Verb`](super::Verb), and lists the rows of the file.
macro_rules! verbs {
    ($(
        $(#[doc = $line:literal])+
        $name:ident {
            step: $step:literal, endpoint: $endpoint:literal,
            subject: $subject:literal, to: $to:ty,
            service: $service:ident, senders: [$($sender:ident),*], effect: $effect:ident,
            request: $request:ty, reply: $reply:ty,
            errors: [$($code:ident),* $(,)?] $(+ $group:ident)*,
        }
    )+) => {
        $(
            $(#[doc = $line])+
            #[derive(Debug, Clone, Copy)]
            pub enum $name {}

            impl crate::verb::Verb for $name {
                type To = $to;
                type Request = $request;
                type Reply = $reply;
                const ROW: crate::verb::Row = crate::verb::Row {
                    step: $step,
                    endpoint: $endpoint,
                    subject: $subject,
                    service: crate::service::$service,
                    senders: &[$(crate::verb::sender::senders::$sender),*],
                    effect: crate::verb::Effect::$effect,
                    errors: &[
                        crate::verb::errors::codes![$($code),*]
                        $(, crate::verb::errors::$group)*
                    ],
                    description: concat!($($line),+).trim_ascii(),
                    request: stringify!($request),
                    reply: stringify!($reply),
                };
            }
        )+

        /// The rows of this file.
        pub(super) const ROWS: &[crate::verb::Row] =
            &[$(<$name as crate::verb::Verb>::ROW),+];
    };
}

/// Names the files of the table once: their verbs are exported, and their rows are in [`ALL`].
macro_rules! files {
    ($($file:ident),+ $(,)?) => {
        $(mod $file;)+
        $(pub use $file::*;)+

        const FILES: &[&[Row]] = &[$($file::ROWS),+];
    };
}

files![
    volumes,
    storage,
    snapshots,
    classes,
    claims,
    work,
    allocs,
    history,
    secrets,
    registry,
    collection,
    levels,
    agents,
    controllers,
];

/// Every row.
pub const ALL: &[Row] = &JOINED;

const JOINED: [Row; COUNT] = join_rows();

const COUNT: usize = {
    let (mut count, mut file) = (0, 0);
    while file < FILES.len() {
        count += FILES[file].len();
        file += 1;
    }
    count
};

const fn join_rows() -> [Row; COUNT] {
    let mut rows = [FILES[0][0]; COUNT];
    let (mut count, mut file) = (0, 0);
    while file < FILES.len() {
        let mut row = 0;
        while row < FILES[file].len() {
            rows[count] = FILES[file][row];
            count += 1;
            row += 1;
        }
        file += 1;
    }
    rows
}

/// The form of a request's subject, which ends in the sender: `berth.v1.claim.take.<ns>`. None when
/// it is no request of Berth's.
pub fn form_of(subject: &str) -> Option<&'static str> {
    let (asked, _sender) = Actor::split(subject);
    let is_of = |form: &str| {
        let (forms, tokens) = (form.split('.'), asked.split('.'));
        forms.clone().count() == tokens.clone().count()
            && forms.zip(tokens).all(|(form, token)| form.starts_with('<') || form == token)
    };
    ALL.iter().map(|row| row.subject).find(|form| is_of(form))
}
