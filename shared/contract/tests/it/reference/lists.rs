//! What every list can be asked for, in one table.

use berth_contract::verb;
use berth_domain::limits;

use super::endpoints::DOCUMENT;
use super::page::Page;

/// By what lists are filtered, as far as it makes sense; of others they say below why not.
const FILTERS: [&str; 3] = ["prefix", "plugin", "node"];
/// What every list takes besides: its page, and whether to wait.
const ASKED_OF_ALL: [&str; 4] = ["limit", "after", "newer_than", "wait_ms"];

pub fn write(page: &mut Page) {
    page.say("### Lists");
    page.say(format!(
        "A list answers the entries that all of its filters leave, in the order of their keys, at \
         most {} of them or as many as fit a message. When there are more, `next` is what to ask \
         with as `after`. The namespace is the subject's; `=2A`, the token of `*`, stands for all \
         of them. An empty answer is no error.",
        limits::PAGE_MAX
    ));
    let mut rows = Vec::new();
    for one in verb::ALL {
        if one.request == DOCUMENT {
            continue;
        }
        let fields = page.source.get(one.request).names();
        if !fields.contains(&"limit") {
            continue;
        }
        let is_namespaced = one.subject.ends_with("<ns>");
        let namespace = if is_namespaced { "yes" } else { why_not(one.step, "namespace") };
        let filter = |name: &str| {
            if fields.contains(&name) { "yes" } else { why_not(one.step, name) }.to_owned()
        };
        let is_other = |name: &&&str| !FILTERS.contains(name) && !ASKED_OF_ALL.contains(name);
        let others: Vec<String> =
            fields.iter().filter(is_other).map(|name| format!("`{name}`")).collect();
        let [prefix, plugin, node] = FILTERS.map(filter);
        let name = format!("[{}](#{})", one.anchor(), one.anchor());
        rows.push([name, namespace.to_owned(), prefix, plugin, node, others.join(", ")]);
    }
    page.table(["list", "namespace", "prefix", "plugin", "node", "also"], &rows);
    page.say(
        "Each page is one picture. Its `index` is the revision of the bucket that it shows: with \
         every write up to that one, and none after it, whichever replica answers; what was \
         acknowledged before it was asked for is in it. The next page is a picture of its own, \
         and never an older one: pages with the same `index` are of one picture, and an entry \
         that is there all the while is on one page, and on one only.",
    );
    page.say(
        "Plugins and nodes, which stand in two buckets, are both looked at at one moment, and \
         `index` is the sum of both revisions. What an entry is told of from other buckets, \
         `healthy` of a volume and how many `claims` an alloc has, is as of about that time. A \
         placement is made of all buckets, and names no `index`.",
    );
    page.say(
        "There is no list of secrets: `has_secrets` of [volume-status](#volume-status) says \
         whether a volume has some. What one node has, [agent-status](#agent-status) and \
         [agent-plugins](#agent-plugins), comes whole.",
    );
}

/// Why a list has no such filter, or what stands for it.
fn why_not(step: &str, filter: &str) -> &'static str {
    match (step, filter) {
        ("plugin.status", "plugin") | ("node.status", "node") => "`id`",
        ("plugin.status" | "node.status", "namespace") => "no: they are in none, and serve all",
        ("alloc.list", "plugin") => {
            "no: that is a matter of its volumes, in another bucket; \
             [claim-status](#claim-status) has it, and names the allocs"
        }
        ("volume.placement", "prefix" | "plugin") => "no: it is asked about `volumes` by name",
        other => panic!("why is there no such filter: {other:?}? say it here"),
    }
}
