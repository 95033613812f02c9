//! The whole table of outcomes: `snapshots/` has it for reading, and the rules below check its
//! shape.

use std::fmt::Write as _;

use berth_csi::{CallAnswer, Class, Code, Effect, Rpc, classify};

fn answers() -> impl Iterator<Item = CallAnswer> {
    Code::ALL.iter().map(|&code| CallAnswer::Code(code)).chain([
        CallAnswer::Missing,
        CallAnswer::Unsent,
        CallAnswer::Contradiction,
    ])
}

fn name_of(answer: CallAnswer) -> &'static str {
    match answer {
        CallAnswer::Code(code) => code.as_str(),
        CallAnswer::Missing => "(no answer)",
        CallAnswer::Unsent => "(not sent)",
        CallAnswer::Contradiction => "(contradiction)",
    }
}

#[test]
fn the_table_of_outcomes() {
    let mut text = String::new();
    for &rpc in Rpc::ALL {
        writeln!(text, "{rpc} ({:?})", rpc.effect()).unwrap();
        let mut rows: Vec<(String, Vec<&str>)> = Vec::new();
        for answer in answers() {
            let class = format!("{:?}", classify(rpc, answer));
            match rows.iter_mut().find(|(row_class, _)| *row_class == class) {
                Some((_, names)) => names.push(name_of(answer)),
                None => rows.push((class, vec![name_of(answer)])),
            }
        }
        for (class, names) in rows {
            writeln!(text, "  {class:<26} {}", names.join(" ")).unwrap();
        }
    }
    insta::assert_snapshot!(text);
}

#[test]
fn only_ok_is_done() {
    for &rpc in Rpc::ALL {
        for answer in answers() {
            let is_done = classify(rpc, answer) == Class::Done;
            assert_eq!(is_done, answer == CallAnswer::Code(Code::Ok), "{rpc} {answer:?}");
        }
    }
}

#[test]
fn a_call_that_may_have_acted_is_uncertain() {
    let doubtful = [
        CallAnswer::Missing,
        CallAnswer::Code(Code::Cancelled),
        CallAnswer::Code(Code::Unknown),
        CallAnswer::Code(Code::DeadlineExceeded),
        CallAnswer::Code(Code::Aborted),
        CallAnswer::Code(Code::Internal),
        CallAnswer::Code(Code::Unavailable),
    ];
    for &rpc in Rpc::ALL {
        for answer in doubtful {
            let uncertain = matches!(classify(rpc, answer), Class::Uncertain(_));
            assert_eq!(uncertain, rpc.effect() != Effect::Reads, "{rpc} {answer:?}");
        }
    }
}

#[test]
fn a_failed_unmount_is_never_certain_unless_the_request_itself_was_refused() {
    for rpc in [Rpc::NodeUnpublishVolume, Rpc::NodeUnstageVolume] {
        for &code in Code::ALL.iter().filter(|code| **code != Code::Ok) {
            let class = classify(rpc, CallAnswer::Code(code));
            assert!(matches!(class, Class::Uncertain(_) | Class::Refused(_)), "{rpc} {code}");
        }
    }
}

#[test]
fn what_is_not_implemented_is_not_tried_again() {
    for &rpc in Rpc::ALL {
        let class = classify(rpc, CallAnswer::Code(Code::Unimplemented));
        assert!(matches!(class, Class::Refused(_)), "{rpc}");
        let unsent = classify(rpc, CallAnswer::Unsent);
        assert!(matches!(unsent, Class::Retry(_)), "{rpc}");
    }
}
