//! Faults as a test plants them.

use berth_csi::Code;

use super::*;

fn stage(faults: &Faults) -> Fate {
    faults.fate(Rpc::NodeStageVolume, Some("v")).unwrap()
}

#[test]
fn the_first_entry_that_fits_and_is_not_used_up_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("faults.json");
    let faults = Faults::from_file(Some(path.clone()));
    assert_eq!(stage(&faults), Fate::default(), "no file, no faults");

    let once = Fault {
        rpc: Some(Rpc::NodeStageVolume),
        code: Some(Code::Aborted),
        times: Some(1),
        ..Fault::default()
    };
    let other = Fault { volume: Some("w".into()), ..once.clone() };
    let always = Fault { when: When::After, delay_ms: 5, ..Fault::default() };
    write(&path, &[other, once.clone(), always.clone()]).unwrap();
    let both = Fate { before: Some(once), after: Some(always.clone()) };
    let after_only = Fate { before: None, after: Some(always) };
    assert_eq!(faults.fate(Rpc::Probe, None).unwrap(), after_only);
    assert_eq!(stage(&faults), both);
    assert_eq!(stage(&faults), after_only, "used up");
    // Another instance counts for itself.
    assert_eq!(stage(&Faults::from_file(Some(path.clone()))), both);
    // Written anew, all entries count again.
    let same = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(stage(&faults), Fate::default());
    fs::write(dir.path().join("keeps the inode taken"), "").unwrap();
    fs::write(&path, same).unwrap();
    assert_eq!(stage(&faults), both);
}

#[test]
fn everything_wrong_with_a_file_is_said_at_once_in_plain_words() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("faults.json");
    let text = r#"[
        {"rpc": "NodeStage", "delay": 5, "times": -1},
        {"crash": true, "code": "OK", "probability": 2},
        {"wrong": "unknown-enum"},
        7
    ]"#;
    fs::write(&path, text).unwrap();
    let faults = Faults::from_file(Some(path.clone()));
    let error = faults.fate(Rpc::Probe, None).unwrap_err();
    let FaultError::Content { faults: all, .. } = &error else { panic!("{error}") };
    let parts = [
        "entry 1: unknown field `delay`, expected one of `rpc`",
        "entry 1: rpc: unknown variant `NodeStage`",
        "entry 1: times: invalid value: integer `-1`",
        "entry 2: code and crash cannot go together",
        "entry 2: code OK is no fault",
        "entry 2: probability is a number from 0 to 1",
        "entry 4: is no object",
    ];
    for part in parts {
        assert!(all.iter().any(|one| one.starts_with(part)), "{part} in {all:?}");
    }
    assert_eq!(all.len(), parts.len(), "{all:?}");
    // Also while it stays so, until it is mended.
    faults.fate(Rpc::Probe, None).unwrap_err();
    write(&path, &[]).unwrap();
    assert_eq!(faults.fate(Rpc::Probe, None).unwrap(), Fate::default());
    for text in ["{", "{}"] {
        parse(text).unwrap_err();
    }
}

#[test]
fn what_was_written_is_read_again() {
    let fault = Fault {
        volume: Some("v".into()),
        hang: true,
        times: Some(3),
        probability: Some(0.5),
        seed: 9,
        ..Fault::default()
    };
    let text = serde_json::to_string(std::slice::from_ref(&fault)).unwrap();
    assert_eq!(parse(&text).unwrap(), [fault]);
}

#[test]
fn a_share_of_the_calls_is_hit_and_only_hits_count() {
    let fault = Fault {
        code: Some(Code::Aborted),
        probability: Some(0.5),
        seed: 3,
        times: Some(10),
        ..Fault::default()
    };
    let hits = || {
        let faults = Faults::from_file(None);
        faults.set(vec![fault.clone()]);
        let hits: Vec<_> = (0..40).map(|_| stage(&faults).before.is_some()).collect();
        (hits, faults.show().unwrap())
    };
    let (first, listed) = hits();
    assert_eq!((first.clone(), listed.clone()), hits(), "the same again");
    assert_eq!(first.iter().filter(|hit| **hit).count(), 10);
    assert_eq!(listed[0].used, 10);
    assert!(listed[0].fitted > 10, "{listed:?}");
}

#[test]
fn the_sockets_faults_stand_beside_the_files_until_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("faults.json");
    let in_file = Fault { delay_ms: 1, ..Fault::default() };
    write(&path, &[Fault { times: Some(1), ..in_file.clone() }]).unwrap();
    let faults = Faults::from_file(Some(path));
    let hang = Fault { hang: true, ..Fault::default() };
    faults.set(vec![hang.clone()]);
    assert_eq!(stage(&faults).before.unwrap().delay_ms, 1);
    assert_eq!(stage(&faults).before, Some(hang.clone()));
    assert!(faults.stands(&hang) && !faults.stands(&in_file));
    faults.set(Vec::new());
    assert!(!faults.stands(&hang));
    assert_eq!(faults.show().unwrap().len(), 1);
}

#[test]
fn an_answer_is_lost_or_wrong_after_the_work() {
    let lost = Fault { lose_answer: true, ..Fault::default() };
    let wrong = Fault { wrong: Some(Wrong::NoReady), ..Fault::default() };
    assert_eq!((lost.side(), wrong.side()), (When::After, When::After));
}
