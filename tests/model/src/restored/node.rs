//! The nodes: agents that mount by grants, detach by calls, and compare their mounts with claims.

use super::decide::Decider;
use super::world::{ALLOCS, Answer, Call, Grant, Memory, World};
use super::{Mutation, Scenario};
use crate::safety::Breach;

impl World {
    /// A grant reaches its agent (rule 10).
    pub(super) fn mount(&mut self, scenario: Scenario, grant: Grant) -> Result<(), Breach> {
        self.grants.remove(&grant);
        let at = usize::from(grant.alloc);
        let node = &mut self.nodes[at];
        let is_void = node.compared != grant.since && !scenario.is(Mutation::OldGrants);
        let is_superseded = node.mounted.is_some_and(|epoch| epoch > grant.epoch);
        if is_void || is_superseded || node.detached >= grant.epoch {
            return Ok(());
        }
        node.mounted = Some(grant.epoch);
        if (0..ALLOCS).filter(|at| self.writes(*at)).count() > 1 {
            return Err(Breach::new("two writers have it mounted"));
        }
        Ok(())
    }

    /// A call reaches its executor, which carries it out.
    pub(super) fn deliver(&mut self, call: Call) -> Result<(), Breach> {
        self.calls.remove(&call);
        match call {
            Call::Detach { alloc, epoch, revision, attempt } => {
                let at = usize::from(alloc);
                let is_live = self.writes(at);
                let node = &mut self.nodes[at];
                let is_newer = node.mounted.is_some_and(|mounted| mounted > epoch);
                if revision < node.newest_call || is_newer {
                    return Ok(());
                }
                node.newest_call = revision;
                node.detached = node.detached.max(epoch);
                if is_live {
                    return Err(Breach::new("unmounted under a live alloc"));
                }
                node.mounted = None;
                self.answers.insert(Answer::Detached { alloc, attempt });
            }
            Call::Delete { attempt } => {
                if self.is_in_use() {
                    return Err(Breach::new("deleted under a live alloc"));
                }
                self.answers.insert(Answer::Deleted { attempt });
            }
        }
        Ok(())
    }

    /// The agent compares its mounts with the claims that a service lists. It ignores a list of an
    /// earlier incarnation than the one that it has compared with.
    pub(super) fn compare(
        &mut self,
        scenario: Scenario,
        decider: &Decider,
        at: usize,
        memory: &Memory,
    ) {
        let alloc = u8::from(at > 0);
        let is_claimed = decider.claim(memory.record, alloc).is_some();
        let index = u8::try_from(memory.messages.len()).unwrap_or(u8::MAX);
        let incarnation = if memory.lacks { memory.number } else { 0 };
        let node = &mut self.nodes[at];
        if incarnation < node.compared && !scenario.is(Mutation::OldLists) {
            return;
        }
        let missing = node.mounted.filter(|_| !is_claimed);
        let is_certain = missing.is_some_and(|epoch| epoch <= index);
        let is_unaccounted = is_certain || (missing.is_some() && node.is_missed);
        let is_whole = missing.is_none() || is_unaccounted;
        node.is_missed = missing.is_some();
        node.is_unaccounted = is_unaccounted;
        if is_whole {
            (node.compared, node.reported) = (incarnation, incarnation);
        }
    }
}
