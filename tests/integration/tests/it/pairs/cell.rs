//! One cell: a volume, its states, the request, and the end of the states.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Row, Verb as _};
use berth_domain::{Namespace, NodeId};
use berth_harness::dirs::mounts_beneath;
use berth_harness::wait;
use berth_integration::{Options, System};
use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::cell_setup::CellSetup;
use super::states::State;
use super::verbs;

/// How long the effects of a request may take to show.
const AFTERMATH: Duration = Duration::from_millis(1_500);
/// How long a cell may take to come to rest.
const REST: Duration = Duration::from_secs(120);
/// The longest that a cell may take.
const CELL: Duration = Duration::from_secs(400);

/// Plays these verbs in these states, one cell after another; returns the failures. A system in
/// which a cell failed is not used again.
pub async fn play(states: &[State], rows: &[&'static Row]) -> Vec<String> {
    let (mut failed, mut system) = (Vec::new(), None);
    for (number, row) in rows.iter().enumerate() {
        let running = match system.take() {
            Some(running) => running,
            None => Arc::new(System::start(options(states)).await),
        };
        let step = row.step;
        let cell = AssertUnwindSafe(cell(&running, states, row, number)).catch_unwind();
        let outcome = match timeout(CELL, cell).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err("the cell panicked, as printed above".to_owned()),
            Err(_) => Err(format!("the cell takes longer than {CELL:?}")),
        };
        match outcome {
            Ok(answer) => {
                println!("{states:?} x {step}: {answer}");
                system = Some(running);
            }
            Err(fault) => {
                println!("{states:?} x {step}: FAILED: {fault}");
                failed.push(format!("{states:?} x {step}: {fault}"));
            }
        }
    }
    failed
}

fn options(states: &[State]) -> Options {
    Options {
        plain: states.iter().any(|state| state.is_plain()),
        driver: |_| vec!["--lenient".to_owned()],
        ..Options::default()
    }
}

async fn cell(
    system: &Arc<System>,
    states: &[State],
    row: &Row,
    number: usize,
) -> Result<String, String> {
    let has_class = states.iter().any(|state| state.has_class());
    let mut setup = CellSetup::create(system, number, has_class).await;
    verbs::prepare(system, &setup, row.step).await;
    let mut backup = None;
    for state in states {
        backup = backup.or(state.prepare(system).await);
    }
    setup.occupy(system).await;
    let mut entered = Vec::new();
    for state in states {
        entered.push((state, state.enter(system, &setup, backup.as_deref()).await));
    }

    let (subject, body) = verbs::request(system, &setup, row.step).await;
    let answer: Result<Value, Problem> = system.ask(&subject, &body).await;
    let outcome = match &answer {
        Ok(_) => "done".to_owned(),
        Err(problem) => problem.code.as_str().to_owned(),
    };
    let is_expected =
        |problem: &Problem| row.may_fail_with(problem.code) && problem.code != Code::Internal;
    let mut faults: Vec<String> = Vec::new();
    faults.extend(
        answer.err().filter(|problem| !is_expected(problem)).map(|problem| problem.to_string()),
    );
    sleep(AFTERMATH).await;
    let ended = verbs::ends_holder(row.step) || states.iter().any(|state| state.ends_holder());
    faults.extend(setup.fault_of_mount(ended));
    let granted = setup.take_elsewhere(system).await;
    let is_fenced = states.iter().any(|state| state.is_fenced());
    if !granted.is_empty() && setup.is_mounted() && !is_fenced {
        faults.push(format!("{granted:?} is granted on n2 while n1 has it mounted"));
    }
    faults.extend(setup.fault_of_mount(ended));

    for (state, undo) in entered.into_iter().rev() {
        state.leave(system, &setup, undo).await;
    }
    faults.extend(setup.fault_of_mount(true));
    setup.end_allocs(system).await;
    comes_to_rest(system, &setup).await;
    system.judge();
    if faults.is_empty() { Ok(outcome) } else { Err(faults.join("; ")) }
}

/// Waits until nothing is mounted, claimed or attached. Mounts without a claim are undone by an
/// operator's unmount, as docs/node.md says.
async fn comes_to_rest(system: &System, setup: &CellSetup) {
    let unmount = json!({"namespace": Namespace::default(), "volume": setup.volume});
    wait::until("the cell comes to rest", REST, || async {
        let mounts = mounts_beneath(system.dir().path());
        let mut claimed = Vec::new();
        for volume in [&setup.volume, &setup.second] {
            claimed.extend(system.claims(volume).await.claims);
        }
        let in_use = system.all_in_use();
        if mounts.is_empty() && claimed.is_empty() && in_use.is_empty() {
            return Ok(());
        }
        for node in ["n1", "n2"] {
            let subject = verb::AgentUnmount::subject(&NodeId::new(node).unwrap());
            let _refused: Result<Value, Problem> = system.ask(&subject, &unmount).await;
        }
        Err(format!("mounts {mounts:?}, claims {claimed:#?}, at the storage {in_use:#?}"))
    })
    .await;
}
