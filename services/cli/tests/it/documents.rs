//! `volume init`, and the faults that `volume register` finds before it sends anything.

use berth_harness::dirs::Dir;

use crate::berth::{berth, redact, run};

/// An address without a listener: a request in spite of a fault would give exit code 4.
const NOWHERE: &str = "nats://127.0.0.1:1";

fn register(file: &str, stdin: &str) -> crate::berth::Ran {
    run(&["--nats", NOWHERE, "--timeout", "300ms", "volume", "register", file], stdin)
}

#[test]
fn the_example_that_init_writes_is_accepted_by_register() {
    let dir = Dir::new("cli");
    for (format, name) in [(None, "v.toml"), (Some("--json"), "v.json")] {
        let file = dir.join(name);
        let file = file.to_str().unwrap();
        let args: Vec<&str> = ["volume", "init", file].into_iter().chain(format).collect();
        let ran = berth(&args);
        assert_eq!((ran.code, ran.out.as_str()), (0, ""), "{ran:?}");
        // The command reached the bus.
        let ran = register(file, "");
        assert_eq!(ran.code, 4, "{ran:?}");
        assert!(ran.err.contains("BERTH0005"), "{ran:?}");
        // The file is not overwritten.
        let ran = berth(&args);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(redact(&ran.err).contains("name another file"), "{ran:?}");
    }
}

/// A creation and a class have examples of their own.
#[test]
fn each_example_is_accepted_by_its_command() {
    for (init, send) in [
        (&["volume", "init", "--create"][..], &["volume", "create"][..]),
        (&["class", "init"], &["class", "create"]),
    ] {
        for form in [&[][..], &["--json"]] {
            let example = berth(&[init, &["-"], form].concat());
            assert_eq!((example.code, example.err.as_str()), (0, ""), "{init:?}");
            let sent = [&["--nats", NOWHERE, "--timeout", "300ms"], send, &["-"]].concat();
            let ran = run(&sent, &example.out);
            assert_eq!(ran.code, 4, "{init:?}: {ran:?}");
        }
    }
}

#[test]
fn a_document_of_the_other_kind_is_led_to_its_example() {
    let creation = berth(&["volume", "init", "--create", "-"]).out;
    let ran = register("-", &creation);
    assert_eq!(ran.code, 64, "{ran:?}");
    assert!(ran.err.contains("`berth volume init --create -` prints an example"), "{ran:?}");
    let text = "id = 'a'\nplugin = 'p'\nexternal_id = 'x'\nsize = 0\n[[capability]]\n\
        access = 'single-node-writer'\nattachment = 'file-system'\n";
    let ran = run(&["--nats", NOWHERE, "volume", "create", "-"], text);
    assert_eq!(ran.code, 64, "{ran:?}");
    assert!(ran.err.contains("-:4: size: is 0"), "{ran:?}");
    assert!(ran.err.contains("`berth volume init -` prints an example"), "{ran:?}");
}

#[test]
fn the_example_can_be_piped() {
    let example = berth(&["volume", "init", "-"]);
    assert_eq!((example.code, example.err.as_str()), (0, ""));
    assert_eq!(register("-", &example.out).code, 4);
    let json = berth(&["volume", "init", "-", "--json"]);
    assert_eq!(register("-", &json.out).code, 4);
}

#[test]
fn all_faults_of_a_document_are_printed_and_nothing_is_sent() {
    let text = "id = \"\"\ncolour = \"red\"\ncapacity_bytes = -1\n\n[[capability]]\n\
        access = \"single-writer\"\n\n[mount]\nflags = [\"ro\", 7]\n";
    insta::assert_snapshot!(register("-", text).golden());
}

#[test]
fn a_malformed_document_is_refused_with_the_place_of_the_error() {
    let toml = register("-", "id = \"a\nplugin = [");
    let json = register("-", "{\n  \"id\": }");
    let missing = register("/nonexistent.toml", "");
    insta::assert_snapshot!([toml, json, missing].map(|ran| ran.golden()).join("\n"));
}

#[test]
fn document_and_option_must_name_the_same_namespace() {
    let text = berth(&["volume", "init", "-"]).out;
    let ran = run(
        &["--nats", NOWHERE, "--namespace", "b", "volume", "register", "-"],
        &format!("namespace = \"a\"\n{text}"),
    );
    assert_eq!(ran.code, 64, "{ran:?}");
    assert!(ran.err.starts_with("-:1: namespace: is a, but the command line says b"), "{ran:?}");
}
