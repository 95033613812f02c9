//! The printed steps of a release, so that each step is printed once and in order.

use std::collections::BTreeMap;

use berth_contract::event::Event;
use berth_contract::message::claim::ClaimStatus;
use berth_domain::volume::State;
use berth_domain::{Timestamp, VolumeId};

use crate::table::plain;
use crate::wait::WaitStep;

/// The progress of one claim, by its events so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ClaimProgress {
    stage: Stage,
    /// The event's detail: the call, and its worker.
    detail: String,
    tries: u32,
    error: Option<String>,
}

/// The states of a claim, in the order of a release.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    #[default]
    Unheard,
    Held(State),
    Free,
}

/// The steps printed so far.
#[derive(Debug, Default)]
pub struct Steps {
    told: BTreeMap<VolumeId, ClaimProgress>,
}

impl Steps {
    /// The line for an event; none when it contains nothing new.
    pub fn event(&mut self, event: &Event) -> Option<String> {
        let volume = event.volume.clone()?;
        let name = event.event.as_str().strip_prefix("claim.")?;
        let stage = stage(name)?;
        let detail = event.detail.as_deref().filter(|detail| !detail.is_empty());
        let detail = detail.map(plain).unwrap_or_default();
        let printed = self.told.entry(volume.clone()).or_default();
        if stage < printed.stage
            || (stage == printed.stage && (detail.is_empty() || detail == printed.detail))
        {
            return None;
        }
        let line = match (stage > printed.stage, detail.as_str()) {
            (true, "") => format!("{volume}: {}", word(stage)),
            (true, detail) => format!("{volume}: {} ({detail})", word(stage)),
            (false, detail) => format!("{volume}: {detail}"),
        };
        *printed = ClaimProgress { stage, detail, ..ClaimProgress::default() };
        Some(line)
    }

    /// The lines for steps of the status that were not printed yet.
    pub fn status(&mut self, claims: &[ClaimStatus], now: Timestamp) -> Vec<String> {
        let mut lines = Vec::new();
        for claim in claims {
            let printed = self.told.entry(claim.volume.clone()).or_default();
            let current = ClaimProgress {
                stage: Stage::Held(claim.state),
                detail: printed.detail.clone(),
                tries: claim.tries,
                error: claim.error().map(str::to_owned),
            };
            // The status is older than an event that is printed already.
            if current.stage < printed.stage || current == *printed {
                continue;
            }
            lines.push(describe(claim, now).to_string());
            *printed = current;
        }
        for (volume, printed) in &mut self.told {
            let held = claims.iter().any(|claim| claim.volume == *volume);
            if !held && printed.stage != Stage::Free {
                printed.stage = Stage::Free;
                lines.push(format!("{volume}: {}", word(Stage::Free)));
            }
        }
        lines
    }

    /// Whether each claim's last printed step is that it is free.
    pub fn are_all_free(&self) -> bool {
        self.told.values().all(|printed| printed.stage == Stage::Free)
    }
}

/// A claim as a step.
pub fn describe(claim: &ClaimStatus, now: Timestamp) -> WaitStep {
    let where_it_is = format!("{}: {}", claim.volume, word(Stage::Held(claim.state)));
    let (error, next_try) = (claim.error(), claim.next_try);
    let failed = WaitStep::failed_try(&where_it_is, claim.tries, error, next_try, now);
    failed.unwrap_or_else(|| match &claim.waits_for {
        Some(waits_for) => format!("{where_it_is}; waits for {}", plain(waits_for)).into(),
        None => where_it_is.into(),
    })
}

fn stage(name: &str) -> Option<Stage> {
    [State::Unpublishing, State::NodeDetached]
        .into_iter()
        .find_map(|state| (state.as_str() == name).then_some(Stage::Held(state)))
        .or_else(|| (name == "freed").then_some(Stage::Free))
}

/// The state, and its meaning for a release.
fn word(at: Stage) -> String {
    match at {
        Stage::Unheard => "unknown".to_owned(),
        Stage::Free => "free".to_owned(),
        Stage::Held(state @ State::Unpublishing) => format!("{state}: to be unmounted on its node"),
        Stage::Held(state @ State::NodeDetached) => format!("{state}: not mounted on its node"),
        Stage::Held(state) => state.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use berth_contract::event::EventName;
    use berth_contract::service::CLAIM;
    use berth_domain::access::Mode;
    use berth_domain::{AllocId, Namespace, NodeId};

    use super::*;

    fn event(name: EventName, detail: &str) -> Event {
        Event {
            namespace: Some(Namespace::default()),
            volume: Some(VolumeId::new("data").unwrap()),
            alloc: Some(AllocId::new("a").unwrap()),
            node: Some(NodeId::new("n1").unwrap()),
            detail: Some(detail.to_owned()),
            ..Event::new(name, Timestamp::default(), CLAIM)
        }
    }

    fn claim(state: State, tries: u32, error: Option<&str>) -> ClaimStatus {
        ClaimStatus {
            namespace: Namespace::default(),
            volume: VolumeId::new("data").unwrap(),
            alloc: AllocId::new("a").unwrap(),
            state,
            node: NodeId::new("n1").unwrap(),
            mode: Mode::Write,
            since: Timestamp::default(),
            step: None,
            position: None,
            ahead: Vec::new(),
            exhausted: false,
            proof: None,
            unstaged_by: None,
            hint: None,
            wait: None,
            waits_for: Some("the agent of n1".to_owned()),
            tries,
            failure: error.map(Into::into),
            next_try: Some(Timestamp::from_unix_ms(4000)),
            reason: None,
            attempt: None,
            plugin: None,
            external_id: None,
            stray: false,
            mount: None,
            epoch: 7,
            trace: None,
        }
    }

    #[test]
    fn each_step_is_printed_once_by_its_event_or_by_the_status() {
        let mut steps = Steps::default();
        let now = Timestamp::from_unix_ms(1000);
        let printed = steps.event(&event(EventName::ClaimUnpublishing, "agent.detach by w"));
        assert_eq!(
            printed.unwrap(),
            "data: unpublishing: to be unmounted on its node (agent.detach by w)"
        );
        assert!(steps.status(&[claim(State::Unpublishing, 0, None)], now).is_empty());
        let printed = steps.status(&[claim(State::NodeDetached, 0, None)], now);
        assert_eq!(
            printed,
            ["data: node-detached: not mounted on its node; waits for the agent of n1"]
        );
        // A late event's call is outdated; a call that the present status names is not.
        assert_eq!(steps.event(&event(EventName::ClaimUnpublishing, "agent.detach by x")), None);
        let printed =
            steps.event(&event(EventName::ClaimNodeDetached, "controller.unpublish by w"));
        assert_eq!(printed.unwrap(), "data: controller.unpublish by w");
        assert_eq!(steps.status(&[], now), ["data: free"]);
        assert_eq!(steps.event(&event(EventName::ClaimFreed, "")), None);
        assert!(steps.status(&[], now).is_empty());
    }

    #[test]
    fn a_failed_try_is_printed_with_its_error_and_next_try() {
        let mut steps = Steps::default();
        let now = Timestamp::from_unix_ms(1000);
        let failed = claim(State::Unpublishing, 3, Some("no responders\n"));
        let printed = steps.status(std::slice::from_ref(&failed), now);
        let expected = "data: unpublishing: to be unmounted on its node; \
            try 3 failed: no responders\\n, next in 3.0s";
        assert_eq!(printed, [expected]);
        assert!(steps.status(std::slice::from_ref(&failed), now).is_empty());
        assert_eq!(steps.status(&[claim(State::Unpublishing, 4, None)], now).len(), 1);
        assert_eq!(steps.event(&event(EventName::ClaimFailed, "no responders")), None);
        // Failures before the present step do not count as its tries.
        let before = claim(State::NodeDetached, 0, Some("no answer"));
        assert!(
            describe(&before, now).to_string().contains("on its node; before: no answer, next")
        );
    }
}
