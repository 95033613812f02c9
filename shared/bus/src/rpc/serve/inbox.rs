//! Where a service sends its replies.
//!
//! The caller chooses the subject of the reply, and the service publishes there with its own
//! rights. A caller who may only read could name the key of a record, and the reply would replace
//! the record.

/// Whether a reply subject is an inbox: of our clients, of others, or the server's for a caller
/// of another account.
pub(super) fn is_inbox(subject: &str) -> bool {
    ["_INBOX", "_R_"].contains(&subject.split('.').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_inboxes_get_replies() {
        for inbox in ["_INBOX.a", "_INBOX.a.b", "_INBOX.UABC.a.b", "_R_.a.b"] {
            assert!(is_inbox(inbox), "{inbox}");
        }
        for other in [
            "",
            "a",
            "$KV.berth-volumes.default.data.spec",
            "berth.v1.node.gone.user.root",
            "_INBOXES.a",
            "_INBOX_UABC.a",
            "x._INBOX.a",
        ] {
            assert!(!is_inbox(other), "{other}");
        }
    }
}
