//! What every list can be asked for, in one table.

use berth_contract::verb;
use berth_domain::limits;

use super::page::Page;
use super::source::DOCUMENT;

/// By what lists are filtered, as far as it makes sense; of others they say below why not.
const FILTERS: [&str; 3] = ["prefix", "plugin", "node"];
/// What every list takes besides: its page, and whether to wait.
const ASKED_OF_ALL: [&str; 4] = ["limit", "after", "newer_than", "wait_ms"];

pub fn write(page: &mut Page) {
    page.say("### Lists");
    page.say(format!(
        "A list returns the entries that match all of its filters, in the order of their keys. A \
         page has at most {} entries, and no more than fit into a message. If there are more, the \
         reply has `next`: ask for the next page with its value as `after`. The namespace is in \
         the subject; `=2A`, the token of `*`, means all namespaces. A list without entries is no \
         error.",
        limits::PAGE_MAX
    ));
    let mut rows = Vec::new();
    for one in verb::ALL {
        if one.request == DOCUMENT {
            continue;
        }
        let fields = page.source.get(one.request).names();
        if !fields.contains(&"after") {
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
        "Each page is a snapshot of one bucket. Its `index` is the revision of the snapshot: it \
         shows every write up to that revision, and none after it, whichever replica answers. It \
         includes every write that was acknowledged before the request. The next page is a \
         snapshot of its own, and never an older one. Pages with the same `index` show the same \
         snapshot. An entry that exists during the whole listing is on exactly one page.",
    );
    page.say(
        "Plugins and nodes are stored in two buckets. Both are read at one moment, and `index` is \
         the sum of both revisions. Two fields come from other buckets, and may be slightly older \
         or newer than the snapshot: `healthy` of a volume, and the number of `claims` of an \
         alloc. A placement is computed from all buckets: its `index` is a number that stands for \
         the answer. Owners are counted from two buckets, and their list has no `index`.",
    );
    page.say(
        "A request with `newer_than` is answered when something that it asks for is newer than \
         that `index`: an entry that the filters match, or matched before it changed; for \
         [volume-status](#volume-status) the volume or a claim of it (`modify_index`), for \
         [alloc-status](#alloc-status) the alloc or one of its volumes (`status_index`), for \
         [volume-placement](#volume-placement) when the answer is another one. Nothing else wakes \
         it, but for lists of plugins and nodes, which any change of these wakes. The last few \
         thousand changes of a bucket are remembered: a request with an older `index` is answered \
         at once. So a reader that repeats its request with the last `index` misses nothing. \
         [alloc-wait](#alloc-wait) needs no `index`.",
    );
    page.say(
        "[history-list](#history-list) reads the stream of events, and has no `index`. \
         Its first page is the newest events, and `next` leads to older ones. `end` as `after` \
         leads to the events that are stored later: a reader that asks again with it misses none. \
         Events of plugins and nodes are in no namespace: they are listed for all namespaces only. \
         `only_namespace` limits such a request to one namespace and to what is in none.",
    );
    page.say(
        "There is no list of secrets: `has_secrets` of [volume-status](#volume-status) and \
         [class-list](#class-list) says whether a volume or a class has any. \
         [class-list](#class-list) and [volume-external](#volume-external) have no `index`. A \
         page of [volume-external](#volume-external) goes on with the plugin's list where the page \
         before ended, and may have no entries. What is registered and not listed comes last. \
         [agent-status](#agent-status) and [agent-plugins](#agent-plugins) answer about one node, \
         and [plugin-capacity](#plugin-capacity) about one plugin, whole and without pages.",
    );
}

/// Why a list has no such filter, or what replaces it.
fn why_not(step: &str, filter: &str) -> &'static str {
    match (step, filter) {
        ("plugin.status", "plugin") | ("node.status", "node") => "`id`",
        ("plugin.status" | "node.status", "namespace") => "no: it is in no namespace",
        ("alloc.list", "plugin") => {
            "no: [claim-status](#claim-status) has this filter, and names the allocs"
        }
        ("owner.list", "plugin" | "node") => "no: it is on none",
        ("snapshot.list", "node") => "no: it is at the storage",
        ("history.list", "prefix") => "no: `volumes`, `allocs`, `kinds`",
        ("class.list", "prefix" | "plugin" | "node") | ("volume.external", "prefix" | "node") => {
            "no: `id`"
        }
        ("volume.placement", "prefix" | "plugin") => "no: the request names the `volumes`",
        other => panic!("why is there no such filter: {other:?}? say it here"),
    }
}
