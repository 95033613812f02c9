//! The only crate that sees async-nats: guarded transactions, watches, request and serve, leases.
