//! The common part of all calls.
//!
//! Owns: the slots, and the checks that all calls have. Promises: a call runs to its end even if
//! its caller leaves. A call is refused while an ability that it needs is off. Never: knows what a
//! call does.

use std::io;
use std::sync::Arc;

use berth_csi::Code;
use berth_csi::rpc::Unary;
use berth_csi_proxy::log::CallBegin;
use berth_csi_proxy::{Gate, Pass, Refused};
use tokio::task::spawn_blocking;
use tonic::{Request, Response, Status};

use super::Driver;
use super::refusal::Refusal;
use super::request::RequestFields;
use crate::ability::Ability;
use crate::backend::{CallSlot, HeldSlot, RunningCall};
use crate::rules;

/// What is checked before the work of a call.
pub(super) struct CallRules<R> {
    /// The call is offered with any one of these abilities; always if there are none.
    pub needs_one_of: &'static [Ability],
    /// Checks the required fields.
    pub check: fn(&R, &mut RequestFields),
}

impl Driver {
    /// Serves one call. `work` may block.
    pub(super) async fn serve<R: Unary>(
        self: &Arc<Self>,
        rules: CallRules<R>,
        request: Request<R>,
        work: impl FnOnce(&Self, &R) -> Result<R::Response, Refusal> + Send + 'static,
    ) -> Result<Response<R::Response>, Status> {
        let (driver, request) = (Arc::clone(self), request.into_inner());
        // The work continues if the caller leaves.
        let worked = spawn_blocking(move || {
            driver.check(&rules, &request)?;
            work(&driver, &request)
        });
        let worked =
            worked.await.unwrap_or_else(|error| Err(Refusal::uncertain(error.to_string())));
        Ok(Response::new(worked?))
    }

    fn check<R: Unary>(&self, rules: &CallRules<R>, request: &R) -> Result<(), Refusal> {
        let needs = rules.needs_one_of;
        if !needs.is_empty() && !needs.iter().any(|need| self.has(*need)) {
            let message = format!("{} is not among the capabilities of this plugin", R::RPC);
            return Err(Refusal::new(Code::Unimplemented, message));
        }
        self.check_secret(request)?;
        let mut fields = RequestFields::default();
        (rules.check)(request, &mut fields);
        fields.finish()
    }

    /// Refuses a call that takes secrets and does not have the one that this plugin requires. The
    /// message repeats no secret.
    fn check_secret<R: Unary>(&self, request: &R) -> Result<(), Refusal> {
        let Some(wanted) = self.profile.secret.as_deref().filter(|wanted| !wanted.is_empty())
        else {
            return Ok(());
        };
        // The JSON of a message has all its fields, even empty ones.
        let takes_secrets =
            serde_json::to_value(request).is_ok_and(|message| message["secrets"].is_object());
        let mut is_given = false;
        request.visit(&mut |secret| is_given |= secret == wanted);
        if is_given || !takes_secrets {
            return Ok(());
        }
        let message = format!("{}: the right secret is not among those given", R::RPC);
        Err(Refusal::new(Code::Unauthenticated, message))
    }

    /// Takes the call's slots, one for each volume, if calls of its kind have slots.
    fn take_slots(&self, begin: &CallBegin, volumes: &[String]) -> Result<Slots, Refusal> {
        let mut held_slots = Vec::new();
        let Some(slot) = CallSlot::of_call(begin.call.rpc, self.node_id()) else {
            return Ok(Slots(held_slots));
        };
        let own_call = RunningCall {
            rpc: begin.call.rpc,
            instance: begin.source.instance.clone(),
            seq: begin.seq,
            since_us: begin.begin_us,
            caller_gone: false,
        };
        for id in volumes {
            // A missing volume needs no slot; the work will answer NOT_FOUND.
            let Some(volume) = self.backend.volume(id)? else { continue };
            match volume.lock()?.enter(&slot, &own_call)? {
                Ok(slot) => held_slots.push(slot),
                Err(running) => return Err(self.refuse_overlap(&slot, id, &running)),
            }
        }
        Ok(Slots(held_slots))
    }

    fn refuse_overlap(&self, slot: &CallSlot, id: &str, running: &RunningCall) -> Refusal {
        if running.caller_gone {
            // This is no violation: the CO no longer waits for that call.
            let message = format!("volume {id:?}: {running} is not done yet; ask again later");
            return Refusal::new(Code::Aborted, message);
        }
        let node = matches!(slot, CallSlot::Node(_)).then(|| self.node_id());
        Refusal::violation(id, rules::overlap(node, running))
    }
}

/// The gate of an instance: other instances see a call from before its faults until after its end
/// is logged.
pub struct SlotGate(pub Arc<Driver>);

impl Gate for SlotGate {
    fn enter(&self, call: &CallBegin, volumes: &[String]) -> Result<Box<dyn Pass>, Refused> {
        Ok(Box::new(self.0.take_slots(call, volumes)?))
    }
}

/// The slots of a call, freed on drop.
struct Slots(Vec<HeldSlot>);

impl Pass for Slots {
    fn caller_gone(&self) {
        // If this fails, the next call sees a caller that waits, which is the safe side.
        self.0.iter().for_each(|slot| drop::<io::Result<()>>(slot.caller_gone()));
    }
}
