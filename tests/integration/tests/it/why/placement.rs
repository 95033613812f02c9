//! Volumes that no node may host.

use berth_contract::verb::{self, Verb as _};
use berth_domain::Namespace;
use berth_harness::root::or_skip;
use berth_integration::{Options, System};
use serde_json::{Value, json};

use super::{YOU, tells};

#[tokio::test(flavor = "multi_thread")]
async fn why_tells_what_keeps_a_volume_from_every_node() {
    if !or_skip("a whole system") {
        return;
    }
    let driver: fn(usize) -> Vec<String> = |node| vec![format!("--topology=host=n{}", node + 1)];
    let system = System::start(Options { driver, ..Options::default() }).await;
    system.provision("far");
    let access = [json!({"access": "single-node-writer"})];
    let far = json!({
        "id": "far", "plugin": "dev.berth", "capability": access, "topology": [{"host": "n9"}]
    });
    let subject = verb::VolumeRegister::subject(&Namespace::default());
    let _: Value = system.persist(&subject, &far).await.unwrap();
    let finding =
        tells(&system, "far", "placement-refuses", YOU, "each of 2 nodes refuses it").await;
    for (index, node) in ["n1", "n2"].into_iter().enumerate() {
        let evidence = finding["evidence"][index].as_str().unwrap();
        assert!(evidence.starts_with(node) && evidence.contains("host=n9"), "{finding:#}");
    }
    assert_eq!(finding["next"][0], "berth volume placement far");
}
