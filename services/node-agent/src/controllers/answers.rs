//! What a plugin answered for the name of a new volume, snapshot or group.
//!
//! **Why.** The name is CSI's key of idempotency: the same name gives the same thing. Not every
//! plugin keeps that. One that gives another id has made a second volume, which no record would
//! know. One that refuses its own retry, because the thing exists, would leave a thing at the
//! storage whose id no record knows: then the answer that nobody waited for is all there is.
//!
//! **Promises** that a successful answer is kept for [`KEPT_FOR`], and given to the next call for
//! its name in place of a second call of the plugin; that it is dropped when this controller
//! deletes the thing; and that the number of answers is bounded.
//!
//! **Never** keeps a failure: the plugin is asked again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use berth_contract::code::Code;
use berth_contract::message::agent::LateAnswer;
use berth_contract::message::call::StorageCall;
use berth_contract::message::storage_call::StorageWork;
use berth_contract::problem::Problem;
use berth_domain::Timestamp;
use berth_domain::volume::StorageAnswer;
use berth_service::clock;

use crate::executor::ANSWER_BEFORE_DEADLINE;

/// Largest number of names whose ids are remembered.
const NAMES_MAX: usize = 4096;
/// Largest number of answers that are kept. Those that nobody waited for go last.
const ANSWERS_MAX: usize = 512;
/// How long an answer is kept. The next call comes much sooner, and a record that was restored from
/// a backup asks later, perhaps for what was deleted meanwhile.
const KEPT_FOR: Duration = Duration::from_secs(600);

/// The answers, by name. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct CreationAnswers {
    memory: Arc<Mutex<AnswerMemory>>,
}

#[derive(Debug, Default)]
struct AnswerMemory {
    ids: HashMap<String, String>,
    answers: HashMap<String, KeptAnswer>,
}

#[derive(Debug)]
struct KeptAnswer {
    answer: StorageAnswer,
    at: Instant,
    /// How it is listed, if nobody waited for it any more.
    late: Option<LateAnswer>,
}

impl CreationAnswers {
    /// Refuses an id that differs from the one answered before for the name.
    pub(super) fn check(&self, name: &str, id: &str) -> Result<(), Problem> {
        let ids = &mut self.lock().ids;
        if let Some(before) = ids.get(name).filter(|before| *before != id) {
            let message = format!(
                "the plugin answered CreateVolume for the name {name:?} with the id {id:?}, and \
                 with {before:?} before: it does not keep CSI's rule that a name gives one volume, \
                 and has made two"
            );
            let next =
                "delete one of the two at the storage, and report it to the plugin's authors";
            return Err(Problem::new(Code::PluginFailed, message).retryable().next(next));
        }
        if ids.len() >= NAMES_MAX {
            ids.clear();
        }
        ids.insert(name.to_owned(), id.to_owned());
        Ok(())
    }

    /// What the plugin answered for the thing that the call is to create.
    pub(super) fn find(&self, call: &StorageCall) -> Option<StorageAnswer> {
        let mut memory = self.lock();
        memory.answers.retain(|_, kept| kept.at.elapsed() < KEPT_FOR);
        Some(memory.answers.get(call.details.work.creates()?)?.answer.clone())
    }

    /// Keeps the answer of a call, if it created something, and drops what the call deleted.
    /// Its caller waits until shortly before `deadline`.
    pub(super) fn keep(
        &self,
        call: &StorageCall,
        deadline: Timestamp,
        answer: Option<&StorageAnswer>,
    ) {
        let answers = &mut self.lock().answers;
        if let Some(deleted) = deleted_id(call) {
            answers.retain(|_, kept| id_of(&kept.answer) != Some(deleted));
        }
        let (Some(name), Some(answer)) = (call.details.work.creates(), answer) else { return };
        let is_late = clock::now().after(ANSWER_BEFORE_DEADLINE) >= deadline;
        let late = is_late.then(|| late_answer(call, name));
        let kept = KeptAnswer { answer: answer.clone(), at: Instant::now(), late };
        answers.insert(name.to_owned(), kept);
        if answers.len() > ANSWERS_MAX {
            let oldest = answers.iter().min_by_key(|(_, kept)| (kept.late.is_some(), kept.at));
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                answers.remove(&oldest);
            }
        }
    }

    /// The answers that nobody waited for any more.
    pub fn late(&self) -> Vec<LateAnswer> {
        let memory = self.lock();
        let kept = memory.answers.values().filter(|kept| kept.at.elapsed() < KEPT_FOR);
        kept.filter_map(|kept| kept.late.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, AnswerMemory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn late_answer(call: &StorageCall, name: &str) -> LateAnswer {
    LateAnswer {
        namespace: call.namespace.clone(),
        volume: call.volume.clone(),
        step: call.call.to_string(),
        name: name.to_owned(),
        at: clock::now(),
    }
}

/// The plugin's id of what the call deletes.
fn deleted_id(call: &StorageCall) -> Option<&str> {
    match &call.details.work {
        StorageWork::Delete => Some(&call.external_id),
        StorageWork::DeleteSnapshot { id } => Some(id),
        StorageWork::DeleteGroup(ids) => Some(&ids.group),
        _ => None,
    }
}

fn id_of(answer: &StorageAnswer) -> Option<&str> {
    match answer {
        StorageAnswer::Volume(made) => Some(&made.external_id),
        StorageAnswer::Snapshot(cut) => Some(&cut.external_id),
        StorageAnswer::Group { external_id, .. } => Some(external_id),
        StorageAnswer::Capacity { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use berth_contract::message::call::Call;
    use berth_contract::message::storage_call::{GroupIds, StorageDetails};
    use berth_domain::volume::{CallKind, CreatedVolume, CutSnapshot};
    use berth_domain::{AttemptId, Namespace, PluginId, VolumeId};

    use super::*;

    fn call(work: StorageWork) -> StorageCall {
        Call {
            call: CallKind::SnapshotCreate,
            attempt: AttemptId::new("a-1").unwrap(),
            revision: 1,
            deadline: Timestamp::default(),
            namespace: Namespace::default(),
            volume: VolumeId::new("data").unwrap(),
            external_id: "vol-1".to_owned(),
            plugin: PluginId::new("p").unwrap(),
            ask_first: Vec::new(),
            secrets: None,
            details: StorageDetails { snapshot: None, others: Vec::new(), node: None, work },
        }
    }

    fn cut(name: &str, cut: Option<&str>) -> StorageCall {
        let (name, cut) = (name.to_owned(), cut.map(str::to_owned));
        call(StorageWork::Snapshot { name, parameters: BTreeMap::default(), cut })
    }

    fn answered(id: &str) -> StorageAnswer {
        StorageAnswer::Snapshot(CutSnapshot {
            external_id: id.to_owned(),
            source: "vol-1".to_owned(),
            size_bytes: 1,
            cut_at: None,
            ready: true,
            usable_from: Vec::new(),
        })
    }

    #[test]
    fn a_name_gives_one_id() {
        let names = CreationAnswers::default();
        assert!(names.check("a", "1").is_ok() && names.check("a", "1").is_ok());
        assert!(names.check("b", "1").is_ok(), "another name may give any id");
        let differs = names.check("a", "2").unwrap_err();
        assert!(differs.message.contains("made two"), "{differs}");
        assert!(names.check("a", "1").is_ok(), "the first id stays");
    }

    #[test]
    fn an_answer_is_given_to_the_next_call_for_its_name_until_the_thing_is_deleted() {
        let answers = CreationAnswers::default();
        let soon = clock::now().after(Duration::from_secs(60));
        answers.keep(&cut("late", None), clock::now(), Some(&answered("s-1")));
        answers.keep(&cut("in-time", None), soon, Some(&answered("s-2")));
        assert_eq!(answers.find(&cut("late", None)), Some(answered("s-1")));
        assert_eq!(answers.find(&cut("in-time", None)), Some(answered("s-2")));
        assert_eq!(answers.find(&cut("other", None)), None);
        assert_eq!(answers.find(&cut("late", Some("s-1"))), None, "it asks whether it is ready");
        let listed: Vec<_> = answers.late().into_iter().map(|late| late.name).collect();
        assert_eq!(listed, ["late"]);

        answers.keep(&call(StorageWork::DeleteSnapshot { id: "s-1".to_owned() }), soon, None);
        assert_eq!(answers.find(&cut("late", None)), None);
        let volume = CreatedVolume { external_id: "vol-1".to_owned(), ..CreatedVolume::default() };
        let group = StorageWork::Group {
            name: "group".to_owned(),
            sources: Vec::new(),
            parameters: BTreeMap::default(),
            cut: None,
        };
        let of_group = StorageAnswer::Group {
            external_id: "g-1".to_owned(),
            ready: false,
            snapshots: Vec::new(),
        };
        answers.keep(&call(group.clone()), soon, Some(&of_group));
        answers.keep(&cut("vol", None), soon, Some(&StorageAnswer::Volume(volume)));
        let ids = GroupIds { group: "g-1".to_owned(), snapshots: Vec::new() };
        answers.keep(&call(StorageWork::DeleteGroup(ids)), soon, None);
        assert_eq!(answers.find(&call(group)), None);
        answers.keep(&call(StorageWork::Delete), soon, None);
        assert_eq!(answers.find(&cut("vol", None)), None);
    }

    #[test]
    fn those_that_nobody_waited_for_are_dropped_last() {
        let answers = CreationAnswers::default();
        let soon = clock::now().after(Duration::from_secs(60));
        answers.keep(&cut("late", None), clock::now(), Some(&answered("s")));
        for at in 0..ANSWERS_MAX {
            answers.keep(&cut(&format!("n{at}"), None), soon, Some(&answered("s")));
        }
        assert!(answers.find(&cut("late", None)).is_some());
        assert_eq!(answers.lock().answers.len(), ANSWERS_MAX);
    }
}
