//! `berth claim …`

use berth_contract::message::claim::{Claims, Status};
use berth_contract::subject::Namespaced;
use berth_service::clock;

use crate::args::ClaimStatus;
use crate::failure::Failure;
use crate::output::more;
use crate::session::Session;
use crate::show;

/// Lists claims.
pub async fn status(args: &ClaimStatus, session: &Session) -> Result<(), Failure> {
    let body = Status {
        prefix: args.prefix.clone(),
        volume: args.volume.clone(),
        alloc: args.alloc.clone(),
        node: args.node.clone(),
        plugin: args.plugin.clone(),
        state: args.state,
        page: (&args.page).into(),
        ..Status::default()
    };
    let claims: Claims = session.ask(&session.about(Namespaced::ClaimStatus), &body).await?;
    session.output.reply(&claims, |claims| show::claims(&claims.claims, clock::now()));
    more(claims.next.as_ref());
    Ok(())
}
