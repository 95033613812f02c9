//! `berth claim …`

use berth_contract::message::claim::ListClaims;
use berth_contract::verb;

use super::listing;
use crate::args::ClaimStatus;
use crate::failure::Failure;
use crate::session::Session;

/// Lists claims.
pub async fn status(args: &ClaimStatus, session: &Session) -> Result<(), Failure> {
    let request = |newer| ListClaims {
        prefix: args.prefix.clone(),
        volume: args.volume.clone(),
        alloc: args.alloc.clone(),
        node: args.node.clone(),
        plugin: args.plugin.clone(),
        state: args.state,
        page: (&args.page).into(),
        newer,
        ..ListClaims::default()
    };
    listing::list::<verb::ClaimStatus>(session, &session.namespace, &args.view, None, request).await
}
