//! `berth claim …`

use berth_contract::message::claim::{Claims, Status};
use berth_contract::verb;
use berth_service::clock;

use super::listing::{self, PollAnswer, ask_newer};
use crate::args::ClaimStatus;
use crate::failure::Failure;
use crate::session::Session;
use crate::show;

/// Lists claims.
pub async fn status(args: &ClaimStatus, session: &Session) -> Result<(), Failure> {
    listing::check_sort(&args.view, &show::CLAIM_COLUMNS)?;
    let ask = async |newer| {
        let body = Status {
            prefix: args.prefix.clone(),
            volume: args.volume.clone(),
            alloc: args.alloc.clone(),
            node: args.node.clone(),
            plugin: args.plugin.clone(),
            state: args.state,
            page: (&args.page).into(),
            newer,
        };
        let shown =
            ask_newer::<verb::ClaimStatus>(session, &session.namespace, &body, newer).await?;
        Ok(PollAnswer { index: shown.index, next: shown.next.clone(), shown })
    };
    let sort = args.view.sort.as_deref();
    let table = |claims: &Claims| show::sorted_claims(&claims.claims, sort, clock::now());
    listing::show(session, args.view.watch, ask, table).await
}
