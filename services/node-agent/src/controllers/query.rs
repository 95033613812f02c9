//! Questions to a controller: what it has, and how much room.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_bus::Request;
use berth_contract::code::Code;
use berth_contract::message::storage_call::{
    Answered, PluginSnapshotStatus, PluginVolumeStatus, Question, StorageQuery,
};
use berth_contract::problem::Problem;
use berth_csi::capability::volume_capability;
use berth_csi::rpc::Unary;
use berth_csi::{health, v1};
use berth_domain::limits::{MAP_BYTES_MAX, PAGE_BYTES_MAX};
use tokio::time::Instant;

use super::execute::ControllerExecutor;
use super::provision::{bytes, cut_snapshot, storage_problem};

impl ControllerExecutor {
    /// Asks the plugin, and changes nothing.
    pub(super) async fn query(
        self,
        asked: StorageQuery,
        request: Request,
    ) -> Result<Answered, Problem> {
        let locate = |problem: Problem| {
            problem.at_step("controller.query").plugin(&self.plugin.id).node(&self.node)
        };
        if asked.plugin != self.plugin.id {
            return Err(locate(self.misdirected(&asked.plugin)));
        }
        let answered = self.answer(asked.question, request.deadline).await.map_err(locate)?;
        // A page with more than fits a message is told as such, rather than lost on the bus.
        let size = serde_json::to_vec(&answered).map_or(usize::MAX, |answer| answer.len());
        if size > 2 * PAGE_BYTES_MAX {
            let message = format!("the plugin answered a page of {size} bytes, too many to show");
            return Err(locate(Problem::new(Code::PluginUnable, message)));
        }
        Ok(answered)
    }

    async fn answer(&self, question: Question, until: Instant) -> Result<Answered, Problem> {
        match question {
            Question::Volumes { token, limit } => self.volumes(token, limit, until).await,
            Question::Snapshots { token, limit } => self.snapshots(token, limit, until).await,
            Question::Volume { id } => {
                let request = v1::ControllerGetVolumeRequest { volume_id: id };
                let found = match self.plugin.call_within(request, time_left(until)).await {
                    Ok(found) => found,
                    // It is not among this controller's volumes.
                    Err(error) if error.code() == Some(berth_csi::Code::NotFound) => {
                        return Ok(Answered::default());
                    }
                    Err(error) => return Err(storage_problem(&error)),
                };
                let status = found.status.unwrap_or_default();
                let volume = found.volume.unwrap_or_default();
                let attached = Some(status.published_node_ids);
                let said = health::of_condition(status.volume_condition);
                let unwell = match said {
                    None => self.volume_unwell(&volume.volume_id, until).await,
                    said => said,
                };
                let shown = show_volume(volume, attached, unwell);
                Ok(Answered { volumes: vec![shown], ..Answered::default() })
            }
            Question::Capacity { capabilities, parameters, topology } => {
                let later =
                    self.plugin.controller().is_some_and(|can| can.single_node_multi_writer);
                let mount = berth_domain::volume::MountOptions::default();
                let request = v1::GetCapacityRequest {
                    volume_capabilities: capabilities
                        .iter()
                        .map(|one| volume_capability(*one, &mount, later))
                        .collect(),
                    parameters,
                    accessible_topology: topology.map(|segments| v1::Topology { segments }),
                };
                let room = self.ask_plugin(request, until).await?;
                Ok(Answered {
                    // Less than nothing says nothing.
                    available_bytes: u64::try_from(room.available_capacity).ok(),
                    max_volume_bytes: room.maximum_volume_size.map(bytes),
                    min_volume_bytes: room.minimum_volume_size.map(bytes),
                    ..Answered::default()
                })
            }
        }
    }

    async fn volumes(
        &self,
        token: String,
        limit: u32,
        until: Instant,
    ) -> Result<Answered, Problem> {
        let can = self.plugin.controller().unwrap_or_default();
        let max_entries = i32::try_from(limit).unwrap_or(i32::MAX);
        let request = v1::ListVolumesRequest { max_entries, starting_token: token };
        let page = self.ask_plugin(request, until).await?;
        let mut unwell = self.list_unwell(until).await;
        let show = |entry: v1::list_volumes_response::Entry| {
            let status = entry.status.unwrap_or_default();
            let volume = entry.volume.unwrap_or_default();
            let said = health::of_condition(status.volume_condition);
            let said = said.or_else(|| unwell.remove(&volume.volume_id));
            // Without the ability CSI forbids to read the field.
            let attached = can.list_volumes_published_nodes.then_some(status.published_node_ids);
            show_volume(volume, attached, said)
        };
        // What has no id is nothing that could be meant.
        let named = |shown: &PluginVolumeStatus| !shown.external_id.is_empty();
        let volumes = page.entries.into_iter().map(show).filter(named).collect();
        let next = Some(page.next_token).filter(|next| !next.is_empty());
        Ok(Answered { volumes, next, ..Answered::default() })
    }

    async fn snapshots(
        &self,
        token: String,
        limit: u32,
        until: Instant,
    ) -> Result<Answered, Problem> {
        let max_entries = i32::try_from(limit).unwrap_or(i32::MAX);
        let request = v1::ListSnapshotsRequest {
            max_entries,
            starting_token: token,
            ..v1::ListSnapshotsRequest::default()
        };
        let page = self.ask_plugin(request, until).await?;
        let listed = page.entries.into_iter().filter_map(|entry| entry.snapshot);
        let named = |shown: &PluginSnapshotStatus| !shown.external_id.is_empty();
        let snapshots = listed.map(show_snapshot).filter(named).collect();
        let next = Some(page.next_token).filter(|next| !next.is_empty());
        Ok(Answered { snapshots, next, ..Answered::default() })
    }

    async fn ask_plugin<R: Unary>(
        &self,
        request: R,
        until: Instant,
    ) -> Result<R::Response, Problem> {
        let asked = self.plugin.call_within(request, time_left(until)).await;
        asked.map_err(|error| storage_problem(&error))
    }
}

fn time_left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

fn show_volume(
    volume: v1::Volume,
    published_on: Option<Vec<String>>,
    abnormal: Option<String>,
) -> PluginVolumeStatus {
    let context_bytes: usize =
        volume.volume_context.iter().map(|(key, value)| key.len() + value.len()).sum();
    let capacity = bytes(volume.capacity_bytes);
    PluginVolumeStatus {
        external_id: volume.volume_id,
        capacity_bytes: (capacity > 0).then_some(capacity),
        // A larger context breaks CSI's limit, and could not be registered.
        context: if context_bytes <= MAP_BYTES_MAX {
            volume.volume_context
        } else {
            BTreeMap::default()
        },
        topologies: volume.accessible_topology.into_iter().map(|one| one.segments).collect(),
        published_on,
        abnormal,
    }
}

fn show_snapshot(snapshot: v1::Snapshot) -> PluginSnapshotStatus {
    let group = Some(snapshot.group_snapshot_id.clone()).filter(|group| !group.is_empty());
    let cut = cut_snapshot(snapshot);
    PluginSnapshotStatus {
        external_id: cut.external_id,
        source: cut.source,
        size_bytes: (cut.size_bytes > 0).then_some(cut.size_bytes),
        cut_at: cut.cut_at,
        usable_from: cut.usable_from,
        ready: cut.ready,
        group,
        topologies: Vec::new(),
    }
}
