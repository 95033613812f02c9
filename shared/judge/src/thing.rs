//! What calls bring about and undo.
//!
//! Owns: attachments, stages and publications, and how sure it is that one is there. Promises: what
//! a call in flight, or one without an end, may have done counts as "may be there"; what the CO was
//! not told counts as not known to it. Never: looks at other things.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::Value;

use super::finding::Line;
use super::row::{Ask, Effect, Row, mode};

/// Numbers the calls of all logs.
pub(super) type CallId = u64;

/// The lines of a call, as far as they were read.
pub(super) type Lines = Rc<RefCell<Vec<Line>>>;

/// Where something is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Place {
    Attachment { node: String },
    Stage { node: String, path: String },
    Publication { node: String, path: String },
}

/// Something that is there, or may be.
#[derive(Debug)]
pub(super) struct Thing {
    pub asked: Asked,
    /// What the CO was told when this was attached last.
    pub context: Option<BTreeMap<String, String>>,
    /// The call that made it, or may have.
    pub by: CallId,
    pub lines: Lines,
    /// Whether the CO was told that it is there.
    known: bool,
    undo: Option<Undo>,
    /// Whether its node was fenced since: it is there, and cannot write.
    pub is_cut: bool,
}

/// A call that undid a thing, or may have.
#[derive(Debug)]
struct Undo {
    by: CallId,
    lines: Lines,
    done: bool,
}

/// How a thing was asked for.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Asked {
    pub capability: Option<Value>,
    pub readonly: bool,
    pub staging: String,
    volume_context: BTreeMap<String, String>,
}

impl Place {
    pub fn node(&self) -> &str {
        match self {
            Self::Attachment { node }
            | Self::Stage { node, .. }
            | Self::Publication { node, .. } => node,
        }
    }

    /// Its path on the node, if it has one.
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::Attachment { .. } => None,
            Self::Stage { path, .. } | Self::Publication { path, .. } => Some(path),
        }
    }
}

impl Asked {
    pub fn of(ask: &Ask) -> Self {
        Self {
            capability: ask.volume_capability.clone(),
            readonly: ask.readonly,
            staging: ask.staging_target_path.clone(),
            volume_context: ask.volume_context.clone(),
        }
    }

    fn mode(&self) -> &str {
        mode(self.capability.as_ref())
    }

    /// Whether several nodes may have it at once; not where no mode was given.
    pub fn is_shared(&self) -> bool {
        self.mode().starts_with("MULTI_NODE_")
    }

    /// Whether one node at a time may write, of several that have it.
    pub fn is_for_one_writer(&self) -> bool {
        self.mode() == "MULTI_NODE_SINGLE_WRITER"
    }

    /// Whether nobody may write.
    pub fn is_for_readers(&self) -> bool {
        self.readonly || self.mode().ends_with("_READER_ONLY")
    }

    /// Whether one node may publish it at several targets.
    pub fn is_for_many_targets(&self) -> bool {
        self.is_shared() || self.mode() == "SINGLE_NODE_MULTI_WRITER"
    }
}

impl Thing {
    /// A thing that a call which just began may make.
    pub fn may_be(asked: Asked, by: CallId, lines: Lines) -> Self {
        Self { asked, context: None, by, lines, known: false, undo: None, is_cut: false }
    }

    /// Whether the CO knows that it is there.
    pub fn is_sure(&self) -> bool {
        self.known && self.undo.is_none()
    }

    /// Whether the CO was ever told that it is there.
    pub fn was_known(&self) -> bool {
        self.known
    }

    /// Whether it is gone, and the CO was not told.
    pub fn is_gone_untold(&self) -> bool {
        self.undo.as_ref().is_some_and(|undo| undo.done)
    }

    /// The calls that make it what it is.
    pub fn proof(&self) -> Vec<Lines> {
        let undo = self.undo.iter().map(|undo| Rc::clone(&undo.lines));
        [Rc::clone(&self.lines)].into_iter().chain(undo).collect()
    }

    /// The call that may make it ended. False where the thing is not there.
    pub fn made(&mut self, by: CallId, lines: &Lines, ask: &Ask, row: &Row) -> bool {
        match row.effect {
            Some(Effect::Done) => {
                self.asked = Asked::of(ask);
                (self.by, self.lines) = (by, Rc::clone(lines));
                self.known = row.is_told() || self.is_sure();
                self.undo = None;
                if row.is_told() {
                    self.context = Some(row.answer.publish_context.clone());
                }
                true
            }
            Some(Effect::None) => self.by != by || self.known,
            Some(Effect::Unknown) | None => {
                self.known = false;
                true
            }
        }
    }

    /// A call began that may undo it.
    pub fn may_go(&mut self, by: CallId, lines: &Lines) {
        // One that may have undone it before stays in doubt.
        let lines = Rc::clone(lines);
        self.undo.get_or_insert(Undo { by, lines, done: false });
    }

    /// The call that may undo it ended. False where the thing is gone, and the CO knows.
    pub fn undone(&mut self, by: CallId, row: &Row) -> bool {
        match row.effect {
            Some(Effect::Done) if row.is_told() => return false,
            Some(Effect::Done) => {
                if let Some(undo) = &mut self.undo {
                    undo.done = true;
                }
            }
            Some(Effect::None) => drop(self.undo.take_if(|undo| undo.by == by && !undo.done)),
            Some(Effect::Unknown) | None => {}
        }
        true
    }
}
