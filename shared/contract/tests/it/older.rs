//! Records of every older schema, for anything that they may hold: whatever one does not say is
//! taken for what holds most (D9), what it says stays as it is, and what is of this version or a
//! newer one is never mended.

use std::fmt::Debug;

use berth_contract::message::secret::{Sealed, StoredSecrets};
use berth_contract::record::{self, Body, NODE_UNKNOWN, RecordError, SCHEMA, SCHEMA_STORAGE};
use berth_domain::access::{AccessMode, CapabilityFilter, Mode};
use berth_domain::alloc::{Alloc, AllocState};
use berth_domain::plugin::{Instance, Job, Node, NodeState};
use berth_domain::retry::Schedule;
use berth_domain::volume::{
    Begin, CallOwner, Claim, Command, Context, HandleUse, Policy, Progress, Route, State, Step,
    Take, Volume, VolumeSpec, Write, step,
};
use berth_domain::{AllocId, Timestamp};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::sample;

/// What a claim is taken to say, where one of before there were versions says nothing.
const CLAIM: [(&str, &str); 4] =
    [("state", "taken"), ("mode", "write"), ("controller", "true"), ("node", NODE_UNKNOWN)];

fn said(value: &str) -> Value {
    value.parse().unwrap_or_else(|_| json!(value))
}

fn time() -> impl Strategy<Value = Timestamp> {
    (0..4_000_000_000_u64).prop_map(|seconds| Timestamp::from_unix_ms(seconds * 1_000))
}

fn claim() -> impl Strategy<Value = Claim> {
    use State::{NodeDetached, Publishing, Taken, Unpublishing, Waiting};
    let state = select(vec![Waiting, Publishing, Taken, Unpublishing, NodeDetached]);
    let stands = (state, select(vec![Mode::Read, Mode::Write]), select(AccessMode::ALL.to_vec()));
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let times = (time(), option::of(time()), option::of(time()));
    let rest = (any::<u32>(), any::<u64>(), option::of(".{0,8}"));
    (stands, flags, times, rest).prop_map(|((state, mode, access), flags, times, rest)| Claim {
        mode,
        access,
        controller: flags.0,
        exhausted: flags.1,
        denied: flags.2,
        proof: flags.3.then(sample::proof),
        since: times.0,
        place_until: times.2,
        epoch: rest.1,
        progress: Progress {
            tries: rest.0,
            next_try: times.1,
            failure: rest.2.map(|words| Box::new(words.into())),
            attempt: sample::claim(state).progress.attempt,
        },
        ..sample::claim(state)
    })
}

fn alloc() -> impl Strategy<Value = Alloc> {
    use AllocState::{Complete, Failed, Live, Stopped};
    let state = select(vec![Live, Complete, Failed, Stopped]);
    (state, option::of(any::<u32>()), time(), option::of(".{0,8}")).prop_map(
        |(state, index, since, note)| Alloc { state, index, since, note, ..sample::alloc() },
    )
}

fn node() -> impl Strategy<Value = Node> {
    let state = select(vec![NodeState::Ready, NodeState::Down]);
    (state, time(), any::<i64>(), any::<bool>(), option::of(time())).prop_map(
        |(state, since, clock_skew_ms, gone, back)| {
            let gone = gone.then(sample::proof);
            Node { state, since, clock_skew_ms, gone, back, ..sample::node() }
        },
    )
}

/// Fields that no version has so far.
fn unknown() -> impl Strategy<Value = Map<String, Value>> {
    let value = prop_oneof![any::<bool>().prop_map(Value::from), ".{0,4}".prop_map(Value::from)];
    prop::collection::btree_map("x-[a-z]{1,4}", value, 0..3)
        .prop_map(|fields| fields.into_iter().collect())
}

fn fields_of<T: Serialize>(body: &T) -> Map<String, Value> {
    let written = record::write(body, None).unwrap();
    serde_json::from_slice(&written).unwrap()
}

fn read<T: Body>(fields: &Map<String, Value>) -> Result<T, RecordError> {
    let bytes = serde_json::to_vec(fields).unwrap();
    record::read::<T>(&bytes).map(|record| record.body)
}

/// The body of a record from before schema versions, without these fields, and with unknown ones.
fn mended<T: Body + Serialize + PartialEq + Debug>(
    body: &T,
    lacks: &[(&str, &str)],
    unknown: &Map<String, Value>,
    is_said: bool,
) -> T {
    let mut older = fields_of(body);
    older.extend(unknown.clone());
    let mut due = older.clone();
    for (name, value) in lacks {
        assert!(older.remove(*name).is_some(), "{name} is in every record");
        due.insert((*name).to_owned(), said(value));
    }
    let lacking: Result<T, _> = read(&older);
    let is_whole = lacks.is_empty();
    assert_eq!(lacking.is_ok(), is_whole, "this version writes it, so without it is damaged");
    if is_said {
        older["schema"] = json!(0);
    } else {
        older.remove("schema");
    }
    let read_back: T = read(&older).unwrap();
    assert_eq!(read_back, serde_json::from_value(Value::Object(due)).unwrap());
    // The next change stores it as this version does, and it means the same.
    assert_eq!(read::<T>(&fields_of(&read_back)).unwrap(), read_back);
    assert_eq!(fields_of(&read_back)["schema"], json!(SCHEMA));
    let newer = json!(u64::from(SCHEMA_STORAGE) + 1);
    older.insert("schema".to_owned(), newer);
    assert!(matches!(read::<T>(&older), Err(RecordError::Newer { .. })));
    read_back
}

/// What follows for the volume that the claim is the only one of.
fn decided(claim: &Claim, command: &Command) -> Option<Step> {
    let spec = VolumeSpec { capabilities: vec![claim.capability()].into(), ..sample::spec() };
    let claims = [(sample::alloc_id(), claim.clone())].into();
    let wait = std::time::Duration::from_secs(1);
    let policy = Policy {
        call_timeout: wait,
        clock_margin: wait,
        abandoned_after: wait,
        place_kept: wait,
        retry: Schedule { first: wait, max: wait },
    };
    // When every wait is over.
    let now = Timestamp::from_unix_ms(5_000_000_000_000);
    let context = Context {
        now,
        attempt: sample::attempt_id(),
        jitter: 0,
        policy,
        handle: HandleUse::default(),
        copies: Vec::new(),
        mounts: Vec::new(),
    };
    step(&Volume { spec: Some(spec), claims, ..Volume::default() }, command, &context).ok()
}

fn frees(claim: &Claim) -> bool {
    let ended = Command::Begin(Begin {
        owner: CallOwner::Claim(sample::alloc_id()),
        worker: sample::worker(),
        wanted: false,
        early: false,
        proven: None,
        executor: None,
    });
    let decided = decided(claim, &ended);
    decided.is_some_and(|step| matches!(step.write, Some(Write::DeleteClaim(_))))
}

fn lets_in(claim: &Claim, mode: Mode) -> bool {
    let take = Take {
        alloc: AllocId::new("another").unwrap(),
        node: "elsewhere".parse().unwrap(),
        mode,
        capability: CapabilityFilter::default(),
        wait: false,
        route: Ok(Route {
            controller: true,
            external_node: Some("ext".to_owned()),
            ..Route::default()
        }),
        worker: sample::worker(),
    };
    decided(claim, &Command::Take(take)).is_some()
}

proptest! {
    /// An older claim is mended, and then holds no less than it did: whom it kept out is kept out,
    /// and it is freed no sooner.
    #[test]
    fn an_older_claim_holds_no_less(
        claim in claim(),
        lacks in subsequence(CLAIM.to_vec(), 0..=CLAIM.len()),
        (unknown, is_said) in (unknown(), any::<bool>()),
    ) {
        let mended = mended(&claim, &lacks, &unknown, is_said);
        prop_assert!(frees(&claim) || !frees(&mended), "{mended:?}");
        for mode in [Mode::Read, Mode::Write] {
            prop_assert!(lets_in(&claim, mode) || !lets_in(&mended, mode), "{mended:?}");
        }
    }

    /// An older alloc that does not say that it has ended may be running.
    #[test]
    fn an_older_alloc_has_not_ended(
        alloc in alloc(), lacks in any::<bool>(), (unknown, is_said) in (unknown(), any::<bool>()),
    ) {
        let lacks = if lacks { &[("state", "live")][..] } else { &[] };
        let mended = mended(&alloc, lacks, &unknown, is_said);
        prop_assert!(alloc.state.is_terminal() || !mended.state.is_terminal());
    }

    /// An older node is down until its lease is seen; whether it counts as gone stays as it is.
    #[test]
    fn an_older_node_is_down(
        node in node(), lacks in any::<bool>(), (unknown, is_said) in (unknown(), any::<bool>()),
    ) {
        let lacks = if lacks { &[("state", "down")][..] } else { &[] };
        let mended = mended(&node, lacks, &unknown, is_said);
        prop_assert_eq!((mended.gone, mended.back), (node.gone, node.back));
    }

    /// Nothing else has been mended so far: what an older version wrote is the same thing now.
    #[test]
    fn other_older_records_are_the_same(
        (name, bytes, jobs) in (".{0,8}", any::<u64>(), any::<[u32; 2]>()),
        healthy in any::<bool>(),
        (unknown, is_said) in (unknown(), any::<bool>()),
    ) {
        let spec = VolumeSpec { name: name.into(), capacity_bytes: Some(bytes), ..sample::spec() };
        mended::<VolumeSpec>(&spec, &[], &unknown, is_said);
        mended::<Instance>(&Instance { healthy, ..sample::instance() }, &[], &unknown, is_said);
        let [controllers, nodes] = jobs;
        mended::<Job>(&Job { controllers, nodes, ..sample::job() }, &[], &unknown, is_said);
        let sealed = Sealed { from: spec.name.to_value(), sealed: "eGt2MQ==".to_owned() };
        let stored = StoredSecrets { sealed, validation: None };
        mended::<StoredSecrets>(&stored, &[], &unknown, is_said);
    }
}
