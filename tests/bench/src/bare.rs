//! The bare service: one guarded write per request, and nothing else.
//!
//! Its cost is the least that any service on this bus costs: the same connection, request, reply
//! and write as a claim, without a decision.

use std::collections::BTreeMap;
use std::path::PathBuf;

use berth_bus::{Bucket, Bus, Change, Config, EndpointSpec, Guard, ServiceSpec, Write};
use berth_contract::bucket::{self, BucketSpec};
use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use bytes::Bytes;
use rand::RngExt as _;
use serde::{Deserialize, Serialize};

use crate::Fatal;
use crate::identity;

/// Like the bucket of volumes, except for its name.
pub const BUCKET: BucketSpec = BucketSpec { name: "bench-volumes", ..bucket::VOLUMES };
/// Like [`BUCKET`], for writes that followers read.
pub const FOLLOWED: BucketSpec = BucketSpec { name: "bench-followed", ..BUCKET };
/// Requests to write into [`BUCKET`].
pub const SUBJECT: &str = "bench.write";
/// Requests to write into [`FOLLOWED`].
pub const SUBJECT_FOLLOWED: &str = "bench.write-followed";
/// As many requests at once as the claim service takes.
const MAX_IN_FLIGHT: u32 = 1024;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(long)]
    nats: String,
    /// The directory of the identities
    #[arg(long)]
    access: PathBuf,
    #[arg(long)]
    replicas: u8,
    /// The file with the value it writes
    #[arg(long)]
    value: PathBuf,
    /// The file with what it answers
    #[arg(long)]
    answer: PathBuf,
}

/// A request to the bare service: one write.
#[derive(Debug, Serialize, Deserialize)]
pub struct WriteRequest {
    pub key: String,
    /// The subtree that guards it.
    pub filter: String,
    /// The subtree's revision.
    pub revision: u64,
}

/// Serves until it is killed.
pub async fn serve(args: Args) -> Result<(), Fatal> {
    let value = Bytes::from(std::fs::read(&args.value)?);
    let answer: serde_json::Value = serde_json::from_slice(&std::fs::read(&args.answer)?)?;
    let bus = Bus::connect(plain(identity::config(&args.access, args.nats, "bare")?)).await?;
    let endpoints = [
        ("write", SUBJECT, bus.bucket(&BUCKET, args.replicas).await?),
        ("write-followed", SUBJECT_FOLLOWED, bus.bucket(&FOLLOWED, args.replicas).await?),
    ];
    let spec = ServiceSpec {
        name: "bench-bare".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        description: "Guarded writes and nothing else".to_owned(),
        metadata: BTreeMap::new(),
    };
    let service = bus.service(spec).await?;
    for (name, subject, bucket) in endpoints {
        let endpoint = EndpointSpec {
            name: name.to_owned(),
            subject: subject.to_owned(),
            description: "One guarded write".to_owned(),
            max_in_flight: MAX_IN_FLIGHT,
            ..EndpointSpec::default()
        };
        let (value, answer) = (value.clone(), answer.clone());
        service
            .endpoint(endpoint, move |request| {
                let (bucket, value, answer) = (bucket.clone(), value.clone(), answer.clone());
                async move {
                    let requested: WriteRequest = serde_json::from_slice(&request.body)
                        .map_err(|error| Problem::new(Code::BadInput, error))?;
                    match write(&bucket, &requested, value, request.trace).await {
                        Ok(_) => Ok(answer),
                        Err(error) => Err(Problem::new(Code::Internal, error)),
                    }
                }
            })
            .await?;
    }
    std::future::pending().await
}

/// A configuration that sends one message for each write, however many writes come at once.
pub fn plain(config: Config) -> Config {
    Config { alone_max: usize::MAX, ..config }
}

/// Makes the guarded write that a claim makes.
pub async fn write(
    bucket: &Bucket,
    requested: &WriteRequest,
    value: Bytes,
    trace: TraceContext,
) -> Result<u64, Fatal> {
    let operation = format!("{:029x}", rand::rng().random::<u64>());
    let write = Write {
        key: &requested.key,
        change: Change::Put(value),
        guard: Guard { filter: &requested.filter, revision: requested.revision },
        operation: &operation,
        trace,
    };
    Ok(bucket.commit(write).await?)
}
