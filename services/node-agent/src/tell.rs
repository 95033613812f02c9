//! Events of this node: told, and never waited for.

use std::time::Duration;

use berth_bus::Events;
use berth_contract::code::Code;
use berth_contract::event::{Event, EventName, PluginCall};
use berth_contract::message::call::Call;
use berth_contract::problem::Problem;
use berth_contract::service::NODE_AGENT;
use berth_contract::subject::Namespaced;
use berth_contract::trace::TraceContext;
use berth_domain::plugin::UnaccountedMount;
use berth_domain::{AllocId, NodeId, PluginId, VolumeKey};
use berth_service::clock;
use berth_service::refusals::{RefusalTeller, RequestSubject};

/// Tells events in the name of this node. Cheap to clone.
#[derive(Debug, Clone)]
pub struct EventPublisher {
    events: Events,
    refusals: RefusalTeller,
    node: NodeId,
}

impl EventPublisher {
    /// In the name of `node`.
    pub fn new(events: Events, node: NodeId) -> Self {
        Self { refusals: RefusalTeller::new(events.clone(), NODE_AGENT), events, node }
    }

    /// A request to this agent was refused, or failed: `request.refused`. What the claim service
    /// refused it has told itself.
    pub fn refused(&self, step: &str, body: &[u8], problem: &Problem, trace: TraceContext) {
        if !was_told_by_claim(problem) {
            let about = RequestSubject {
                node: Some(self.node.clone()),
                ..RequestSubject::read(step, body)
            };
            self.refusals.tell(about, problem, trace);
        }
    }

    /// A volume is there for an alloc, or could not be brought there: `volume.mounted`,
    /// `volume.mount-failed`.
    pub fn mounted(&self, used: UsedVolume<'_>, error: Option<&Problem>, trace: TraceContext) {
        let name = match error {
            None => EventName::VolumeMounted,
            Some(_) => EventName::VolumeMountFailed,
        };
        self.used(name, used, error, trace);
    }

    /// A volume is gone for an alloc: `volume.unmounted`.
    pub fn unmounted(&self, used: UsedVolume<'_>, trace: TraceContext) {
        self.used(EventName::VolumeUnmounted, used, None, trace);
    }

    /// A mount is gone, dead or hung: `volume.mount-dead`.
    pub fn mount_dead(&self, volume: &VolumeKey, alloc: &AllocId, plugin: &PluginId, why: String) {
        let trace = clock::begin_trace();
        self.mount(EventName::VolumeMountDead, volume, alloc, plugin, Some(why), trace);
    }

    /// A plugin call that mounts a volume was not answered by its deadline: `volume.mount-hung`.
    pub fn mount_hung(
        &self,
        volume: &VolumeKey,
        alloc: &AllocId,
        plugin: &PluginId,
        why: String,
        trace: TraceContext,
    ) {
        self.mount(EventName::VolumeMountHung, volume, alloc, plugin, Some(why), trace);
    }

    /// It answers again: `volume.mount-well`.
    pub fn mount_well(&self, volume: &VolumeKey, alloc: &AllocId, plugin: &PluginId) {
        let trace = clock::begin_trace();
        self.mount(EventName::VolumeMountWell, volume, alloc, plugin, None, trace);
    }

    /// A mount is there that no claim covers: `volume.mount-unaccounted`.
    pub fn mount_unaccounted(&self, mount: &UnaccountedMount) {
        self.publish(
            Event {
                namespace: Some(mount.namespace.clone()),
                volume: Some(mount.volume.clone()),
                alloc: Some(mount.alloc.clone()),
                node: Some(self.node.clone()),
                detail: Some(mount.to_string()),
                ..Event::new(EventName::VolumeMountUnaccounted, clock::now(), NODE_AGENT)
            },
            clock::begin_trace(),
        );
    }

    fn mount(
        &self,
        name: EventName,
        volume: &VolumeKey,
        alloc: &AllocId,
        plugin: &PluginId,
        detail: Option<String>,
        trace: TraceContext,
    ) {
        self.publish(
            Event {
                namespace: Some(volume.namespace.clone()),
                volume: Some(volume.volume.clone()),
                alloc: Some(alloc.clone()),
                node: Some(self.node.clone()),
                plugin: Some(plugin.clone()),
                detail,
                ..Event::new(name, clock::now(), NODE_AGENT)
            },
            trace,
        );
    }

    /// A call of the claim protocol was executed: `call.done`, `call.failed`.
    pub fn executed(
        &self,
        executed: ExecutedCall<'_>,
        error: Option<&Problem>,
        trace: TraceContext,
    ) {
        let ExecutedCall { call, took, calls } = executed;
        let name = match error {
            None => EventName::CallDone,
            Some(_) => EventName::CallFailed,
        };
        let detail = match error {
            None => call.call.to_string(),
            Some(error) => format!("{}: {error}", call.call),
        };
        self.publish(
            Event {
                namespace: Some(call.namespace.clone()),
                volume: Some(call.volume.clone()),
                alloc: Some(call.alloc.clone()),
                node: Some(self.node.clone()),
                plugin: Some(call.plugin.clone()),
                detail: Some(detail),
                attempt: Some(call.attempt.clone()),
                took_us: u64::try_from(took.as_micros()).ok(),
                calls,
                ..Event::new(name, clock::now(), NODE_AGENT)
            },
            trace,
        );
    }

    /// Something became of a plugin on this node: `plugin.started`, `plugin.held`, ….
    pub fn plugin(&self, name: EventName, plugin: &PluginId, detail: String) {
        self.publish(
            Event {
                node: Some(self.node.clone()),
                plugin: Some(plugin.clone()),
                detail: Some(detail),
                ..Event::new(name, clock::now(), NODE_AGENT)
            },
            clock::begin_trace(),
        );
    }

    fn used(
        &self,
        name: EventName,
        used: UsedVolume<'_>,
        error: Option<&Problem>,
        trace: TraceContext,
    ) {
        self.publish(
            Event {
                namespace: Some(used.volume.namespace.clone()),
                volume: Some(used.volume.volume.clone()),
                alloc: Some(used.alloc.clone()),
                node: Some(self.node.clone()),
                plugin: Some(used.plugin.clone()),
                detail: error.map(ToString::to_string),
                took_us: u64::try_from(used.took.as_micros()).ok(),
                calls: used.calls,
                ..Event::new(name, clock::now(), NODE_AGENT)
            },
            trace,
        );
    }

    fn publish(&self, event: Event, trace: TraceContext) {
        let event = Event { trace: Some(trace.trace_id()), ..event };
        self.events.publish(&event.subject(), &event, trace);
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
    !on_the_way && problem.step.as_deref() == Some(&*Namespaced::ClaimTake.step())
}

/// A call of the claim protocol, and what it took.
#[derive(Debug)]
pub struct ExecutedCall<'a> {
    /// The call.
    pub call: &'a Call,
    /// How long it took here.
    pub took: Duration,
    /// The calls made of the plugin.
    pub calls: Vec<PluginCall>,
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
