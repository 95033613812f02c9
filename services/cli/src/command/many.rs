//! Several things by one command: sent together, and answered each for itself.

use std::fmt;
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::problem::Problem;
use serde::Serialize;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::failure::Failure;
use crate::output::data;
use crate::session::Session;

/// Pause before what was refused is sent again.
const PAUSE: Duration = Duration::from_millis(500);

/// Sends the requests together. Those whose refusal may pass are sent again until this time.
pub async fn ask_each<R: Clone, T>(
    requests: &[R],
    until: Instant,
    ask: impl AsyncFn(Vec<R>) -> Result<Vec<Result<T, Problem>>, Failure>,
) -> Result<Vec<Result<T, Problem>>, Failure> {
    let mut answers = ask(requests.to_vec()).await?;
    loop {
        let may_pass = |answer: &Result<T, Problem>| matches!(answer, Err(p) if p.retryable);
        let again: Vec<usize> = (0..answers.len()).filter(|at| may_pass(&answers[*at])).collect();
        if again.is_empty() || Instant::now() + PAUSE >= until {
            return Ok(answers);
        }
        sleep(PAUSE).await;
        let left = again.iter().map(|at| requests[*at].clone()).collect();
        // What each was refused for says more than that the retry failed as a whole.
        let Ok(newer) = ask(left).await else { return Ok(answers) };
        for (at, answer) in again.into_iter().zip(newer) {
            answers[at] = answer;
        }
    }
}

/// The problem of an answer that says neither what was done nor why not.
pub fn no_answer(id: &impl fmt::Display) -> Problem {
    Problem::new(Code::Internal, format!("the answer about {id} says nothing"))
}

/// Prints what was done, and fails with what was not.
pub fn report<T: Serialize>(
    answers: Vec<Result<T, Problem>>,
    session: &Session,
    text: impl Fn(&T) -> String,
) -> Result<(), Failure> {
    let answer = |answer: &Result<T, Problem>| match answer {
        Ok(done) => json!(done),
        Err(error) => json!({ "error": error }),
    };
    let all = json!({ "answers": answers.iter().map(answer).collect::<Vec<_>>() });
    if !session.output.json {
        answers.iter().flatten().for_each(|done| data(&text(done)));
    }
    let failures: Vec<Failure> =
        answers.into_iter().filter_map(Result::err).map(Failure::from).collect();
    if !failures.is_empty() {
        return Err(Failure::Several { failures, answers: Some(all) });
    }
    if session.output.json {
        session.output.reply(&all, |_| String::new());
    }
    Ok(())
}
