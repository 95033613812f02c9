//! Facts in the text of a try's error: the gRPC code, Berth's code, and the node.

/// gRPC codes, as written in errors of plugin calls.
const GRPC_CODES: [&str; 16] = [
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// Codes with which a plugin reports that the same call may succeed later.
const TEMPORARY: [&str; 4] = ["CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "UNAVAILABLE"];

/// The first gRPC code in an error.
pub fn grpc_code(error: &str) -> Option<&'static str> {
    let mut words = error.split(|c: char| !c.is_ascii_uppercase() && c != '_');
    words.find_map(|word| GRPC_CODES.into_iter().find(|code| *code == word))
}

/// Whether the plugin's code means that the same call may succeed later.
pub fn is_temporary(code: &str) -> bool {
    TEMPORARY.contains(&code)
}

/// Whether the error has this code of Berth's.
pub fn has_code(error: &str, code: berth_contract::code::Code) -> bool {
    error.contains(code.as_str())
}

/// The last node in an error: the agent there made the call.
pub fn node(error: &str) -> Option<&str> {
    let (_, rest) = error.rsplit_once("[node ")?;
    Some(rest.split_once(']')?.0)
}

/// The CSI call that an error names, such as `NodeUnpublishVolume` or `CreateSnapshot`.
pub fn rpc(error: &str) -> Option<&str> {
    const BEGIN: [&str; 4] = ["Node", "Controller", "Create", "Delete"];
    const END: [&str; 2] = ["Volume", "Snapshot"];
    let mut words = error.split(|c: char| !c.is_ascii_alphanumeric());
    words.find(|word| {
        BEGIN.iter().any(|begin| word.starts_with(begin))
            && END.iter().any(|end| word.ends_with(end))
    })
}

#[cfg(test)]
mod tests {
    use berth_contract::code::Code;

    use super::*;

    #[test]
    fn an_error_says_its_codes_its_call_and_its_node() {
        let error = "controller.unpublish: ControllerUnpublishVolume on /run/n2.sock: \
                     FAILED_PRECONDITION: planted [node n2] (BERTH0206)";
        assert_eq!(grpc_code(error), Some("FAILED_PRECONDITION"));
        assert_eq!((rpc(error), node(error)), (Some("ControllerUnpublishVolume"), Some("n2")));
        assert!(has_code(error, Code::PluginFailed) && !has_code(error, Code::StillBusy));
        assert!(!is_temporary("FAILED_PRECONDITION") && is_temporary("UNAVAILABLE"));
        for rpc_of in ["CreateVolume", "DeleteVolumeGroupSnapshot", "NodeExpandVolume"] {
            assert_eq!(rpc(&format!("x: {rpc_of} on /run/n1.sock: ABORTED")), Some(rpc_of));
        }
        let hung = "agent.detach: the agent of node n1 did not answer within 1.9s";
        assert_eq!((grpc_code(hung), rpc(hung), node(hung)), (None, None, None));
    }
}
