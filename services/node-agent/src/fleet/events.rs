//! Publishes this node's events. No work waits for them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use berth_bus::EventSender;
use berth_contract::code::Code;
use berth_contract::event::{Event, EventName, PluginCall};
use berth_contract::message::call::{ClaimCall, StorageCall};
use berth_contract::problem::Problem;
use berth_contract::service::NODE_AGENT;
use berth_contract::trace::TraceContext;
use berth_contract::verb::{self, Verb as _};
use berth_domain::plugin::UnaccountedMount;
use berth_domain::volume::CallKind;
use berth_domain::{AllocId, AttemptId, Namespace, NodeId, PluginId, SnapshotId, VolumeKey};
use berth_service::clock;
use berth_service::refusals::{RefusalTeller, RequestSubject};

/// Allocs whose wanter is known. More are forgotten: events without one are still told.
const WANTED_MAX: usize = 4096;

/// Tells events in the name of this node. Cheap to clone.
#[derive(Debug, Clone)]
pub struct EventPublisher {
    events: EventSender,
    refusals: RefusalTeller,
    node: NodeId,
    /// Who wants which alloc, as grants and calls said.
    wanted: Arc<Mutex<HashMap<(Namespace, AllocId), String>>>,
}

impl EventPublisher {
    /// In the name of `node`.
    pub fn new(events: EventSender, node: NodeId) -> Self {
        let refusals = RefusalTeller::new(events.clone(), NODE_AGENT);
        Self { refusals, events, node, wanted: Arc::default() }
    }

    /// From now on events about this alloc say who wants it.
    pub fn learn(&self, namespace: &Namespace, alloc: &AllocId, by: Option<&String>) {
        let Some(by) = by else { return };
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        if wanted.len() >= WANTED_MAX {
            wanted.clear();
        }
        wanted.insert((namespace.clone(), alloc.clone()), by.clone());
    }

    fn who_wants(&self, event: &Event) -> Option<String> {
        let about = (event.namespace.clone()?, event.alloc.clone()?);
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner).get(&about).cloned()
    }

    /// A request to this agent was refused, or failed: `request.refused`. What the claim service
    /// refused it has told itself.
    pub fn publish_refusal(
        &self,
        step: &str,
        (body, sender): (&[u8], Option<String>),
        problem: &Problem,
        trace: TraceContext,
    ) {
        if !was_told_by_claim(problem) {
            let about = RequestSubject {
                node: Some(self.node.clone()),
                by: sender.clone(),
                sender,
                ..RequestSubject::read(step, body)
            };
            self.refusals.tell_refusal(about, problem, trace);
        }
    }

    /// A volume is mounted for an alloc, or could not be: `volume.mounted`, `volume.mount-failed`.
    pub fn publish_mount(
        &self,
        used: UsedVolume<'_>,
        error: Option<&Problem>,
        trace: TraceContext,
    ) {
        let name = match error {
            None => EventName::VolumeMounted,
            Some(_) => EventName::VolumeMountFailed,
        };
        self.publish(Event { detail: error.map(ToString::to_string), ..used.event(name) }, trace);
    }

    /// A volume is unmounted for an alloc: `volume.unmounted`.
    pub fn publish_unmount(&self, used: UsedVolume<'_>, trace: TraceContext) {
        self.publish(used.event(EventName::VolumeUnmounted), trace);
    }

    /// The health of a mount changed: `volume.mount-dead`, `volume.mount-hung` or
    /// `volume.mount-well`.
    pub fn publish_mount_health(
        &self,
        name: EventName,
        (volume, alloc, plugin): (&VolumeKey, &AllocId, &PluginId),
        detail: Option<String>,
        trace: TraceContext,
    ) {
        self.publish(Event { detail, ..mount_event(name, volume, alloc, plugin) }, trace);
    }

    /// A mount is there that no claim covers: `volume.mount-unaccounted`.
    pub fn publish_unaccounted(&self, mount: &UnaccountedMount) {
        let event = Event {
            namespace: Some(mount.namespace.clone()),
            volume: Some(mount.volume.clone()),
            alloc: Some(mount.alloc.clone()),
            detail: Some(mount.to_string()),
            ..Event::new(EventName::VolumeMountUnaccounted, clock::now(), NODE_AGENT)
        };
        self.publish(event, clock::begin_trace());
    }

    /// A call was executed: `call.done`, `call.failed`.
    pub fn publish_call(
        &self,
        executed: ExecutedCall<'_>,
        error: Option<&Problem>,
        trace: TraceContext,
    ) {
        let ExecutedCall { call, attempt, volume, snapshot, alloc, plugin, took, calls } = executed;
        tracing::info!(
            call = %call,
            %volume,
            alloc = alloc.as_ref().map(tracing::field::display),
            attempt = %attempt,
            plugin = %plugin,
            trace = trace.trace_id(),
            outcome = error.map_or_else(|| "done".to_owned(), ToString::to_string),
            "executed"
        );
        let name = match error {
            None => EventName::CallDone,
            Some(_) => EventName::CallFailed,
        };
        let detail = match error {
            None => call.to_string(),
            Some(error) => format!("{call}: {error}"),
        };
        let event = Event {
            namespace: Some(volume.namespace),
            volume: Some(volume.volume),
            snapshot: snapshot.cloned(),
            alloc,
            plugin: Some(plugin.clone()),
            detail: Some(detail),
            attempt: Some(attempt.clone()),
            took_us: u64::try_from(took.as_micros()).ok(),
            calls,
            ..Event::new(name, clock::now(), NODE_AGENT)
        };
        self.publish(event, trace);
    }

    /// The state of a plugin on this node changed: `plugin.started`, `plugin.held`, ….
    pub fn publish_plugin_event(&self, name: EventName, plugin: &PluginId, detail: String) {
        let event = Event {
            plugin: Some(plugin.clone()),
            detail: Some(detail),
            ..Event::new(name, clock::now(), NODE_AGENT)
        };
        self.publish(event, clock::begin_trace());
    }

    fn publish(&self, event: Event, trace: TraceContext) {
        let (node, trace_id) = (Some(self.node.clone()), Some(trace.trace_id()));
        let by = self.who_wants(&event);
        let event = Event { node, trace: trace_id, by, ..event };
        self.events.publish(&event.subject(), &event, trace);
    }
}

/// An event about the use of a volume by an alloc.
fn mount_event(name: EventName, volume: &VolumeKey, alloc: &AllocId, plugin: &PluginId) -> Event {
    Event {
        namespace: Some(volume.namespace.clone()),
        volume: Some(volume.volume.clone()),
        alloc: Some(alloc.clone()),
        plugin: Some(plugin.clone()),
        ..Event::new(name, clock::now(), NODE_AGENT)
    }
}

/// Whether the claim service refused it. A problem of the way there arose here, or before the claim
/// service looked at the request.
fn was_told_by_claim(problem: &Problem) -> bool {
    let on_the_way = matches!(
        problem.code,
        Code::Late
            | Code::NoResponder
            | Code::NoAnswer
            | Code::BusUnavailable
            | Code::Overloaded
            | Code::BucketLost
    );
    !on_the_way && problem.step.as_deref() == Some(verb::ClaimTake::STEP)
}

/// A call, and what it took.
#[derive(Debug)]
pub struct ExecutedCall<'a> {
    call: CallKind,
    attempt: &'a AttemptId,
    volume: VolumeKey,
    snapshot: Option<&'a SnapshotId>,
    /// The alloc whose claim or mount it changes.
    alloc: Option<AllocId>,
    plugin: &'a PluginId,
    /// How long it took here.
    took: Duration,
    /// The calls made of the plugin.
    calls: Vec<PluginCall>,
}

impl<'a> ExecutedCall<'a> {
    /// A call for a claim.
    pub fn of_claim(call: &'a ClaimCall, took: Duration, calls: Vec<PluginCall>) -> Self {
        Self {
            call: call.call,
            attempt: &call.attempt,
            volume: call.volume_key(),
            snapshot: None,
            alloc: Some(call.details.alloc.clone()),
            plugin: &call.plugin,
            took,
            calls,
        }
    }

    /// A call of the storage; with the alloc whose mount it changes, if it is not a controller's.
    pub fn of_storage(
        call: &'a StorageCall,
        alloc: Option<AllocId>,
        took: Duration,
        calls: Vec<PluginCall>,
    ) -> Self {
        Self {
            call: call.call,
            attempt: &call.attempt,
            volume: call.volume_key(),
            snapshot: call.details.snapshot.as_ref(),
            alloc,
            plugin: &call.plugin,
            took,
            calls,
        }
    }
}

/// Who uses what, by which plugin.
#[derive(Debug)]
pub struct UsedVolume<'a> {
    /// The volume.
    pub volume: &'a VolumeKey,
    /// The alloc.
    pub alloc: &'a AllocId,
    /// The plugin.
    pub plugin: &'a PluginId,
    /// How long it took.
    pub took: Duration,
    /// The calls made of the plugin.
    pub calls: Vec<PluginCall>,
}

impl UsedVolume<'_> {
    fn event(self, name: EventName) -> Event {
        Event {
            took_us: u64::try_from(self.took.as_micros()).ok(),
            calls: self.calls,
            ..mount_event(name, self.volume, self.alloc, self.plugin)
        }
    }
}
