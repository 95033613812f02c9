//! `berth level …`

use berth_contract::message::level::{HoldLevel, LevelStatus};
use berth_contract::verb;

use crate::args::LevelCommand;
use crate::failure::Failure;
use crate::session::Session;
use crate::table::plain;

/// Holds the level of records or lets it go, and prints what is in force.
pub async fn level(command: LevelCommand, session: &Session) -> Result<(), Failure> {
    let body = HoldLevel { hold: command == LevelCommand::Hold };
    let status = session.ask_service::<verb::LevelHold>(&(), &body).await?;
    session.output.reply(&status, show);
    Ok(())
}

fn show(status: &LevelStatus) -> String {
    let LevelStatus { level, newest, held_by, .. } = status;
    let state = match held_by {
        Some(by) => format!("held by {}", plain(by)),
        None if level < newest => {
            "rises by itself: `berth doctor` shows what it waits for".to_owned()
        }
        None => "the newest".to_owned(),
    };
    format!("level {level} of {newest}, {state}\n")
}
