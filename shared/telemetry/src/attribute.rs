//! Names of attributes: those of the semantic conventions if they have one, else `berth.…`.
//!
//! An attribute without a name here must not be in a span: it holds an id, a code or a count, never
//! another value of a request.

/// The code of the failure.
pub const ERROR_TYPE: &str = "error.type";

/// Always `nats`.
pub const MESSAGING_SYSTEM: &str = "messaging.system";
/// `request` or `answer`.
pub const MESSAGING_OPERATION: &str = "messaging.operation.name";
/// `send` or `process`.
pub const MESSAGING_OPERATION_TYPE: &str = "messaging.operation.type";
/// The subject, with its sender.
pub const MESSAGING_DESTINATION: &str = "messaging.destination.name";
/// The form of the subject, with a placeholder for each id and for the sender.
pub const MESSAGING_DESTINATION_TEMPLATE: &str = "messaging.destination.template";
/// The bytes of a request.
pub const MESSAGING_BODY_SIZE: &str = "messaging.message.body.size";

/// Always `nats`: of writes.
pub const DB_SYSTEM: &str = "db.system.name";
/// Always `commit`.
pub const DB_OPERATION: &str = "db.operation.name";
/// The bucket.
pub const DB_COLLECTION: &str = "db.collection.name";

/// Always `grpc`.
pub const RPC_SYSTEM: &str = "rpc.system.name";
/// Such as `csi.v1.Node/NodeStageVolume`.
pub const RPC_METHOD: &str = "rpc.method";
/// gRPC's name of the status, such as `NOT_FOUND`.
pub const RPC_STATUS: &str = "rpc.response.status_code";

/// The volume, unique in its namespace.
pub const VOLUME: &str = "berth.volume";
/// The volume's id at its plugin.
pub const EXTERNAL_VOLUME: &str = "berth.external_id";
/// The namespace.
pub const NAMESPACE: &str = "berth.namespace";
/// The alloc.
pub const ALLOC: &str = "berth.alloc";
/// The snapshot of the volume.
pub const SNAPSHOT: &str = "berth.snapshot";
/// The node.
pub const NODE: &str = "berth.node";
/// The plugin.
pub const PLUGIN: &str = "berth.plugin";
/// The attempt's id.
pub const ATTEMPT: &str = "berth.attempt";
/// The process that works on the claim or the change.
pub const WORKER: &str = "berth.worker";

/// The key that is written.
pub const KEY: &str = "berth.key";
/// The revision in the guard of a write.
pub const GUARD: &str = "berth.guard";
/// The revision that a write was stored at.
pub const REVISION: &str = "berth.revision";
/// The outcome, in a word.
pub const OUTCOME: &str = "berth.outcome";
/// How often a write was sent.
pub const SENT: &str = "berth.sent";
/// How many acknowledgements of a write did not come.
pub const LOST_ACKNOWLEDGEMENTS: &str = "berth.lost_acknowledgements";
