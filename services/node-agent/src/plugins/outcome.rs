//! Turns a failed plugin call into the problem that the agent answers.
//!
//! **Promises** that a failure is refused for good only if the call surely changed nothing.

use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_csi::{CallError, Class, Failure, Remedy};
use berth_domain::PluginId;

/// The problem of a failed call. It is refused if the call surely did nothing and would fail again.
/// Otherwise it failed and may be retried. The message has the call, the plugin's code and its
/// text.
pub fn problem_from_call(error: &CallError) -> Problem {
    let (code, retryable, remedy) = match error.class() {
        Class::Refused(remedy) => (Code::PluginRefused, false, Some(remedy)),
        Class::Retry(remedy @ Remedy::FreeSlot) | Class::Uncertain(remedy @ Remedy::FreeSlot) => {
            (Code::PluginExhausted, true, Some(remedy))
        }
        Class::Retry(remedy) | Class::Uncertain(remedy) => (Code::PluginFailed, true, Some(remedy)),
        // No error has this class. If one had it, its outcome would be uncertain.
        Class::Done => (Code::PluginFailed, true, None),
    };
    problem_with_remedy(code, retryable, remedy, error)
}

/// The problem with this code, of the call that failed.
pub fn problem_with_remedy(
    code: Code,
    retryable: bool,
    remedy: Option<Remedy>,
    error: &CallError,
) -> Problem {
    let rpc = Some(error.rpc.name().to_owned());
    let crashes = u32::from(matches!(error.failure, Failure::Broken { .. }));
    let problem =
        Problem { retryable, rpc, grpc: error.code(), crashes, ..Problem::new(code, error) };
    match remedy {
        Some(remedy) => problem.next(remedy),
        None => problem,
    }
}

/// The refusal of a call to a plugin that this node does not have.
pub fn no_plugin(id: &PluginId) -> Problem {
    let message = format!("this node has no plugin {id}");
    Problem::new(Code::NoSuchPlugin, message).retryable()
}

#[cfg(test)]
mod tests {
    use berth_csi::{Code as GrpcCode, Rpc};

    use super::*;

    fn problem_of_call(rpc: Rpc, failure: Failure) -> Problem {
        problem_from_call(&CallError { rpc, socket: "/p.sock".into(), failure })
    }

    fn answered(code: GrpcCode) -> Failure {
        Failure::Answered { code, message: "its words".to_owned() }
    }

    #[test]
    fn only_what_surely_did_nothing_and_never_will_is_refused() {
        let refused =
            problem_of_call(Rpc::ControllerPublishVolume, answered(GrpcCode::InvalidArgument));
        assert_eq!((refused.code, refused.retryable), (Code::PluginRefused, false));
        for failure in [
            answered(GrpcCode::Internal),
            answered(GrpcCode::Aborted),
            answered(GrpcCode::NotFound),
            Failure::Unreachable { reason: "no".to_owned() },
            Failure::Broken { reason: "no".to_owned() },
            Failure::Late { timeout: std::time::Duration::from_secs(1) },
        ] {
            let failed = problem_of_call(Rpc::ControllerPublishVolume, failure.clone());
            assert_eq!((failed.code, failed.retryable), (Code::PluginFailed, true), "{failure:?}");
        }
    }

    #[test]
    fn a_connection_that_breaks_under_a_call_counts_as_a_crash() {
        let broken = Failure::Broken { reason: "reset".to_owned() };
        assert_eq!(problem_of_call(Rpc::CreateVolume, broken).crashes, 1);
        for other in [
            Failure::Unreachable { reason: "no".to_owned() },
            Failure::Late { timeout: std::time::Duration::from_secs(1) },
            Failure::TooLarge { reason: "70 MB".to_owned() },
            answered(GrpcCode::Unavailable),
        ] {
            assert_eq!(problem_of_call(Rpc::CreateVolume, other.clone()).crashes, 0, "{other:?}");
        }
    }

    /// It may mean that the plugin does not know the node, with the volume attached to it.
    #[test]
    fn not_found_is_no_success_of_an_unpublish() {
        let failed = problem_of_call(Rpc::ControllerUnpublishVolume, answered(GrpcCode::NotFound));
        assert_eq!((failed.code, failed.retryable), (Code::PluginFailed, true));
    }

    #[test]
    fn it_names_the_call_the_code_and_the_plugins_words() {
        let problem = problem_of_call(Rpc::NodeStageVolume, answered(GrpcCode::PermissionDenied));
        let expected = "NodeStageVolume on /p.sock: PERMISSION_DENIED: its words";
        assert_eq!(problem.message, expected);
        assert!(problem.next.contains("rights"), "{}", problem.next);
    }
}
