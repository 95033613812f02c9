//! Which volumes a removal deletes, and which it keeps.

use std::time::Duration;

use berth_docker_tests::{Site, until_done};
use berth_harness::root::or_skip;
use berth_integration::Options;
use serde_json::{Value, json};

async fn site(options: Options) -> Site {
    let site = Site::start_with(options).await;
    site.system.class("fast", json!({})).await.unwrap();
    site
}

fn one_node() -> Options {
    Options { nodes: 1, ..Options::default() }
}

fn fast() -> Value {
    json!({"class": "fast", "size": "1MiB"})
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_the_name_created_is_deleted() {
    if !or_skip("the plugin's socket") {
        return;
    }
    let site = site(one_node()).await;
    let (system, plugin) = (&site.system, site.plugin(0));
    // A registered volume, with and without a name of its own.
    system.volume("registered", &["single-node-writer"]).await;
    assert!(plugin.create("registered", Value::Null).await.is_done());
    for _ in 0..2 {
        assert!(plugin.remove("registered").await.is_done());
        assert!(system.volume_status("registered").await.is_ok());
    }
    // A volume that another client created in the same way.
    let document = json!({"class": "fast", "size": "1MiB"});
    system.created("theirs", document.clone()).await;
    let created = plugin.create("theirs", fast()).await;
    assert!(created.is_done(), "the plugin joins the creation: {created:?}");
    let removal = plugin.get("theirs").await.body["Volume"]["Status"]["removal"].clone();
    assert_eq!(removal, "the volume stays: another request created it");
    assert!(plugin.remove("theirs").await.is_done());
    assert!(plugin.remove("theirs").await.is_done());
    assert!(system.volume_status("theirs").await.is_ok());
    let other =
        plugin.create("other", json!({"class": "fast", "volume": "theirs", "size": "2MiB"}));
    let other = other.await;
    assert!(other.error().contains("with another size"), "{other:?}");

    // A volume that was deleted and created again is another volume.
    assert!(plugin.create("data", fast()).await.is_done());
    system.deleted("data").await;
    system.created("data", document).await;
    let removed = plugin.remove("data").await;
    assert!(removed.is_done(), "{removed:?}");
    assert!(system.volume_status("data").await.is_ok(), "Docker did not create this volume");

    // A volume that is gone takes its name along.
    assert!(plugin.create("gone", fast()).await.is_done());
    system.deleted("gone").await;
    assert!(!plugin.get("gone").await.is_done());
    assert!(plugin.create("gone", json!({"class": "fast", "size": "2MiB"})).await.is_done());
    assert!(plugin.remove("gone").await.is_done());

    // By its policy it stays.
    assert!(plugin.create("kept", json!({"class": "fast", "reclaim": "retain"})).await.is_done());
    let removal = plugin.get("kept").await.body["Volume"]["Status"]["removal"].clone();
    assert_eq!(removal, "the volume stays: its reclaim policy is retain");
    assert!(plugin.remove("kept").await.is_done());
    assert!(system.volume_status("kept").await.is_ok());
    // It belongs to no name any more, so removing the next name does not delete it.
    let again = json!({"class": "fast", "reclaim": "retain", "volume": "kept"});
    assert!(plugin.create("kept", again).await.is_done());
    let removal = plugin.get("kept").await.body["Volume"]["Status"]["removal"].clone();
    assert_eq!(removal, "the volume stays: another request created it");
    for id in ["theirs", "data", "kept"] {
        system.deleted(id).await;
    }
    system.assert_known().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_is_deleted_on_the_node_that_created_it() {
    if !or_skip("real mounts") {
        return;
    }
    let site = site(Options::default()).await;
    let (system, first, second) = (&site.system, site.plugin(0), site.plugin(1));
    assert!(first.create("data", fast()).await.is_done());
    assert!(second.create("data", fast()).await.is_done(), "the other node joins the creation");
    assert_eq!(site.created().len(), 1);
    assert!(second.remove("data").await.is_done());
    assert_eq!(site.created().len(), 1, "only the name was removed");
    assert!(second.get("data").await.is_done(), "a volume of the namespace default");

    // It is not deleted while the other node uses it.
    assert!(second.mount("data", "x").await.is_done());
    let used = first.remove("data").await;
    assert!(used.error().contains("on node n2"), "{used:?}");
    assert!(first.get("data").await.is_done());
    assert!(second.unmount("data", "x").await.is_done());
    site.settle("data").await;
    assert!(first.remove("data").await.is_done());
    assert_eq!(site.created(), Vec::<Value>::new());
    assert!(!second.get("data").await.is_done());

    // Two nodes ask at once, and one of them creates the volume.
    for round in 0..4 {
        let name = format!("race{round}");
        let (one, two) = tokio::join!(first.create(&name, fast()), second.create(&name, fast()));
        assert!(one.is_done() && two.is_done(), "{one:?} {two:?}");
        assert_eq!(site.created().len(), 1);
        let (one, two) = (first.get(&name).await, second.get(&name).await);
        let deletes = [one, two]
            .map(|shown| shown.body["Volume"]["Status"]["removal"] == "the volume is deleted");
        assert_eq!(deletes.iter().filter(|deletes| **deletes).count(), 1, "{deletes:?}");
        // Either node may remove its name first.
        let (maker, other) = if deletes[0] { (&first, &second) } else { (&second, &first) };
        let order = if round % 2 == 0 { [other, maker] } else { [maker, other] };
        for plugin in order {
            let removed = plugin.remove(&name).await;
            assert!(removed.is_done(), "{removed:?}");
        }
        assert_eq!(site.created(), Vec::<Value>::new());
    }
    system.assert_known().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_stays_while_this_nodes_docker_has_another_name_for_it() {
    if !or_skip("the plugin's socket") {
        return;
    }
    let site = site(one_node()).await;
    let plugin = site.plugin(0);
    assert!(plugin.create("data", fast()).await.is_done());
    let read_only = json!({"volume": "data", "mode": "ro"});
    assert!(plugin.create("data-ro", read_only).await.is_done());
    let removed = plugin.remove("data").await;
    assert!(removed.error().contains("also as data-ro"), "{removed:?}");
    assert!(plugin.remove("data-ro").await.is_done());
    assert_eq!(site.created().len(), 1);
    assert!(plugin.remove("data").await.is_done());
    assert_eq!(site.created(), Vec::<Value>::new());

    // Containers may use the volume by its own id, which only the engine knows.
    let options = json!({"class": "fast", "volume": "id"});
    assert!(plugin.create("name", options).await.is_done());
    let removed = plugin.remove("name").await;
    assert!(removed.error().contains("whether containers have its volume as id"), "{removed:?}");
    assert_eq!(site.created().len(), 1);
    site.system.deleted("id").await;
    assert!(plugin.remove("name").await.is_done());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_the_storage_refuses_is_reported_and_changes_nothing() {
    if !or_skip("real mounts") {
        return;
    }
    let site = site(one_node()).await;
    let (system, plugin) = (&site.system, site.plugin(0));
    assert!(plugin.create("data", fast()).await.is_done());
    let refused = json!([{"rpc": "DeleteVolume", "when": "before", "code": "INVALID_ARGUMENT"}]);
    system.plant(0, &refused);
    for _ in 0..2 {
        let removed = plugin.remove("data").await;
        assert!(removed.error().contains("its storage refused to delete it"), "{removed:?}");
        assert_eq!(plugin.list().await, ["data"]);
    }
    let mounted = plugin.mount("data", "x").await;
    assert!(mounted.is_done(), "{mounted:?}");
    assert!(plugin.unmount("data", "x").await.is_done());
    site.settle("data").await;
    system.plant(0, &json!([]));
    let removed = plugin.remove("data").await;
    assert!(removed.is_done(), "{removed:?}");
    assert_eq!(site.created(), Vec::<Value>::new());
}

/// `docker run --rm` removes the volume when its container has ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_removal_waits_for_the_release_of_the_last_use() {
    if !or_skip("real mounts") {
        return;
    }
    let site = site(one_node()).await;
    let (system, plugin) = (&site.system, site.plugin(0));
    assert!(plugin.create("data", fast()).await.is_done());
    until_done("it is mounted", async || plugin.mount("data", "x").await).await;
    system.hold("NodeUnpublishVolume");
    assert!(plugin.unmount("data", "x").await.is_done(), "the unmount is answered after 10 s");
    let release = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(site.created().len(), 1, "the volume stays until its release");
        system.let_go();
    };
    let (removed, ()) = tokio::join!(plugin.remove("data"), release);
    assert!(removed.is_done(), "{removed:?}");
    assert_eq!(site.created(), Vec::<Value>::new());
}

/// The engine waits for 60 s.
#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_takes_long_goes_on_and_the_name_waits_for_its_end() {
    if !or_skip("the plugin's socket") {
        return;
    }
    let site = site(Options { docker_ms: Some(1_500), ..one_node() }).await;
    let (system, plugin) = (&site.system, site.plugin(0));
    until_done("it is created", async || plugin.create("data", fast()).await).await;
    system.hold("DeleteVolume");
    let late = plugin.remove("data").await;
    for words in ["is not deleted yet: deleting", "berth volume status data"] {
        assert!(late.error().contains(words), "{words} is not in {late:?}");
    }
    assert!(!plugin.get("data").await.is_done(), "the volume is not shown any more");
    assert_eq!(plugin.list().await, Vec::<String>::new());
    let again = plugin.create("data", fast()).await;
    assert!(again.error().contains("is not created yet: deleting"), "{again:?}");
    let repeated = plugin.remove("data").await;
    assert!(repeated.error().contains("is not deleted yet"), "{repeated:?}");
    system.let_go();
    until_done("a new volume is created after it", async || plugin.create("data", fast()).await)
        .await;
    assert_eq!(site.created().len(), 1);
    until_done("it is removed", async || plugin.remove("data").await).await;
    assert_eq!(site.created(), Vec::<Value>::new());
    system.assert_known().await;
}
