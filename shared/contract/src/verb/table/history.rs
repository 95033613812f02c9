//! Events of the last days.

use berth_domain::Namespace;

use crate::message::history;

verbs! {
    /// List events of the last days, oldest first: kinds, volumes, allocs, node, plugin, trace
    HistoryList {
        step: "history.list", endpoint: "history-list",
        subject: "berth.v1.history.list.<ns>", to: Namespace,
        service: CLAIM, senders: [READ], effect: Read,
        request: history::ListEvents, reply: history::EventPage,
        errors: [],
    }
}
