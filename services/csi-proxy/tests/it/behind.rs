//! A driver that starts late, and one that restarts.

use berth_csi::{Client, Code, v1};
use berth_csi_proxy::log::CallEffect;
use berth_harness::dirs::Dir;
use berth_harness::wait;

use crate::world::{TIMEOUT, World, create, driver, proxy};

#[tokio::test]
async fn its_socket_appears_once_the_driver_answers() {
    let dir = Dir::new("early");
    // Builds the driver first if necessary: the proxy would not wait for so long.
    let driver = driver(dir.path(), &[]);
    let proxy = proxy(dir.path()).start();
    let client = Client::new(dir.path().join("csi.sock"));
    assert!(!client.socket().exists(), "nothing is behind it");
    let driver = driver.start();
    let world = World { proxy, driver, client, dir };
    world.ready().await;
    assert_eq!(world.call(v1::GetPluginInfoRequest {}).await.unwrap().name, "dev.berth");
}

#[tokio::test]
async fn calls_reach_a_driver_that_comes_back() {
    let world = World::start("back", &[]).await;
    world.call(create("data")).await.unwrap();
    world.driver.kill9();
    let refused = async || match world.call(create("data")).await {
        Err(error) if error.code() == Some(Code::Unavailable) => Ok(()),
        other => Err(format!("{other:?}")),
    };
    wait::until("the driver is gone", TIMEOUT, refused).await;
    let no_effect = async || {
        _ = world.call(create("data")).await;
        let effect = world.last_end().effect;
        if effect == CallEffect::None { Ok(()) } else { Err(format!("{effect:?}")) }
    };
    wait::until("a call that reaches no driver does nothing", TIMEOUT, no_effect).await;
    world.driver.restart();
    let create_volume =
        async || world.call(create("data")).await.map_err(|error| error.to_string());
    wait::until("the driver is back", TIMEOUT, create_volume).await;
}

#[tokio::test]
async fn calls_reach_another_driver_at_the_path_while_the_old_one_lives() {
    let world = World::start("replaced", &[]).await;
    std::fs::remove_file(world.dir.path().join("behind.sock")).unwrap();
    let _second = driver(world.dir.path(), &["--vendor-version=second"]).start();
    wait::until("the other driver answers", TIMEOUT, async || {
        let info = world.call(v1::GetPluginInfoRequest {}).await;
        let version = info.map_err(|error| error.to_string())?.vendor_version;
        if version == "second" { Ok(()) } else { Err(version) }
    })
    .await;
    assert!(world.driver.is_running(), "nobody ended it");
}
