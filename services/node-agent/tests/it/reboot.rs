//! A host that is booted: its mounts are gone, and what is attached is not.
//!
//! The host is a mount namespace of its own, held by one process: as with a real one, every mount
//! in it ends with it. What the kernel calls its boot is a file that lies upon the kernel's own.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use berth_contract::message::agent::{AgentStatus, MountHealth, MountState};
use berth_contract::verb::{self, Verb as _};
use berth_harness::process::Daemon;
use berth_harness::{namespace, root, wait};

use crate::world::{Differences, PATIENCE, World, id};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// One boot of the host.
pub struct Boot {
    holder: Daemon,
}

impl Boot {
    /// Boots a host that calls this boot so.
    pub async fn begin(world: &World, boot_id: &str) -> Self {
        let file = world.dir.join(boot_id);
        fs::write(&file, format!("{boot_id}\n")).unwrap();
        let script = format!("mount --bind {} {BOOT_ID} && exec sleep 3600", file.display());
        let log = world.dir.join(format!("{boot_id}.log"));
        let holder =
            namespace::shell("host", &log, "private", &world.dir.join(""), &script).start();
        let own = format!("/proc/{}/root{BOOT_ID}", holder.pid());
        wait::until("the host is up", PATIENCE, async || {
            let says = fs::read_to_string(&own).unwrap_or_default();
            if says.trim() == boot_id { Ok(()) } else { Err(says) }
        })
        .await;
        Self { holder }
    }

    /// The power goes.
    pub fn end(self) {
        self.holder.kill9();
    }

    /// Runs a program on it to its end.
    pub fn run(&self, program: &str, args: &[&str]) {
        let [nsenter, namespace] = self.wrapper();
        let ran =
            std::process::Command::new(nsenter).arg(namespace).arg(program).args(args).output();
        let ran = ran.unwrap();
        assert!(ran.status.success(), "{ran:?}");
    }

    /// What runs a program on it.
    fn wrapper(&self) -> [String; 2] {
        ["nsenter".to_owned(), format!("--mount=/proc/{}/ns/mnt", self.holder.pid())]
    }

    /// Where something is mounted below this directory, as this host sees it.
    pub fn mounts(&self, below: &Path) -> BTreeSet<PathBuf> {
        let table = format!("/proc/{}/mountinfo", self.holder.pid());
        let table = fs::read_to_string(table).unwrap();
        let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
        points.filter(|point| point.starts_with(below)).collect()
    }

    /// The agent and the driver run on it from now on.
    async fn carry(&self, world: &mut World) {
        self.carry_with(world, &[]).await;
    }

    /// The same, with a driver that is started so.
    pub async fn carry_with(&self, world: &mut World, driver: &[&str]) {
        let wrapper = self.wrapper();
        let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
        world.replace_driver(&wrapper, driver).await;
        world.replace_agent(&wrapper);
        world.healthy_now().await;
    }
}

/// What the agent says is mounted is what the host's kernel says.
fn agree(status: &AgentStatus, boot: &Boot, below: &Path) {
    let shown = status.mounts.iter().filter(|mount| mount.mounted).map(|mount| mount.path.clone());
    let stagings = status.mounts.iter().filter(|mount| mount.staged);
    let stagings = stagings.filter_map(|mount| mount.staging.clone());
    let told: BTreeSet<PathBuf> =
        shown.chain(stagings).chain(status.strays.clone()).map(PathBuf::from).collect();
    assert_eq!(told, boot.mounts(below), "{status:?}");
}

#[tokio::test]
async fn after_a_boot_what_was_mounted_is_known_to_be_gone_and_comes_back_when_asked_for() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let mut world =
        World::start_with(Differences { agent: "look_interval_ms = 100", ..Default::default() })
            .await;
    let below = world.dir.join("state/csi");
    let first = Boot::begin(&world, "boot-1").await;
    first.carry(&mut world).await;
    let context = world.attach(10).await;
    for (alloc, epoch) in [("a", 7), ("b", 8), ("c", 9)] {
        world.grant(alloc, epoch, &context);
        if alloc != "c" {
            world.mount(alloc).await.unwrap();
        }
    }
    // One more is begun, and cut off.
    world.plant(&crate::world::hold("NodePublishVolume"));
    let cut = world.mount_within("c", std::time::Duration::from_millis(300)).await;
    assert!(cut.is_err(), "{cut:?}");
    let status = world.status().await.unwrap();
    assert_eq!(status.boot_id, "boot-1");
    agree(&status, &first, &below);
    assert_eq!(first.mounts(&below).len(), 3, "the staging and two targets");

    // The power goes.
    world.agent.kill9();
    world.driver.kill9();
    first.holder.kill9();
    world.plant(&serde_json::json!([]));
    let second = Boot::begin(&world, "boot-2").await;
    second.carry(&mut world).await;
    let status = wait::until("it is seen what is gone", PATIENCE, async || {
        let status = world.status().await.map_err(|problem| problem.to_string())?;
        let seen = status.mounts.iter().filter(|mount| mount.trouble.is_some()).count();
        if seen == 2 { Ok(status) } else { Err(format!("{status:?}")) }
    })
    .await;
    assert_eq!((status.boot_id.as_str(), status.mounts.len()), ("boot-2", 3));
    agree(&status, &second, &below);
    for mount in &status.mounts {
        assert!(mount.earlier_boot && !mount.mounted, "{mount:?}");
        if mount.alloc == id("c") {
            assert_eq!(mount.state, MountState::Begun, "{mount:?}");
        } else {
            assert_eq!(mount.health, MountHealth::Missing, "{mount:?}");
            assert!(mount.trouble.as_deref().unwrap().contains("booted"), "{mount:?}");
        }
    }

    // One comes back by itself, another when an operator says so, and the third is undone.
    world.mount("a").await.unwrap();
    let request = berth_contract::message::agent::Republish {
        namespace: berth_domain::Namespace::default(),
        volume: berth_domain::VolumeId::new("data").unwrap(),
        alloc: Some(id("b")),
        force: false,
    };
    let subject = verb::AgentRepublish::subject(&crate::world::node());
    world
        .ask::<berth_contract::message::agent::Republished>(&subject, &request, PATIENCE)
        .await
        .unwrap();
    world.detach("c", 9, 21).await.unwrap();
    let status = world.status().await.unwrap();
    agree(&status, &second, &below);
    assert!(status.mounts.iter().all(|mount| mount.mounted && !mount.earlier_boot), "{status:?}");
    assert_eq!(world.count("NodeUnstageVolume OK"), 0, "it is in use");

    world.detach("a", 7, 22).await.unwrap();
    assert_eq!(world.count("NodeUnstageVolume OK"), 0, "b still uses it");
    world.detach("b", 8, 23).await.unwrap();
    assert_eq!(world.count("NodeUnstageVolume OK"), 1, "{:?}", world.calls());
    assert_eq!((second.mounts(&below), world.leftovers()), (BTreeSet::new(), vec![]));
    assert_eq!(world.status().await.unwrap().mounts, []);
    world.judge();
}
