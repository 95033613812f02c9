//! `berth plugin …`

use berth_contract::code::Code;
use berth_contract::message::registry::{Delete, Deleted, Expect, Expected, PluginQuery, Plugins};
use berth_contract::problem::Problem;
use berth_contract::subject::Global as Verb;
use berth_service::clock;

use crate::args::{PluginDelete, PluginExpect, PluginStatus};
use crate::failure::Failure;
use crate::output::more;
use crate::session::{Question, Session};
use crate::show;

/// Lists plugins, or shows one.
pub async fn status(args: &PluginStatus, session: &Session) -> Result<(), Failure> {
    let body = PluginQuery {
        id: args.id.clone(),
        prefix: args.prefix.clone(),
        node: args.node.clone(),
        kind: args.kind,
        page: (&args.page).into(),
        ..PluginQuery::default()
    };
    let plugins: Plugins = session.ask(&Question::global(Verb::PluginStatus), &body).await?;
    let Some(id) = &args.id else {
        let none = plugins.plugins.is_empty() && body != PluginQuery::default();
        session.output.reply(&plugins, |plugins| {
            if none {
                "no such plugins; without a filter all are listed\n".to_owned()
            } else {
                show::plugins(plugins)
            }
        });
        more(plugins.next.as_ref());
        return Ok(());
    };
    let next = plugins.next;
    let Some(plugin) = plugins.plugins.into_iter().find(|plugin| plugin.id == *id) else {
        let message = format!("there is no plugin {id}");
        return Err(Problem::new(Code::NoSuchPlugin, message)
            .at("plugin.status")
            .plugin(id)
            .into());
    };
    session.output.reply(&plugin, |plugin| show::plugin(plugin, clock::now()));
    more(next.as_ref());
    Ok(())
}

/// Says how many instances a job is to have.
pub async fn expect(args: &PluginExpect, session: &Session) -> Result<(), Failure> {
    let PluginExpect { id, job, controllers, nodes } = args;
    let body = Expect {
        plugin: id.clone(),
        namespace: session.namespace.clone(),
        job: job.clone(),
        controllers: *controllers,
        nodes: *nodes,
    };
    let told: Expected = session.ask(&Question::global(Verb::PluginExpect), &body).await?;
    session.output.reply(&told, |told| match (told.changed, body.controllers, body.nodes) {
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

/// Removes what is left of a plugin.
pub async fn delete(args: &PluginDelete, session: &Session) -> Result<(), Failure> {
    let (id, body) = (&args.id, Delete { id: args.id.clone() });
    let deleted: Deleted = session.ask(&Question::global(Verb::PluginDelete), &body).await?;
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
