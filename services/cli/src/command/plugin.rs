//! `berth plugin …`

use berth_contract::code::Code;
use berth_contract::message::registry::{Delete, Deleted, ExpectInstances, ListPlugins, Plugins};
use berth_contract::problem::Problem;
use berth_contract::verb;
use berth_service::clock;

use super::listing::{self, PollAnswer, ask_newer};
use crate::args::{PluginDelete, PluginExpect, PluginStatus};
use crate::failure::Failure;
use crate::session::Session;
use crate::show;

/// Lists plugins, or shows one.
pub async fn status(args: &PluginStatus, session: &Session) -> Result<(), Failure> {
    let query = ListPlugins {
        id: args.id.clone(),
        prefix: args.prefix.clone(),
        node: args.node.clone(),
        kind: args.kind,
        page: (&args.page).into(),
        ..ListPlugins::default()
    };
    let request = |newer| ListPlugins { newer, ..query.clone() };
    let Some(id) = &args.id else {
        let filtered = query != ListPlugins::default();
        let none_text = filtered.then_some("no such plugins; without a filter all are listed");
        return listing::list::<verb::PluginStatus>(session, &(), &args.view, none_text, request)
            .await;
    };
    let ask = async |newer| {
        let Plugins { index, plugins, next, .. } =
            ask_newer::<verb::PluginStatus>(session, &(), &request(newer), newer).await?;
        let Some(shown) = plugins.into_iter().find(|plugin| plugin.id == *id) else {
            let message = format!("there is no plugin {id}");
            let problem = Problem::new(Code::NoSuchPlugin, message);
            return Err(problem.at_step("plugin.status").plugin(id).into());
        };
        Ok(PollAnswer { shown, index, next })
    };
    let table = |plugin: &_| show::plugin(plugin, clock::now());
    listing::show(session, args.view.watch, ask, table).await
}

/// Sets how many instances a job must have.
pub async fn expect(args: &PluginExpect, session: &Session) -> Result<(), Failure> {
    let PluginExpect { id, job, controllers, nodes } = args;
    let body = ExpectInstances {
        plugin: id.clone(),
        namespace: session.namespace.clone(),
        job: job.clone(),
        controllers: *controllers,
        nodes: *nodes,
    };
    let expected = session.ask_service::<verb::PluginExpect>(&(), &body).await?;
    session.output.reply(&expected, |reply| match (reply.changed, body.controllers, body.nodes) {
        (false, ..) => format!("nothing has changed for plugin {id}"),
        (true, 0, 0) => format!("job {job} is taken back from plugin {id}"),
        (true, controllers, nodes) => {
            format!(
                "plugin {id} is to have {controllers} controllers and {nodes} nodes by job {job}"
            )
        }
    });
    Ok(())
}

/// Removes a plugin's remaining records.
pub async fn delete(args: &PluginDelete, session: &Session) -> Result<(), Failure> {
    let (id, body) = (&args.id, Delete { id: args.id.clone() });
    let deleted = session.ask_service::<verb::PluginDelete>(&(), &body).await?;
    session.output.reply(&deleted, |deleted| match deleted {
        Deleted { instances: 0, jobs: 0 } => format!("nothing was left of plugin {id}"),
        Deleted { instances, jobs } => {
            format!(
                "plugin {id} is deleted: {instances} instances of nodes that are away, {jobs} jobs"
            )
        }
    });
    Ok(())
}
