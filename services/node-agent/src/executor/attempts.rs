//! The attempts that came to this agent: each is made once (rule 2).
//!
//! **Why.** A worker sends a copy of a call after a reconnect, because the answer to the earlier
//! connection is lost.
//!
//! **Promises** that a second copy of an attempt gets the first copy's answer, and calls nothing;
//! and that the number of attempts is bounded: the oldest are forgotten, long after their
//! deadlines.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use berth_contract::problem::Problem;
use berth_domain::AttemptId;
use tokio::sync::watch;

/// Largest number of attempts that are remembered.
const ATTEMPTS_MAX: usize = 4096;

/// The attempts, with the answer of each once it is there. Cheap to clone.
#[derive(Debug)]
pub struct Attempts<T> {
    memory: Arc<Mutex<AttemptMemory<T>>>,
}

type MaybeAnswer<T> = Option<Result<T, Problem>>;

#[derive(Debug)]
struct AttemptMemory<T> {
    answers: HashMap<AttemptId, watch::Receiver<MaybeAnswer<T>>>,
    order: VecDeque<AttemptId>,
}

impl<T> Clone for Attempts<T> {
    fn clone(&self) -> Self {
        Self { memory: Arc::clone(&self.memory) }
    }
}

impl<T> Default for Attempts<T> {
    fn default() -> Self {
        let memory = AttemptMemory { answers: HashMap::new(), order: VecDeque::new() };
        Self { memory: Arc::new(Mutex::new(memory)) }
    }
}

impl<T: Clone> Attempts<T> {
    /// Makes the call of an attempt. If it is under way or was made, waits for that answer. Both
    /// copies have the same deadline, by which the first one is answered.
    pub async fn once(
        &self,
        attempt: &AttemptId,
        make: impl Future<Output = Result<T, Problem>>,
    ) -> Result<T, Problem> {
        loop {
            match self.begin(attempt) {
                Ok(first) => {
                    let answer = make.await;
                    first.send_replace(Some(answer.clone()));
                    return answer;
                }
                Err(mut copy) => {
                    if let Ok(answer) = copy.wait_for(Option::is_some).await
                        && let Some(answer) = answer.clone()
                    {
                        return answer;
                    }
                }
            }
        }
    }

    /// Remembers the attempt. Fails with its answer to come if it is known; one whose making was
    /// given up is not.
    fn begin(
        &self,
        attempt: &AttemptId,
    ) -> Result<watch::Sender<MaybeAnswer<T>>, watch::Receiver<MaybeAnswer<T>>> {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = memory.answers.get(attempt)
            && (known.borrow().is_some() || known.has_changed().is_ok())
        {
            return Err(known.clone());
        }
        let (first, answer) = watch::channel(None);
        if memory.answers.insert(attempt.clone(), answer).is_none() {
            memory.order.push_back(attempt.clone());
        }
        if memory.order.len() > ATTEMPTS_MAX
            && let Some(oldest) = memory.order.pop_front()
        {
            memory.answers.remove(&oldest);
        }
        Ok(first)
    }
}

#[cfg(test)]
mod tests {
    use berth_contract::code::Code;
    use tokio::sync::oneshot;

    use super::*;

    fn id(of: &str) -> AttemptId {
        AttemptId::new(of).unwrap()
    }

    async fn never() -> Result<u32, Problem> {
        tokio::task::yield_now().await;
        panic!("it is made twice")
    }

    #[tokio::test]
    async fn a_second_copy_gets_the_first_ones_answer_before_and_after_it_is_there() {
        let attempts = Attempts::default();
        let (go, held) = oneshot::channel::<()>();
        let (first, second) = (id("a"), id("a"));
        let made = attempts.once(&first, async {
            held.await.unwrap();
            Ok(7)
        });
        let copy = attempts.once(&second, never());
        let (made, copy, ()) = tokio::join!(made, copy, async { go.send(()).unwrap() });
        assert_eq!((made.unwrap(), copy.unwrap()), (7, 7));
        assert_eq!(attempts.once(&second, never()).await.unwrap(), 7);
        assert_eq!(attempts.once(&id("b"), async { Ok(8) }).await.unwrap(), 8);
        let refused = async { Err(Problem::new(Code::PluginFailed, "no")) };
        assert_eq!(attempts.once(&id("c"), refused).await.unwrap_err().code, Code::PluginFailed);
        assert_eq!(attempts.once(&id("c"), never()).await.unwrap_err().code, Code::PluginFailed);
    }

    #[tokio::test]
    async fn what_was_given_up_before_its_answer_is_made_again() {
        let attempts = Attempts::default();
        let given_up = id("a");
        let pending = attempts.once(&given_up, std::future::pending());
        assert!(tokio::time::timeout(std::time::Duration::ZERO, pending).await.is_err());
        assert_eq!(attempts.once(&id("a"), async { Ok(7) }).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn the_oldest_are_forgotten() {
        let attempts = Attempts::default();
        for at in 0..ATTEMPTS_MAX + 10 {
            attempts.once(&id(&format!("a{at}")), async { Ok(at) }).await.unwrap();
        }
        let memory = attempts.memory.lock().unwrap();
        assert_eq!((memory.answers.len(), memory.order.len()), (ATTEMPTS_MAX, ATTEMPTS_MAX));
    }
}
