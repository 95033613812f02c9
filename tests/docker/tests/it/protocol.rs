//! Every endpoint, called without an engine.

use berth_docker_tests::{PATIENCE, Site, request};
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::Part;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn every_endpoint_answers_what_the_engine_reads() {
    if !or_skip("the plugin's socket") {
        return;
    }
    let site = Site::start(1).await;
    site.system.volume("data", &["single-node-writer"]).await;
    let plugin = site.plugin(0);
    let named = |name: &str| json!({"Name": name});
    let ask = async |endpoint: &str, body: Value| {
        let answer = plugin.ask(endpoint, &body).await;
        assert_eq!(answer.status, 200, "{endpoint} {answer:?}");
        answer.body
    };
    let implements = json!({"Implements": ["VolumeDriver"]});
    assert_eq!(ask("Plugin.Activate", Value::Null).await, implements);
    let scope = json!({"Capabilities": {"Scope": "global"}});
    assert_eq!(ask("VolumeDriver.Capabilities", json!({})).await, scope);
    // A registered volume is found, even if this node did not create it.
    let shown = ask("VolumeDriver.Get", named("data")).await;
    assert_eq!(
        (&shown["Volume"]["Name"], &shown["Volume"]["Mountpoint"]),
        (&json!("data"), &json!(""))
    );
    assert_eq!(shown["Volume"].get("CreatedAt"), None, "Go cannot read an empty time: {shown}");
    let listed = json!({"Volumes": [{"Name": "data", "Mountpoint": ""}], "Err": ""});
    assert_eq!(ask("VolumeDriver.List", json!({})).await, listed);
    let nowhere = json!({"Mountpoint": "", "Err": ""});
    assert_eq!(ask("VolumeDriver.Path", named("data")).await, nowhere);

    let done = json!({"Err": ""});
    for options in [Value::Null, json!({})] {
        let create = json!({"Name": "data", "Opts": options});
        assert_eq!(ask("VolumeDriver.Create", create).await, done);
    }
    let shown = ask("VolumeDriver.Get", named("data")).await;
    assert!(shown["Volume"]["CreatedAt"].as_str().unwrap().ends_with('Z'), "{shown}");
    assert_eq!(ask("VolumeDriver.Unmount", json!({"Name": "data", "ID": "x"})).await, done);
    assert_eq!(ask("VolumeDriver.Remove", named("data")).await, done);
    assert_eq!(ask("VolumeDriver.Remove", named("data")).await, done);
    assert_eq!(ask("VolumeDriver.Unmount", json!({"Name": "none", "ID": "x"})).await, done);
    assert_eq!(ask("VolumeDriver.Path", named("none")).await, nowhere);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_is_refused_in_words() {
    if !or_skip("the plugin's socket") {
        return;
    }
    let site = Site::start(1).await;
    site.system.volume("data", &["single-node-writer"]).await;
    site.system.volume("read", &["multi-node-reader-only"]).await;
    let plugin = site.plugin(0);
    let long = "x".repeat(300);
    for (endpoint, body, words) in [
        ("VolumeDriver.Get", json!({"Name": "none"}), "there is no volume none"),
        ("VolumeDriver.Get", json!({"Name": ""}), "names no volume"),
        ("VolumeDriver.Create", Value::Null, "run the command again"),
        ("VolumeDriver.Get", json!({"Name": long}), "1 to 255 bytes"),
        ("VolumeDriver.Create", json!({"Name": "none", "Opts": null}), "berth volume register"),
        ("VolumeDriver.Create", json!({"Name": "read"}), "say mode=ro"),
        (
            "VolumeDriver.Create",
            json!({"Name": "x1", "Opts": {"volume": "data", "access": "multi-node-multi-writer"}}),
            "offers single-node-writer/file-system",
        ),
        // A namespace that the identity of the host does not serve.
        (
            "VolumeDriver.Create",
            json!({"Name": "far", "Opts": {"namespace": "team-x"}}),
            "`berth access docker n1 --namespaces default,team-x --replace`",
        ),
        ("VolumeDriver.Mount", json!({"Name": "none", "ID": "x"}), "BERTH0"),
        ("VolumeDriver.Mount", json!({"Name": "data"}), "an ID has 1 to 256 bytes"),
        ("VolumeDriver.Mount", json!({"Name": "a\nb", "ID": "x"}), "control character"),
        ("VolumeDriver.Mount", json!([1]), "cannot be read"),
    ] {
        let answer = plugin.ask(endpoint, &body).await;
        assert!(answer.status != 200 && answer.error().contains(words), "{endpoint}: {answer:?}");
    }
    let read_only = json!({"Name": "data-ro", "Opts": {"volume": "data", "mode": "ro"}});
    assert!(plugin.ask("VolumeDriver.Create", &read_only).await.is_done());
    let other = json!({"Name": "data-ro", "Opts": {"volume": "data"}});
    let other = plugin.ask("VolumeDriver.Create", &other).await;
    assert!(other.error().contains("there already, and is ro of default/data"), "{other:?}");

    let get = plugin.say(&request("GET", "VolumeDriver.List", "")).await.unwrap();
    assert_eq!((get.status, get.error()), (405, "everything here is a POST"));
    let unknown = plugin.say(&request("POST", "VolumeDriver.Format", "{}")).await.unwrap();
    assert_eq!(unknown.status, 404);
    let large = request("POST", "VolumeDriver.List", &" ".repeat(2 * 1024 * 1024));
    assert!(plugin.say(&large).await.is_none_or(|answer| answer.status == 400));
    let _ = plugin.say(b"\x16\x03\x01 this is no HTTP\r\n\r\n").await;
    assert!(
        plugin.ask("VolumeDriver.List", &json!({})).await.is_done(),
        "the plugin still answers"
    );
    // Refused requests have left nothing behind.
    for volume in ["data", "read"] {
        site.settle(volume).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_bus_it_answers_what_it_knows() {
    if !or_skip("the plugin's socket") {
        return;
    }
    let site = Site::start(1).await;
    site.system.volume("data", &["single-node-writer"]).await;
    let plugin = site.plugin(0);
    let mounted = plugin.mount("data", "x").await;
    assert!(mounted.is_done(), "{mounted:?}");
    site.system.kill9(Part::Nats);
    let listed = plugin.ask("VolumeDriver.List", &json!({})).await;
    assert_eq!(listed.body["Volumes"][0]["Mountpoint"], mounted.body["Mountpoint"]);
    assert!(plugin.get("data").await.is_done());
    let created = plugin.ask("VolumeDriver.Create", &json!({"Name": "other"})).await;
    assert!(!created.is_done(), "whether the volume exists cannot be known");
    // The plugin keeps the unmount, and sends it once the agent listens.
    assert!(plugin.unmount("data", "x").await.is_done());
    site.system.servers()[0].restart().await;
    site.system.healthy().await;
    wait::until("the volume is free", PATIENCE, || async {
        let claims = site.system.claims("data").await.claims;
        if claims.is_empty() { Ok(()) } else { Err(format!("{claims:?}")) }
    })
    .await;
    site.settle("data").await;
}
