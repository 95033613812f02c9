//! Secrets of volumes.

use berth_domain::NodeId;

use crate::message::secret;

verbs! {
    /// Show the public key that a volume's secrets are to be sealed for
    SecretKey {
        step: "secret.key", endpoint: "secret-key",
        subject: "berth.v1.secret.key", to: (),
        service: CLAIM, senders: [WRITE], effect: Read,
        request: secret::Key, reply: secret::PublicKey,
        errors: [SecretsUnavailable],
    }

    /// For agents: a volume's secrets for a plugin call that is due at the node, sealed for it
    SecretOpen {
        step: "secret.open", endpoint: "secret-open",
        subject: "berth.v1.secret.open.<node>", to: NodeId,
        service: CLAIM, senders: [NODE_AGENT], effect: Read,
        request: secret::Open, reply: secret::Sealed,
        errors: [SealingKeyUnknown, SecretsUnavailable],
    }
}
