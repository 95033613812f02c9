//! Buckets with their keys and records, and the stream of events.

use berth_contract::actor::Actor;
use berth_contract::bucket::{self, BucketSpec};
use berth_contract::event::EventName;
use berth_contract::service::{CLAIM, PLUGIN_REGISTRY};
use berth_contract::{key, stream, subject};
use berth_domain::SecretsId;
use berth_domain::plugin::Half;

use super::page::{Page, linked};
use crate::sample;

/// A kind of key: how it is made of ids, one of it, its record's type and its golden files.
pub struct Keys {
    pub form: &'static str,
    pub one: String,
    pub record: &'static str,
    pub goldens: &'static [&'static str],
}

/// The keys of a bucket. A new bucket says here what is in it.
fn keys(bucket: &BucketSpec) -> Vec<Keys> {
    let (volume, alloc, node) = (sample::key(), sample::alloc_id(), sample::node_id());
    let plugin = sample::plugin();
    let keys = |form, one, record, goldens| Keys { form, one, record, goldens };
    match *bucket {
        bucket::VOLUMES => vec![
            keys(
                "<ns>.<vol>.spec",
                key::spec(&volume),
                "VolumeSpec",
                &[
                    "record-spec",
                    "record-spec-closing",
                    "record-spec-unused",
                    "record-spec-creating",
                    "record-spec-failed",
                    "record-spec-ready",
                    "record-spec-expanding",
                    "record-spec-modifying",
                    "record-spec-deleting",
                ],
            ),
            keys(
                "<ns>.<vol>.claim.<alloc>",
                key::claim(&volume, &alloc),
                "Claim",
                &[
                    "record-claim-unpublishing",
                    "record-claim-waiting",
                    "record-claim-publishing",
                    "record-claim-taken",
                    "record-claim-node-detached",
                    "record-claim-trail",
                ],
            ),
            keys(
                "<ns>.<vol>.snapshot.<snapshot>",
                key::snapshot(&volume, &sample::snapshot_id()),
                "Snapshot",
                &[
                    "record-snapshot-creating",
                    "record-snapshot-cut",
                    "record-snapshot-ready",
                    "record-snapshot-failed",
                    "record-snapshot-deleting",
                ],
            ),
            keys("=class.<class>", key::class(&sample::class_id()), "Class", &["record-class"]),
            keys(
                "=quota.<class>.<ns>",
                key::quota(&sample::class_id(), &volume.namespace),
                "ClassUse",
                &["record-quota"],
            ),
            keys(
                "=handle.<plugin>.<external id>",
                key::handle(&sample::spec().handle(&volume.volume).unwrap()),
                "HandleOwner",
                &["record-handle"],
            ),
            keys("=level", key::LEVEL.to_owned(), "Level", &["record-level"]),
        ],
        bucket::ALLOCS => {
            let one = key::alloc(&volume.namespace, &alloc);
            vec![keys("<ns>.<alloc>", one, "Alloc", &["record-alloc"])]
        }
        bucket::SECRETS => {
            let id = SecretsId::new("019bcb6ac57b-0123456789abcdef").unwrap();
            let one = key::secrets(&volume, &id);
            vec![keys("<ns>.<vol>.<id>", one, "secret::StoredSecrets", &["record-secrets"])]
        }
        bucket::PLUGINS => {
            let one = key::instance(&plugin, &node, Half::Node);
            let job = key::job(&plugin, &volume.namespace, &sample::job_id());
            vec![
                keys("<plugin>.instance.<node>.<half>", one, "Instance", &["record-instance"]),
                keys("<plugin>.job.<ns>.<job>", job, "Job", &["record-job"]),
            ]
        }
        bucket::NODES => vec![keys("<node>", key::node(&node), "Node", &["record-node"])],
        bucket::LEASES => vec![
            keys("node.<node>", key::node_lease(&node), "NodeLeaseRecord", &["lease-node"]),
            keys(
                "owner.<ns>.<owner>",
                key::owner_lease(&volume.namespace, &sample::owner_id()),
                "OwnerHolder",
                &["lease-owner"],
            ),
            keys("leader.<service>", key::leader_lease("gc"), "Leader", &["lease-leader"]),
        ],
        ref other => panic!("what is in bucket {}? say it here", other.name),
    }
}

/// Every kind of key with its bucket.
pub fn all_keys() -> impl Iterator<Item = (BucketSpec, Keys)> {
    bucket::ALL
        .into_iter()
        .flat_map(|bucket| keys(&bucket).into_iter().map(move |keys| (bucket, keys)))
}

pub fn write(page: &mut Page) {
    page.say("## Buckets");
    page.say(
        "JetStream KV. Read and watch the buckets as you like, but do not write: each has one \
         writer, whose writes are guarded by revisions. The fields of a record are in the order \
         in which a person wants them: `nats kv get` shows the first 120 characters, which say \
         what state it is in. Every record ends with fields of its own: `trace`, the trace id of \
         its last change (optional); on claims `trail`, the spans of the claim, for the process \
         that emits them; and `schema`, a whole number, the version of its form. It is 1, but 2 \
         for what older versions must not read: a snapshot, and a spec with `storage`. They are \
         the definition [Record](contract.schema.json#/$defs/Record). Do not write to a record \
         with a newer `schema`; read the fields that you know.",
    );
    for bucket in bucket::ALL {
        page.say(format!("### {}", bucket.name));
        let hours = bucket.marker_ttl.as_secs() / 3600;
        let history = match bucket.history {
            1 => "the value of each key alone".to_owned(),
            some => format!("{some} values of each key, also of one that was deleted"),
        };
        page.say(format!(
            "{}. Written by: {}. History: {}; a deletion shows for {hours} h. Stream `KV_{}`.",
            bucket.description, bucket.writer, history, bucket.name
        ));
        let mut rows = Vec::new();
        if bucket == bucket::LEASES {
            page.say(
                "A key that is there is a lease that is held: it ends by itself unless it is \
                 renewed. Its value says by whom, and is no record: it has neither `trace` nor \
                 `schema`. While a node's is there, the node is ready. An owner's ends its hold on \
                 its allocs. Of all services `gc` alone has one.",
            );
        }
        for keys in keys(&bucket) {
            let meaning = page.source.get(keys.record).meaning.clone();
            let (form, one) = (format!("`{}`", keys.form), format!("`{}`", keys.one));
            rows.push([form, one, linked(keys.record), meaning]);
        }
        page.table(["key", "for example", "value", "what it is"], &rows);
    }
    buckets(page);
    events(page);
}

/// The record of which buckets there are: for people, and for each process that opens one.
fn buckets(page: &mut Page) {
    let BucketSpec { name, description, writer, history, .. } = bucket::BUCKETS;
    page.say(format!("### {name}"));
    page.say(format!(
        "{description}. Written by: {writer}. History: {history} values of each key. Stream \
         `KV_{name}`. A key is a bucket's name, its value a JSON object with `created`, the time \
         at which the bucket's stream was made. A bucket that has a key here and no stream was \
         deleted: no process makes it again until an operator writes the value `begin-anew`. The \
         key `complete` says that the buckets of an installation of before are on record. \
         `created` is empty there, and where the time is not known. Of the \
         bucket's newest `incarnation`, `highest` is a revision that it has reached, and `fell` \
         says why no service serves it: it was restored or set back by another tool, and nobody \
         has accepted it."
    ));
}

fn events(page: &mut Page) {
    let events = stream::EVENTS;
    page.say("## Events");
    page.say(format!(
        "Stream `{}`: {}. Subjects `{}`; kept for {} days and up to {} MiB.",
        events.name,
        events.description.to_lowercase(),
        events.subjects.join("`, `"),
        events.max_age.as_secs() / (24 * 3600),
        events.max_bytes >> 20,
    ));
    let namespace = sample::namespace();
    let (volume, alloc, node) = (sample::volume(), sample::alloc_id(), sample::node_id());
    let (claim, registry) = (Actor::service(CLAIM), Actor::service(PLUGIN_REGISTRY));
    let anna = Actor::user("anna");
    let by = anna.tokens();
    let of_claim = subject::EventSubject {
        namespace: Some(&namespace),
        kind: "claim",
        id: Some(volume.as_str()),
        alloc: Some(&alloc),
        by: Some(&by),
    };
    let id = Some(node.as_str());
    let of_node =
        subject::EventSubject { namespace: None, kind: "node", id, alloc: None, by: None };
    page.say(format!(
        "The subject is `{}.<actor>`: the kind is the \
         noun of the name; the id is that of the volume for `volume`, `snapshot`, `claim`, `call` \
         and `request`, else of the thing itself; `<by>` is the actor that registered or adopted \
         the alloc, or that sent a refused request, two tokens; and the actor is the service or \
         agent that tells it: `{}`. `_` stands for what an event is not about; plugins and nodes \
         are in no namespace: `{}`. So a scheduler gets the events of its own allocs alone with \
         the filter `{}`, and those of one alloc with `{}`. The value is an {}. No service acts on \
         events, and in a power cut the last second of them may be lost: to know how things \
         stand, read the buckets. The message carries the header `traceparent`.",
        subject::EVENT_FORM,
        claim.sign(&of_claim.to_string()),
        registry.sign(&of_node.to_string()),
        subject::wanted_filter(subject::EventsOf::Namespace(&namespace), &anna),
        subject::alloc_filter(subject::EventsOf::Namespace(&namespace), &alloc),
        linked("Event"),
    ));
    let names = EventName::ALL.iter();
    let rows: Vec<[String; 2]> =
        names.map(|name| [format!("`{name}`"), name.meaning().to_owned()]).collect();
    page.table(["event", "what happened"], &rows);
}
