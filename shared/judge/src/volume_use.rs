//! Attachments, stages and publications.
//!
//! Owns: one use of a volume, and how certain it is. Promises: the possible effect of an unfinished
//! call counts as "may exist". The CO does not know what it was not answered. Never: looks at other
//! uses.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::Value;

use super::finding::LogLine;
use super::log_row::{CallArguments, CallEffect, LogRow, mode};

/// The number of a call, unique over all logs.
pub(super) type CallId = u64;

/// The lines of a call that were read so far.
pub(super) type CallLines = Rc<RefCell<Vec<LogLine>>>;

/// Node and path of a use.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum UseLocation {
    Attachment { node: String },
    Stage { node: String, path: String },
    Publication { node: String, path: String },
}

/// A use that exists or may exist.
#[derive(Debug)]
pub(super) struct VolumeUse {
    pub asked: UseRequest,
    /// The publish context that the CO was answered last.
    pub context: Option<BTreeMap<String, String>>,
    /// The call that created it, or may have.
    pub by: CallId,
    pub lines: CallLines,
    /// Whether the CO knows that it exists.
    known: bool,
    undo: Option<UndoCall>,
    /// Whether its node was fenced since: the mount exists but cannot write.
    pub is_cut: bool,
}

/// A call that undid a use, or may have.
#[derive(Debug)]
struct UndoCall {
    by: CallId,
    lines: CallLines,
    done: bool,
}

/// The arguments of the request for a use. A repeated request must have the same.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct UseRequest {
    pub capability: Option<Value>,
    pub readonly: bool,
    pub staging: String,
    volume_context: BTreeMap<String, String>,
}

impl UseLocation {
    pub fn node(&self) -> &str {
        match self {
            Self::Attachment { node }
            | Self::Stage { node, .. }
            | Self::Publication { node, .. } => node,
        }
    }

    /// `None` for an attachment.
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::Attachment { .. } => None,
            Self::Stage { path, .. } | Self::Publication { path, .. } => Some(path),
        }
    }
}

impl UseRequest {
    pub fn from_arguments(args: &CallArguments) -> Self {
        Self {
            capability: args.volume_capability.clone(),
            readonly: args.readonly,
            staging: args.staging_target_path.clone(),
            volume_context: args.volume_context.clone(),
        }
    }

    fn mode(&self) -> &str {
        mode(self.capability.as_ref())
    }

    /// Whether several nodes may have it at once; false if there is no mode.
    pub fn is_shared(&self) -> bool {
        self.mode().starts_with("MULTI_NODE_")
    }

    /// Whether only one of several nodes may write.
    pub fn is_for_one_writer(&self) -> bool {
        self.mode() == "MULTI_NODE_SINGLE_WRITER"
    }

    pub fn is_for_readers(&self) -> bool {
        self.readonly || self.mode().ends_with("_READER_ONLY")
    }

    pub fn is_for_many_targets(&self) -> bool {
        self.is_shared() || self.mode() == "SINGLE_NODE_MULTI_WRITER"
    }
}

impl VolumeUse {
    /// A use that a call may create from now on.
    pub fn possible(asked: UseRequest, by: CallId, lines: CallLines) -> Self {
        Self { asked, context: None, by, lines, known: false, undo: None, is_cut: false }
    }

    /// Whether the CO knows that it exists.
    pub fn is_sure(&self) -> bool {
        self.known && self.undo.is_none()
    }

    pub fn was_known(&self) -> bool {
        self.known
    }

    pub fn is_undone_but_unconfirmed(&self) -> bool {
        self.undo.as_ref().is_some_and(|undo| undo.done)
    }

    /// The calls that prove it.
    pub fn proof(&self) -> Vec<CallLines> {
        let undo = self.undo.iter().map(|undo| Rc::clone(&undo.lines));
        [Rc::clone(&self.lines)].into_iter().chain(undo).collect()
    }

    /// Applies the end of the call that may have created it. False if the use does not exist.
    pub fn made(
        &mut self,
        by: CallId,
        lines: &CallLines,
        args: &CallArguments,
        row: &LogRow,
    ) -> bool {
        match row.effect {
            Some(CallEffect::Done) => {
                self.asked = UseRequest::from_arguments(args);
                (self.by, self.lines) = (by, Rc::clone(lines));
                self.known = row.is_known_success() || self.is_sure();
                self.undo = None;
                if row.is_known_success() {
                    self.context = Some(row.answer.publish_context.clone());
                }
                true
            }
            Some(CallEffect::None) => self.by != by || self.known,
            Some(CallEffect::Unknown) | None => {
                self.known = false;
                true
            }
        }
    }

    /// A call that may undo it has begun.
    pub fn mark_undoing(&mut self, by: CallId, lines: &CallLines) {
        // The first call that may have undone it is kept.
        let lines = Rc::clone(lines);
        self.undo.get_or_insert(UndoCall { by, lines, done: false });
    }

    /// Applies the end of the call that may have undone it. False if the use is gone and the CO
    /// knows.
    pub fn undone(&mut self, by: CallId, row: &LogRow) -> bool {
        match row.effect {
            Some(CallEffect::Done) if row.is_known_success() => return false,
            Some(CallEffect::Done) => {
                if let Some(undo) = &mut self.undo {
                    undo.done = true;
                }
            }
            Some(CallEffect::None) => drop(self.undo.take_if(|undo| undo.by == by && !undo.done)),
            Some(CallEffect::Unknown) | None => {}
        }
        true
    }
}
