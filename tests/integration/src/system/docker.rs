//! The `berth-docker` of each node, and its sockets.

use std::path::PathBuf;

use berth_harness::dirs::Dir;
use berth_harness::process::Daemon;

use super::{Start, System};

impl System {
    /// The socket of a node's `berth-docker`. The file's name is the driver's name.
    pub fn docker_socket(&self, node: usize) -> PathBuf {
        docker_socket(&self.dir, node)
    }

    /// The path at which a node's `berth-docker` looks for its Docker engine.
    pub fn engine_socket(&self, node: usize) -> PathBuf {
        engine_socket(&self.dir, node)
    }
}

impl Drop for System {
    fn drop(&mut self) {
        for node in 0..self.dockers.len() {
            // A killed berth-docker leaves its own socket behind.
            let _ = std::fs::remove_file(self.docker_socket(node));
        }
    }
}

impl Start<'_> {
    pub(super) fn docker(&self, at: usize) -> Daemon {
        let (node, dir) = (at + 1, self.dir.path().display());
        let (socket, engine) = (docker_socket(self.dir, at), engine_socket(self.dir, at));
        let own = format!(
            "node = 'n{node}'\nstate_dir = '{dir}/docker-{node}'\nsocket = '{}'\nengine = '{}'\n\
             mount_timeout_ms = {}\n",
            socket.display(),
            engine.display(),
            self.options.docker_ms.unwrap_or_default(),
        );
        self.run("berth-docker", &format!("docker-{node}"), &own)
    }
}

/// Docker looks for its plugins only there, so the name is unique to the test.
fn docker_socket(dir: &Dir, node: usize) -> PathBuf {
    let test = dir.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
    PathBuf::from(format!("/run/docker/plugins/{test}-n{}.sock", node + 1))
}

fn engine_socket(dir: &Dir, node: usize) -> PathBuf {
    dir.join(format!("engine-{}.sock", node + 1))
}
