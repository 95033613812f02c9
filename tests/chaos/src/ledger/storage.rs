//! What callers were told about volumes and snapshots at their storage.

use super::{Ledger, Micros, now_us};

/// A volume whose creation was acknowledged. A volume that is deleted and created again is
/// another volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreatedVolume {
    /// Its id.
    pub id: String,
    /// The name by which the plugin created it. No other volume ever has the same name.
    pub name: String,
    /// The moment before its creation was requested.
    pub requested: Micros,
    /// How its creation was requested.
    pub request: CreationRequest,
    /// Whether a caller saw that it can be claimed.
    pub ready: bool,
    /// The largest size that a caller saw, in bytes.
    pub bytes: u64,
    /// The moment before the first request was sent that may delete it. `None` if there was no
    /// such request, or if the plugin refused it for certain.
    pub let_go: Option<Micros>,
    /// Whether a caller was told that it is deleted.
    pub gone: bool,
}

/// How the creation of a volume was requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreationRequest {
    /// As an empty volume.
    Empty,
    /// As a copy of a volume or a snapshot.
    Copy,
    /// For one alloc: the volume is deleted when the alloc ends.
    ForRun,
    /// By a request that was never answered.
    Unknown,
}

impl CreatedVolume {
    /// Whether the volume can be claimed and no request was sent that may delete it.
    pub fn is_surely_there(&self) -> bool {
        self.ready && self.let_go.is_none() && self.request != CreationRequest::ForRun
    }
}

/// A snapshot that was acknowledged as ready.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CutSnapshot {
    /// The id of its volume.
    pub volume: String,
    /// Its id. Only the snapshots of one group share an id.
    pub snapshot: String,
    /// The id that the plugin gave it.
    pub external_id: String,
    /// Whether it belongs to a group.
    pub in_group: bool,
    /// The moment before the first request was sent that may delete it; `None` before that.
    pub let_go: Option<Micros>,
    /// Whether a caller was told that it is deleted.
    pub gone: bool,
}

impl Ledger {
    /// Records an acknowledged creation.
    pub fn created(&self, created: CreatedVolume) {
        let mut book = self.book();
        if !book.created.iter().any(|entry| entry.name == created.name) {
            book.created.push(created);
        }
    }

    /// Changes the entry of the volume that has this name at the plugin.
    pub fn change_created(&self, name: &str, change: impl FnOnce(&mut CreatedVolume)) {
        if let Some(entry) = self.book().created.iter_mut().find(|entry| entry.name == name) {
            change(entry);
        }
    }

    /// The volume of this id that can surely be claimed; `None` while that is in doubt.
    pub fn surely_created(&self, id: &str) -> Option<CreatedVolume> {
        let book = self.book();
        book.created.iter().find(|entry| entry.id == id && entry.is_surely_there()).cloned()
    }

    /// Records a snapshot that was acknowledged as ready.
    pub fn cut(&self, cut: CutSnapshot) {
        let mut book = self.book();
        if !book.cut.iter().any(|entry| entry.external_id == cut.external_id) {
            book.cut.push(cut);
        }
    }

    /// The snapshots that no caller has asked to delete.
    pub fn standing_cuts(&self) -> Vec<CutSnapshot> {
        let book = self.book();
        book.cut.iter().filter(|entry| entry.let_go.is_none()).cloned().collect()
    }

    /// Records that a request is about to be sent that may delete the snapshot with its group.
    pub fn lets_cut_go(&self, snapshot: &str) {
        let now = now_us();
        let mut book = self.book();
        let entries = book.cut.iter_mut().filter(|entry| entry.snapshot == snapshot);
        entries.for_each(|entry| entry.let_go = entry.let_go.or(Some(now)));
    }

    /// Records that a caller was told that the snapshot and its group are deleted.
    pub fn cut_is_gone(&self, snapshot: &str) {
        let mut book = self.book();
        let entries = book.cut.iter_mut().filter(|entry| entry.snapshot == snapshot);
        entries.for_each(|entry| entry.gone = true);
    }
}
