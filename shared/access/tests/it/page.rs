//! The rights of each role in `docs/access.md`, made from the permissions themselves. They are
//! rewritten by `BERTH_WRITE_DOCS=1 cargo test -p berth-access`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use berth_access::{Grants, Permissions, Role, derive_permissions};
use berth_contract::bucket::{self, BUCKETS};
use berth_contract::permissions::{name_publish, name_subscription};
use berth_contract::stream::EVENTS;
use berth_contract::token::encode;
use berth_domain::{Namespace, NodeId, PluginId};

/// The text below this mark is generated.
const MARK: &str = "<!-- generated below -->\n";
const NODE: &str = "<node>";
const PLUGIN: &str = "<plugin>";
const NAMESPACE: &str = "<ns>";
const NAME: &str = "<name>";

#[test]
fn the_page_names_the_rights_of_each_role() {
    let file = format!("{}/../../docs/access.md", env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(&file).unwrap();
    let (above, below) = page.split_once(MARK).expect("the page has the mark");
    let text = write_rights();
    if std::env::var_os("BERTH_WRITE_DOCS").is_some() {
        fs::write(&file, format!("{above}{MARK}{text}")).unwrap();
        return;
    }
    assert!(below == text, "access.md: run BERTH_WRITE_DOCS=1 cargo test -p berth-access");
}

/// A section for each role, and for each capability of a user.
fn write_rights() -> String {
    let node = NodeId::new(NODE).unwrap();
    let controllers = vec![PluginId::new(PLUGIN).unwrap()];
    let mut sections = Vec::new();
    for role in berth_contract::role::SERVICES {
        sections.push((format!("berth-{}", role.kind()), role));
    }
    let agent = Role::Node { node: node.clone(), controllers };
    sections.push(("Node agent".to_owned(), agent));
    let namespaces = BTreeSet::from([Namespace::new(NAMESPACE).unwrap()]);
    let docker = Role::Docker { node, namespaces };
    sections.push(("Docker's volume plugin: `--namespaces <ns>`".to_owned(), docker));
    for capability in ["list", "read", "write", "mount"] {
        let grants = Grants::parse_namespaces(&[format!("{NAMESPACE}={capability}")]).unwrap();
        sections.push((format!("User: `--grant <ns>={capability}`"), user(grants)));
    }
    let of_fleet = |change: fn(&mut Grants)| {
        let mut grants = Grants::default();
        change(&mut grants);
        user(grants)
    };
    let plugins = of_fleet(|grants| grants.plugin_read = true);
    sections.push(("User: `--plugins`".to_owned(), plugins));
    sections.push(("User: `--nodes`".to_owned(), of_fleet(|grants| grants.node_read = true)));
    let operator = of_fleet(|grants| grants.operator = true);
    sections.push(("User: `--operator`".to_owned(), operator));
    sections.push(("Inspect".to_owned(), Role::Inspect { name: NAME.to_owned() }));
    sections.push(("Admin".to_owned(), Role::Admin { name: NAME.to_owned() }));

    let mut text = String::new();
    for (title, role) in sections {
        let permissions = derive_permissions(&role).with_inbox("_INBOX.<key>");
        let words = sentence(&role.describe().join("; "));
        write!(text, "\n### {title}\n\n{words}\n\n{}", write_table(&permissions)).unwrap();
    }
    text
}

fn user(grants: Grants) -> Role {
    Role::User { name: NAME.to_owned(), grants }
}

fn sentence(words: &str) -> String {
    let first: String = words.chars().take(1).flat_map(char::to_uppercase).collect();
    let tail: String = words.chars().skip(1).collect();
    // Without the quotes a page would treat an id as a tag.
    let quote = |text: String, id: &&str| text.replace(*id, &format!("`{id}`"));
    [NODE, PLUGIN, NAMESPACE, NAME].iter().fold(format!("{first}{tail}."), quote)
}

/// Shows placeholder ids in plain form, and not as tokens.
fn show(subject: &str) -> String {
    [NODE, PLUGIN, NAMESPACE, NAME]
        .iter()
        .fold(subject.to_owned(), |text, id| text.replace(&encode(id), id))
}

fn write_table(permissions: &Permissions) -> String {
    let mut rows: Vec<(&str, Vec<String>)> = Vec::new();
    let mut streams = BTreeMap::new();
    for subject in &permissions.publish_allow {
        if let Some((call, stream)) = find_stream(subject) {
            let calls: &mut Vec<String> = streams.entry(stream).or_default();
            calls.push(call);
        } else {
            put(&mut rows, name_publish(subject), format!("`{}`", show(subject)));
        }
    }
    // Streams with the same calls share a line.
    let mut shared: Vec<(Vec<String>, Vec<String>)> = Vec::new();
    for (stream, calls) in streams {
        match shared.iter_mut().find(|(shared_calls, _)| *shared_calls == calls) {
            Some((_, of)) => of.push(format!("`{stream}`")),
            None => shared.push((calls, vec![format!("`{stream}`")])),
        }
    }
    for (calls, of) in shared {
        let calls: Vec<String> = calls.iter().map(|call| format!("`{call}`")).collect();
        let text = format!("{}: {}", of.join(", "), calls.join(", "));
        put(&mut rows, "publish: calls about a `<stream>`", text);
    }
    for allowed in &permissions.subscribe_allow {
        let text = match allowed.split_once(' ') {
            Some((subject, queue)) => format!("`{}` in queue `{}`", show(subject), show(queue)),
            None => format!("`{}`", show(allowed)),
        };
        put(&mut rows, name_subscription(allowed), text);
    }
    let mut table = "| may | subjects |\n| --- | --- |\n".to_owned();
    for (action, subjects) in rows {
        writeln!(table, "| {action} | {} |", subjects.join("<br>")).unwrap();
    }
    table
}

fn put(rows: &mut Vec<(&'static str, Vec<String>)>, what: &'static str, text: String) {
    match rows.iter_mut().find(|(row_action, _)| *row_action == what) {
        Some((_, subjects)) => subjects.push(text),
        None => rows.push((what, vec![text])),
    }
}

/// The call and the stream that it is about.
fn find_stream(subject: &str) -> Option<(String, String)> {
    let buckets = bucket::ALL.iter().chain([&BUCKETS]).map(|spec| format!("KV_{}", spec.name));
    let mut streams = buckets.chain([EVENTS.name.to_owned()]);
    let stream = streams.find(|stream| subject.split('.').any(|token| token == stream))?;
    Some((subject.replace(&stream, "<stream>"), stream))
}
