//! Lists, read page by page.

use berth_bus::Call;
use berth_contract::message::paged::{Paged, PagedReply};
use berth_contract::problem::Problem;
use berth_contract::verb::Verb;

use crate::{Client, Retry};

impl Client {
    /// Reads a list to its end, or `pages_max` pages; returns whether the end was read. Each page
    /// is passed to `take` as it comes, and all pages come by the call's deadline.
    pub async fn pages<V: Verb<Request: Paged, Reply: PagedReply>>(
        &self,
        to: &V::To,
        mut request: V::Request,
        call: &Call,
        pages_max: usize,
        mut take: impl FnMut(V::Reply),
    ) -> Result<bool, Problem> {
        for _page in 0..pages_max {
            let page = self
                .persist::<V>(to, &request, call, Retry::USUAL, |failed| failed.problem.retryable);
            let page = page.await?;
            let next = page.next_page();
            take(page);
            match next {
                Some(next) => request.page_mut().after = Some(next),
                None => return Ok(true),
            }
        }
        Ok(false)
    }
}
