//! A question that all who ask it at the same time share.
//!
//! **Promises** each caller the answer to a question that was sent after its call: the answer to an
//! earlier one may lack a write that was acknowledged in between.
//!
//! **Never** has two questions under way.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::cause::Cause;

/// The answer: a revision.
pub(crate) type AnsweredRevision = Result<u64, Cause>;

/// Those who wait for the next question.
#[derive(Default)]
pub(crate) struct SharedQuestion(Mutex<Askers>);

#[derive(Default)]
struct Askers {
    /// Asks until nobody waits.
    task: Option<JoinHandle<()>>,
    waiting: Vec<oneshot::Sender<AnsweredRevision>>,
}

impl SharedQuestion {
    /// Waits for the next question. `begin` starts the task that asks, if none does.
    pub(crate) fn enter(
        &self,
        begin: impl FnOnce() -> JoinHandle<()>,
    ) -> oneshot::Receiver<AnsweredRevision> {
        let (tell, told) = oneshot::channel();
        let mut askers = self.lock();
        askers.waiting.push(tell);
        // A task that failed is finished, too.
        if askers.task.as_ref().is_none_or(JoinHandle::is_finished) {
            askers.task = Some(begin());
        }
        told
    }

    /// Those who get the answer to the question that is sent now; none ends the task.
    pub(crate) fn take_waiting(&self) -> Option<Vec<oneshot::Sender<AnsweredRevision>>> {
        let mut askers = self.lock();
        if askers.waiting.is_empty() {
            askers.task = None;
            return None;
        }
        Some(std::mem::take(&mut askers.waiting))
    }

    fn lock(&self) -> MutexGuard<'_, Askers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_comes_while_a_question_is_under_way_gets_the_next_one() {
        let (question, mut tasks) = (SharedQuestion::default(), 0);
        let mut begin = || {
            tasks += 1;
            tokio::spawn(std::future::pending())
        };
        let _first = question.enter(&mut begin);
        assert_eq!(question.take_waiting().map(|waiting| waiting.len()), Some(1));
        // Under way from here on.
        let _others = (question.enter(&mut begin), question.enter(&mut begin));
        assert_eq!(question.take_waiting().map(|waiting| waiting.len()), Some(2));
        assert!(question.take_waiting().is_none());
        let _later = question.enter(&mut begin);
        assert_eq!(tasks, 2);
    }

    #[tokio::test]
    async fn a_task_that_failed_is_followed_by_another() {
        let question = SharedQuestion::default();
        let failed = tokio::spawn(std::future::pending());
        failed.abort();
        let waits_in_vain = question.enter(|| failed);
        while !question.lock().task.as_ref().unwrap().is_finished() {
            tokio::task::yield_now().await;
        }
        let mut is_begun = false;
        let _next = question.enter(|| {
            is_begun = true;
            tokio::spawn(async {})
        });
        assert!(is_begun);
        assert_eq!(question.take_waiting().map(|waiting| waiting.len()), Some(2));
        assert!(waits_in_vain.await.is_err());
    }
}
