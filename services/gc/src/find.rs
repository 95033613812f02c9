//! Finds candidates: asks the claim service and the registry for lists of them, page by page, and
//! reads the records of plugins.
//!
//! **Promises** that a sweep that nobody asked for reads a bounded number of pages of each list,
//! however many volumes and nodes there are. The next sweep goes on behind the last page that was
//! read, also after an error. A forced sweep reads each list from its beginning. Neither keeps more
//! than one page and its candidates.

use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::message::alloc::ListAllocs;
use berth_contract::message::claim::ListClaims;
use berth_contract::message::collect::Kind;
use berth_contract::message::paged::{Paged, PagedReply};
use berth_contract::message::query::Page;
use berth_contract::message::registry::ListNodes;
use berth_contract::message::volume::ListVolumes;
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb};
use berth_domain::alloc::AllocState;
use berth_domain::plugin::NodeState;
use berth_domain::{Namespace, NodeId};
use berth_service::clock;
use futures_util::{StreamExt as _, stream};

use crate::collector::{Collector, Cursors, Order};
use crate::plan::{DownNode, Plan, burden_by_allocs, burden_by_claims};

/// Most candidates of one kind in one sweep; the next sweep takes the rest.
pub const ITEMS_MAX: usize = 1000;
/// Pages of one list that a sweep reads which nobody asked for.
const PAGES_MAX: usize = 10;
/// Nodes that are asked about at the same time.
const NODES_AT_ONCE: usize = 8;

impl Collector {
    /// Adds the candidates of one kind that are due for longer than `after`.
    pub(crate) async fn find(
        &self,
        (kind, after): (Kind, Duration),
        order: &Order,
        cursors: &mut Cursors,
        plan: &mut Plan,
    ) -> Result<(), Problem> {
        let (all, now) = (&Namespace::wildcard(), clock::now());
        match kind {
            Kind::Claims => {
                let closing = ListVolumes { closing: true, ..ListVolumes::default() };
                let more = self.read_pages::<verb::VolumeList>(
                    all,
                    (closing, &mut cursors.closing),
                    order,
                    |page| {
                        plan.add_closing(&page);
                        plan.closing.len()
                    },
                );
                let closing = more.await;
                let before = plan.kept.len();
                let leaving = ListClaims { leaving: true, ..ListClaims::default() };
                let more = self.read_pages::<verb::ClaimStatus>(
                    all,
                    (leaving, &mut cursors.claims),
                    order,
                    |page| {
                        plan.add_claims(&page, now, after);
                        plan.unwanted.len() + plan.kept.len() - before
                    },
                );
                let leaving = more.await;
                plan.more |= closing? | leaving?;
            }
            Kind::Allocs => {
                // An alloc that ended at the very time is long enough ended, too.
                let before = now.before(after).after(Duration::from_millis(1));
                let over = ListAllocs { forgettable_before: Some(before), ..ListAllocs::default() };
                let mut is_first = true;
                let more = self.read_pages::<verb::AllocList>(
                    all,
                    (over, &mut cursors.allocs),
                    order,
                    |page| {
                        plan.add_ended(&page, before);
                        if std::mem::take(&mut is_first) {
                            plan.add_unreadable_allocs(&page);
                        }
                        plan.ended.len()
                    },
                );
                let more = more.await?;
                plan.more |= more;
            }
            Kind::Nodes => self.find_nodes(after, order, &mut cursors.nodes, plan).await?,
            Kind::Plugins => {
                let view = self.view(order.deadline).await?;
                view.with_view(now, |view| view.find_strays(after, plan));
            }
        }
        Ok(())
    }

    /// Reads the list from where the last sweep ended; a forced sweep reads it from its beginning,
    /// and leaves that place alone. `take` returns how many things were found. Returns whether
    /// there were more than one sweep takes.
    async fn read_pages<V>(
        &self,
        to: &V::To,
        (mut list, cursor): (V::Request, &mut Option<String>),
        order: &Order,
        mut take: impl FnMut(V::Reply) -> usize,
    ) -> Result<bool, Problem>
    where
        V: Verb,
        V::Request: Paged,
        V::Reply: PagedReply,
    {
        let mut after = cursor.clone().filter(|_| !order.is_forced);
        let (mut found, mut pages) = (0, 0);
        loop {
            let limit = u32::try_from(ITEMS_MAX - found).ok();
            *list.page_mut() = Page { limit, after };
            let page = self.ask_once::<V>(to, &list, order).await;
            if page.as_ref().is_err_and(|problem| problem.code == Code::BadInput) {
                // The place means nothing to the service that was asked.
                *cursor = None;
            }
            let page = page?;
            after = page.next_page();
            found = take(page);
            pages += 1;
            let is_full = found >= ITEMS_MAX;
            if !order.is_forced {
                cursor.clone_from(&after);
            }
            if after.is_none() || is_full || (pages == PAGES_MAX && !order.is_forced) {
                return Ok(is_full && after.is_some());
            }
        }
    }

    /// Adds nodes that are down, with nothing on them.
    async fn find_nodes(
        &self,
        after: Duration,
        order: &Order,
        cursor: &mut Option<String>,
        plan: &mut Plan,
    ) -> Result<(), Problem> {
        let before = clock::now().before(after);
        // The answer to a forced sweep names mounts without a claim, also of nodes that are ready.
        let state = (!order.is_forced).then_some(NodeState::Down);
        let list = ListNodes { state, ..ListNodes::default() };
        let (mut down, mut is_first) = (Vec::new(), true);
        let more = self.read_pages::<verb::NodeStatus>(&(), (list, cursor), order, |page| {
            if std::mem::take(&mut is_first) {
                plan.add_unreadable_nodes(&page);
            }
            down.extend(plan.find_down(page, before));
            down.len()
        });
        let more = more.await;
        // Also what was found before an error: the next sweep goes on behind it.
        let judged = stream::iter(down).map(|mut node: DownNode| async {
            let burden = match node.burden.take() {
                None => self.burden(&node.id, order).await,
                burden => burden,
            };
            (node, burden)
        });
        let mut judged = judged.buffered(NODES_AT_ONCE);
        while let Some((node, burden)) = judged.next().await {
            plan.add_down(node, burden);
        }
        plan.more |= more?;
        Ok(())
    }

    /// What may be on the node, by its claims and its live allocs.
    async fn burden(&self, node: &NodeId, order: &Order) -> Option<String> {
        let (all, page) = (Namespace::wildcard(), Page { limit: Some(1), after: None });
        let node = Some(node.clone());
        let claims = ListClaims { node: node.clone(), page: page.clone(), ..ListClaims::default() };
        let state = Some(AllocState::Live);
        let allocs = ListAllocs { node, state, page, ..ListAllocs::default() };
        let claims = self.ask_once::<verb::ClaimStatus>(&all, &claims, order).await;
        let by_claims = claims.map(|page| burden_by_claims(&page));
        let burden = match by_claims {
            Ok(None) => {
                let allocs = self.ask_once::<verb::AllocList>(&all, &allocs, order).await;
                allocs.map(|page| burden_by_allocs(&page))
            }
            burden => burden,
        };
        burden.unwrap_or_else(|problem| Some(format!("what is there is not known: {problem}")))
    }
}
