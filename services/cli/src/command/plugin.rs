//! `berth plugin …`

use berth_contract::code::Code;
use berth_contract::message::registry::{Plugins, Status};
use berth_contract::problem::Problem;
use berth_contract::subject::Global as Verb;
use berth_service::clock;

use crate::args::PluginStatus;
use crate::failure::Failure;
use crate::session::{Question, Session};
use crate::show;

/// Lists plugins, or shows one.
pub async fn status(args: &PluginStatus, session: &Session) -> Result<(), Failure> {
    let body = Status { id: args.id.clone() };
    let plugins: Plugins = session.ask(&Question::global(Verb::PluginStatus), &body).await?;
    let Some(id) = &args.id else {
        session.output.reply(&plugins, show::plugins);
        return Ok(());
    };
    let Some(plugin) = plugins.plugins.into_iter().find(|plugin| plugin.id == *id) else {
        let message = format!("there is no plugin {id}");
        return Err(Problem::new(Code::NoSuchPlugin, message)
            .at("plugin.status")
            .plugin(id)
            .into());
    };
    session.output.reply(&plugin, |plugin| show::plugin(plugin, clock::now()));
    Ok(())
}
