//! The alloc for which a claim is requested (B1).
//!
//! **Promises** that a claim is refused by the alloc's record at the leader, and that a grant rests
//! on everything that was acknowledged before its request. In the mirror an alloc may still look
//! live after it ended, or absent after another alloc was registered under its name.

use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::message::claim::Take;
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_domain::access::Mode;
use berth_domain::alloc::Alloc;
use berth_domain::plugin::Half;
use berth_domain::{AllocId, Namespace, NodeId, VolumeKey};
use berth_service::projection::Allocs;

use crate::read::plan;
use crate::store::records::{is_known_to, no_such_alloc};
use crate::store::state::StateInner;

/// How long the mirror may take to show what the leader has before the alloc is read there.
const MIRROR_WAIT: Duration = Duration::from_millis(250);

impl StateInner {
    /// The alloc of the request: live, placed on the request's node, and with a request for the
    /// volume that the plugin can mount. `own` is the node that the sender acts for.
    pub async fn claiming_alloc(
        &self,
        volume: &VolumeKey,
        request: &Take,
        own: Option<&NodeId>,
        trace: TraceContext,
    ) -> Result<Alloc, Problem> {
        let (namespace, id) = (&volume.namespace, &request.alloc);
        let mirrored = self.allocs.mirror.read(|allocs| Some(allocs.get(namespace, id)?.1.clone()));
        let acceptable = mirrored.filter(|alloc| check_request(alloc, request).is_ok());
        let alloc = if let Some(alloc) = acceptable {
            alloc
        } else {
            let alloc = self.read_alloc_surely(namespace, id, trace).await?;
            if let Some(alloc) = &alloc
                && !is_known_to(alloc, own)
            {
                let waited = self.conceal_alloc(namespace, id, own, trace).await;
                waited?;
            }
            let alloc = alloc.filter(|alloc| is_known_to(alloc, own));
            let alloc = alloc.ok_or_else(|| no_such_alloc(id))?;
            check_request(&alloc, request)?;
            alloc
        };
        self.check_mount_group(volume, request, &alloc)?;
        Ok(alloc)
    }

    /// Refuses a mount group that the plugin does not support, before anything is attached. An
    /// alloc that already has a claim is not checked. If the plugin's abilities are unknown, the
    /// node's agent refuses.
    fn check_mount_group(
        &self,
        volume: &VolumeKey,
        request: &Take,
        alloc: &Alloc,
    ) -> Result<(), Problem> {
        let plugin = self.volumes.mirror.read(|volumes| {
            let now = &volumes.get(volume)?.volume;
            let spec = now.spec.as_ref().filter(|_| !now.claims.contains_key(&request.alloc))?;
            plan::mount(spec, volume, Some(alloc)).group.map(|_| spec.plugin.clone())
        });
        let Some(plugin) = plugin else { return Ok(()) };
        let can = self.plugins.mirror.read(|plugins| {
            let instances = &plugins.get(&plugin)?.instances;
            let abilities = instances.get(&(request.node.clone(), Half::Node))?.node.as_ref()?;
            Some(abilities.volume_mount_group)
        });
        if can != Some(false) {
            return Ok(());
        }
        let message = format!(
            "a group is asked for, and plugin {plugin} on node {} cannot mount a volume for one \
             (VOLUME_MOUNT_GROUP)",
            request.node
        );
        Err(Problem::new(Code::MountOptionsRefused, message))
    }

    /// Refuses a grant to an alloc that has ended. If it lives in a mirror that shows all that was
    /// acknowledged before, it is not read at the leader.
    pub async fn check_alloc_lives(
        &self,
        namespace: &Namespace,
        id: &AllocId,
        trace: TraceContext,
    ) -> Result<(), Problem> {
        let lives = |allocs: &Allocs| {
            allocs.get(namespace, id).is_some_and(|(_, alloc)| !alloc.state.is_terminal())
        };
        if self.allocs.catch_up(MIRROR_WAIT).await.is_ok() && self.allocs.mirror.read(lives) {
            return Ok(());
        }
        let alloc = Box::pin(self.read_alloc_surely(namespace, id, trace)).await?;
        check_live(id, &alloc.ok_or_else(|| no_such_alloc(id))?)
    }
}

/// Refuses requests for an alloc that has ended.
pub fn check_live(id: &AllocId, alloc: &Alloc) -> Result<(), Problem> {
    if !alloc.state.is_terminal() {
        return Ok(());
    }
    let message = format!("alloc {id} is {} since {}", alloc.state, alloc.since);
    Err(Problem::new(Code::AllocTerminal, message))
}

/// Refuses a claim that the alloc did not request, or for another node than the alloc's.
fn check_request(alloc: &Alloc, request: &Take) -> Result<(), Problem> {
    let id = &request.alloc;
    check_live(id, alloc)?;
    if alloc.node != request.node {
        let message = format!("alloc {id} is placed on node {}, not {}", alloc.node, request.node);
        return Err(Problem::new(Code::AllocForeign, message));
    }
    let alias = request.alias.as_deref();
    let Some((_, requested)) = alloc.request_named(&request.volume, alias) else {
        let name = alias.map(|alias| format!(" as {alias}")).unwrap_or_default();
        let message = format!("alloc {id} did not ask for volume {}{name}", request.volume);
        return Err(Problem::new(Code::VolumeNotRequested, message));
    };
    if requested.read_only && request.mode == Some(Mode::Write) {
        let message = format!("alloc {id} asked to read volume {} only", request.volume);
        return Err(Problem::new(Code::VolumeNotRequested, message));
    }
    Ok(())
}
