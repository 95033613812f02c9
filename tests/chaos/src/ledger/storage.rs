//! What the callers were told of volumes and snapshots at their storage.

use super::{Ledger, Micros, now_us};

/// A volume whose creation was acknowledged. A volume that is created again is another one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Created {
    /// Its id.
    pub id: String,
    /// Its name for the plugin, which no other volume ever has.
    pub name: String,
    /// Before the creation was requested.
    pub requested: Micros,
    /// How it was requested.
    pub request: CreationRequest,
    /// Whether a caller saw that it can be claimed.
    pub ready: bool,
    /// The largest size that a caller saw, in bytes.
    pub bytes: u64,
    /// Before the first request was sent that may delete it. None while there is none, or if it
    /// was refused for certain.
    pub let_go: Option<Micros>,
    /// Whether a caller was told that it is deleted.
    pub gone: bool,
}

/// How a creation was requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreationRequest {
    /// As an empty volume.
    Empty,
    /// As a copy of a volume or a snapshot.
    Copy,
    /// For one run: it goes with its alloc.
    ForRun,
    /// By a request that was not answered.
    Unknown,
}

impl Created {
    /// Whether nothing may have ended it: it can be claimed.
    pub fn is_surely_there(&self) -> bool {
        self.ready && self.let_go.is_none() && self.request != CreationRequest::ForRun
    }
}

/// A snapshot that was acknowledged as ready.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cut {
    /// Its volume.
    pub volume: String,
    /// Its id, which no other snapshot of the run has, but for those of its group.
    pub snapshot: String,
    /// The plugin's id of it.
    pub external_id: String,
    /// Whether it was cut with others.
    pub in_group: bool,
    /// Before the first request was sent that may delete it.
    pub let_go: Option<Micros>,
    /// Whether a caller was told that it is deleted.
    pub gone: bool,
}

impl Ledger {
    /// A creation was acknowledged.
    pub fn created(&self, created: Created) {
        let mut book = self.book();
        if !book.created.iter().any(|known| known.name == created.name) {
            book.created.push(created);
        }
    }

    /// Changes what is known of a volume by its name for the plugin.
    pub fn change_created(&self, name: &str, change: impl FnOnce(&mut Created)) {
        if let Some(known) = self.book().created.iter_mut().find(|known| known.name == name) {
            change(known);
        }
    }

    /// The volume of this id that is surely there; none while it may not be.
    pub fn surely_created(&self, id: &str) -> Option<Created> {
        let book = self.book();
        book.created.iter().find(|known| known.id == id && known.is_surely_there()).cloned()
    }

    /// A snapshot was acknowledged as ready.
    pub fn cut(&self, cut: Cut) {
        let mut book = self.book();
        if !book.cut.iter().any(|known| known.external_id == cut.external_id) {
            book.cut.push(cut);
        }
    }

    /// Snapshots that no caller has deleted.
    pub fn standing_cuts(&self) -> Vec<Cut> {
        let book = self.book();
        book.cut.iter().filter(|known| known.let_go.is_none()).cloned().collect()
    }

    /// A request that may delete the snapshot, or its group, is about to be sent.
    pub fn lets_cut_go(&self, snapshot: &str) {
        let now = now_us();
        let mut book = self.book();
        let own = book.cut.iter_mut().filter(|known| known.snapshot == snapshot);
        own.for_each(|known| known.let_go = known.let_go.or(Some(now)));
    }

    /// A caller was told that the snapshot, with its group, is deleted.
    pub fn cut_is_gone(&self, snapshot: &str) {
        let mut book = self.book();
        let own = book.cut.iter_mut().filter(|known| known.snapshot == snapshot);
        own.for_each(|known| known.gone = true);
    }
}
