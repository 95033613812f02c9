//! Carries out the orders of operators: stop and start a plugin's process.

use berth_contract::code::Code;
use berth_contract::event::EventName;
use berth_contract::message::plugin::{OrderedInstances, StartPlugin, StopPlugin};
use berth_contract::problem::Problem;
use berth_domain::PluginId;

use super::requests::RosterOrder;
use super::run::ProcessOrder;
use super::{Roster, RosterRequest};
use crate::plugins::member::describe_needing_mounts;

impl Roster {
    pub(super) fn answer_request(&mut self, asked: RosterRequest) {
        asked.answer(|order| match order {
            RosterOrder::Stop(stop) => self.stop_instances(&stop),
            RosterOrder::Start(start) => self.start_instances(&start),
        });
    }

    fn stop_instances(&mut self, stop: &StopPlugin) -> Result<OrderedInstances, Problem> {
        let meant = self.find_commanded(&stop.plugin, stop.instance.as_deref())?;
        if !stop.even_with_mounts {
            for key in &meant {
                let Some(seat) = self.seats.get(key) else { continue };
                let mounts = self.running.count_needing_mounts(&seat.plugin, &seat.member);
                if mounts > 0 {
                    let message =
                        format!("instance {key} runs on: {}", describe_needing_mounts(mounts));
                    return Err(Problem::new(Code::PluginHeld, message).plugin(&stop.plugin));
                }
            }
        }
        let mut instances = Vec::new();
        for key in meant {
            let Some(seat) = self.seats.get_mut(&key) else { continue };
            if let Some(leaving) = &mut seat.leaving {
                leaving.even_with_mounts = true;
            }
            if seat.member.record().stopped_by.is_some() {
                continue;
            }
            let mounts = self.running.count_needing_mounts(&seat.plugin, &seat.member);
            let detail = format!(
                "instance {key}: told to by {}, {}",
                stop.by,
                describe_needing_mounts(mounts)
            );
            tracing::warn!(plugin = %stop.plugin, detail, "a plugin is stopped");
            self.context.hosting.events.publish_plugin_event(
                EventName::PluginStopped,
                &stop.plugin,
                detail,
            );
            seat.member.set_stopped_by(Some(stop.by.clone()));
            seat.order(ProcessOrder::Stop);
            instances.push(key);
        }
        Ok(OrderedInstances { instances })
    }

    fn start_instances(&mut self, start: &StartPlugin) -> Result<OrderedInstances, Problem> {
        let meant = self.find_commanded(&start.plugin, start.instance.as_deref())?;
        let mut instances = Vec::new();
        for key in meant {
            let Some(seat) = self.seats.get_mut(&key) else { continue };
            if seat.member.record().stopped_by.is_none() {
                continue;
            }
            seat.member.set_stopped_by(None);
            seat.order(ProcessOrder::Run);
            instances.push(key);
        }
        Ok(OrderedInstances { instances })
    }

    fn find_commanded(
        &self,
        plugin: &PluginId,
        instance: Option<&str>,
    ) -> Result<Vec<String>, Problem> {
        let meant = self.list_commanded(plugin, instance);
        if !meant.is_empty() {
            return Ok(meant);
        }
        let message = match instance {
            Some(instance) => format!("this agent runs no instance {instance} of plugin {plugin}"),
            None => format!("this agent runs no process of plugin {plugin}"),
        };
        let node = &self.context.hosting.node;
        let next = format!(
            "see `berth plugin instances {node}`; what somebody else runs is theirs to end"
        );
        Err(Problem::new(Code::NoSuchPlugin, message).plugin(plugin).next(next))
    }
}
