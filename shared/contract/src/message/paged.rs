//! The lists that are read page by page, each with its reply.

use super::query::Page;
use super::{alloc, claim, class, history, registry, snapshot, storage, volume};

/// A request for a list.
pub trait Paged {
    /// Which page it asks for.
    fn page_mut(&mut self) -> &mut Page;
}

/// A page of a list.
pub trait PagedReply {
    /// What to ask for the next page with, as `after`; none when this is the last.
    fn next_page(&self) -> Option<String>;
}

/// The lists whose request has a `page` and whose reply has a `next`.
macro_rules! paged {
    ($($request:ty => $reply:ty),* $(,)?) => {$(
        impl Paged for $request {
            fn page_mut(&mut self) -> &mut Page {
                &mut self.page
            }
        }

        impl PagedReply for $reply {
            fn next_page(&self) -> Option<String> {
                self.next.clone()
            }
        }
    )*};
}

paged!(
    volume::ListVolumes => volume::Volumes,
    volume::ListPlacements => volume::Placements,
    claim::ListClaims => claim::Claims,
    alloc::ListAllocs => alloc::Allocs,
    history::ListEvents => history::EventPage,
    snapshot::ListSnapshots => snapshot::Snapshots,
    class::ListClasses => class::Classes,
    storage::ListExternals => storage::Externals,
    registry::ListPlugins => registry::Plugins,
    registry::ListNodes => registry::Nodes,
);
