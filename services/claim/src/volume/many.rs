//! Requests about several volumes at once.
//!
//! **Promises** that nothing is written for what is wrong in the request: a fault of one document,
//! or a plugin that cannot serve one, refuses all of them. Beyond that, each volume is registered
//! or deregistered as by a request of its own.

use berth_contract::message::many::{
    DeregisterAnswer, DeregisterAnswers, DeregisterMany, RegisterAnswer, RegisterAnswers,
    RegisterVolumes,
};
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::{Namespace, VolumeId};
use berth_service::refusals::RequestSubject;

use crate::caller::Caller;
use crate::many::{ManyOf, answer_each};
use crate::store::state::State;
use crate::volume::{deregister, register};

/// Registers many volumes.
pub async fn register_many(
    state: &State,
    namespace: &Namespace,
    request: RegisterVolumes,
    caller: &Caller,
) -> Result<RegisterAnswers, Problem> {
    register::check_plugins(state, namespace, &request.volumes)?;
    let ids: Vec<VolumeId> = request.volumes.iter().map(|volume| volume.id.clone()).collect();
    let of = ManyOf { state, namespace, caller, step: verb::VolumeRegister::STEP };
    let work =
        async |volume, caller: Caller| register::register(state, namespace, volume, &caller).await;
    let done = answer_each(of, request.volumes, |volume| about(&volume.id), work).await;
    let answers = ids.into_iter().zip(done).map(|(id, done)| match done {
        Ok(registered) => RegisterAnswer { id, registered: Some(registered), error: None },
        Err(error) => RegisterAnswer { id, registered: None, error: Some(error) },
    });
    Ok(RegisterAnswers { answers: answers.collect() })
}

/// Deregisters many volumes.
pub async fn deregister_many(
    state: &State,
    namespace: &Namespace,
    request: DeregisterMany,
    caller: &Caller,
) -> Result<DeregisterAnswers, Problem> {
    let ids: Vec<VolumeId> = request.volumes.iter().map(|volume| volume.id.clone()).collect();
    let of = ManyOf { state, namespace, caller, step: verb::VolumeDeregister::STEP };
    let work = async |volume, caller: Caller| {
        deregister::deregister(state, namespace, volume, &caller).await
    };
    let done = answer_each(of, request.volumes, |volume| about(&volume.id), work).await;
    let answers = ids.into_iter().zip(done).map(|(id, done)| match done {
        Ok(deregistered) => DeregisterAnswer { id, deregistered: Some(deregistered), error: None },
        Err(error) => DeregisterAnswer { id, deregistered: None, error: Some(error) },
    });
    Ok(DeregisterAnswers { answers: answers.collect() })
}

fn about(volume: &VolumeId) -> RequestSubject {
    RequestSubject { volume: Some(volume.clone()), ..RequestSubject::default() }
}
