//! A Docker engine for one test.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use berth_harness::dirs::Dir;
use berth_harness::process::{Daemon, Program};
use berth_harness::{root, wait};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long an engine may take to start.
const START: Duration = Duration::from_secs(120);
const IMAGE: &str = "busybox";
/// The image that [`Engine::import_with_data`] makes.
pub const IMAGE_WITH_DATA: &str = "busybox-data";

/// A `dockerd` without network and a containerd, in two processes as in production: containers
/// outlive a killed engine.
pub struct Engine {
    socket: PathBuf,
    driver: String,
    daemon: Daemon,
    containerd: Daemon,
    // Last: its drop unmounts and removes what the processes left. It is outside the system's
    // directory, because mounts there are counted.
    dir: Dir,
}

impl Engine {
    pub(crate) async fn start(socket: PathBuf, driver: String, extra_args: &[&str]) -> Self {
        let dir = Dir::new("engine");
        let config = dir.join("containerd.toml");
        let dir_path = dir.path().display().to_string();
        let text = format!(
            "version = 2\nroot = '{dir_path}/root'\nstate = '{dir_path}/state'\n\
             disabled_plugins = ['io.containerd.grpc.v1.cri']\n\
             [grpc]\naddress = '{dir_path}/containerd.sock'\n"
        );
        fs::write(&config, text).expect("containerd's configuration can be written");
        let containerd = Program::new("containerd", "containerd", dir.join("containerd.log"))
            .arg("--config")
            .arg(config)
            .start();
        let daemon = Program::new("dockerd", "dockerd", dir.join("dockerd.log"))
            .args(["--iptables=false", "--ip6tables=false", "--bridge=none"])
            .args(["--storage-driver", "vfs", "--host"])
            .arg(format!("unix://{}", socket.display()))
            .args([
                format!("--containerd={dir_path}/containerd.sock"),
                format!("--data-root={dir_path}/data"),
            ])
            .args([format!("--exec-root={dir_path}/exec"), format!("--pidfile={dir_path}/pid")])
            .args(extra_args.iter().copied());
        wait::until("containerd listens", START, || async {
            UnixStream::connect(dir.join("containerd.sock")).map(drop)
        })
        .await;
        let engine = Self { socket, driver, daemon: daemon.start(), containerd, dir };
        engine.up().await;
        engine.import();
        engine
    }

    /// Waits until the engine answers.
    pub async fn up(&self) {
        wait::until("the engine answers", START, || async {
            let version = self.docker(&["version"]);
            if version.status.success() { Ok(()) } else { Err(output_text(&version)) }
        })
        .await;
    }

    /// Imports an image of only a static busybox: no image registry is needed.
    fn import(&self) {
        let root = self.dir.join("image");
        let bin = root.join("bin");
        fs::create_dir_all(&bin).expect("a directory for the image");
        let located = Command::new("sh").args(["-c", "command -v busybox"]).output();
        let busybox = located.expect("sh runs").stdout;
        let busybox = String::from_utf8_lossy(&busybox).trim().to_owned();
        fs::copy(&busybox, bin.join("busybox")).expect("busybox-static is installed");
        for applet in ["sh", "cat", "sleep", "touch", "ls"] {
            std::os::unix::fs::symlink("busybox", bin.join(applet)).expect("a link");
        }
        self.import_as(&root, IMAGE);
    }

    /// Imports an image with `/data/seed`, which Docker copies into a volume mounted there.
    pub fn import_with_data(&self) {
        let root = self.dir.join("image");
        fs::create_dir_all(root.join("data")).expect("a directory for the image");
        fs::write(root.join("data/seed"), "from the image").expect("a file for the image");
        self.import_as(&root, IMAGE_WITH_DATA);
    }

    fn import_as(&self, root: &Path, image: &str) {
        let tar = Command::new("tar").arg("-C").arg(root).args(["-c", "."]).output();
        let tar = tar.expect("tar runs").stdout;
        let mut import = self
            .command(&["import", "-", image])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("docker runs");
        import.stdin.take().expect("a pipe").write_all(&tar).expect("the image is read");
        assert!(import.wait().expect("docker ends").success(), "the image is imported");
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("docker");
        let host = format!("unix://{}", self.socket.display());
        command.args(["--host", &host]).args(arguments).stdin(Stdio::null());
        command.env("DOCKER_CONFIG", self.dir.path()).env_remove("DOCKER_HOST");
        command
    }

    /// Runs a docker command.
    pub fn docker(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("docker runs")
    }

    /// Runs a docker command that must succeed, off the test's own thread; returns its output.
    pub async fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        assert!(output.status.success(), "docker {arguments:?}: {}", output_text(&output));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Runs a docker command that must fail; returns its error.
    pub async fn refused(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        assert!(
            !output.status.success(),
            "docker {arguments:?} should fail: {}",
            output_text(&output)
        );
        output_text(&output)
    }

    /// `docker volume create` with Berth's driver and these options.
    pub async fn create(&self, name: &str, options: &[&str]) {
        assert_eq!(self.ok(&self.create_arguments(name, options)).await, name);
    }

    /// [`Self::create`] that must be refused; returns the error.
    pub async fn create_refused(&self, name: &str, options: &[&str]) -> String {
        self.refused(&self.create_arguments(name, options)).await
    }

    fn create_arguments<'a>(&'a self, name: &'a str, options: &[&'a str]) -> Vec<&'a str> {
        let options = options.iter().flat_map(|option| ["-o", option]);
        ["volume", "create", "-d", &self.driver, name].into_iter().chain(options).collect()
    }

    /// Runs a docker command, off the test's own thread.
    pub async fn run(&self, arguments: &[&str]) -> Output {
        let mut command = self.command(arguments);
        let run = tokio::task::spawn_blocking(move || command.output());
        run.await.expect("the thread lives").expect("docker runs")
    }

    /// Runs a `docker-compose` command of a project, which must succeed; returns its output.
    pub async fn compose(&self, file: &Path, project: &str, arguments: &[&str]) -> String {
        let mut command = Command::new("docker-compose");
        command.arg("--file").arg(file).args(["--project-name", project]).args(arguments);
        command.env("DOCKER_HOST", format!("unix://{}", self.socket.display()));
        command.env("DOCKER_CONFIG", self.dir.path()).stdin(Stdio::null());
        let run = tokio::task::spawn_blocking(move || command.output());
        let output = run.await.expect("the thread lives").expect("docker-compose runs");
        assert!(output.status.success(), "docker-compose {arguments:?}: {}", output_text(&output));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// The volumes of this engine's driver. Without the filter Docker would activate the plugins of
    /// parallel tests, and each would take that for a restarted engine.
    pub async fn volumes(&self) -> Vec<String> {
        let filter = format!("driver={}", self.driver);
        let listed = self.ok(&["volume", "ls", "-q", "--filter", &filter]).await;
        listed.lines().map(str::to_owned).collect()
    }

    /// `docker run` of a shell with the volume at `/data`, and options before the image.
    pub async fn shell(&self, volume: &str, options: &[&str], script: &str) -> String {
        let volume = format!("{volume}:/data");
        self.ok(&self.shell_arguments(&volume, options, script)).await
    }

    /// The arguments of [`Self::shell`], except that `volume` includes the path.
    pub fn shell_arguments<'a>(
        &'a self,
        volume: &'a str,
        options: &[&'a str],
        script: &'a str,
    ) -> Vec<&'a str> {
        let fixed = ["run", "--network", "none", "--volume-driver", &self.driver, "-v", volume];
        let shell = [IMAGE, "/bin/sh", "-c", script];
        fixed.iter().chain(options).chain(&shell).copied().collect()
    }

    /// The engine's own process.
    pub fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    /// Kills the engine's leftover processes, and waits until they have ended.
    fn end_leftovers(&self) {
        for _ in 0..100 {
            let leftovers = self.leftovers();
            if leftovers.is_empty() {
                return;
            }
            for pid in leftovers {
                // Fails only when the process has ended already.
                let _ = kill(pid, Signal::SIGKILL);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Processes with the engine's directory in their command line, or with a root file system
    /// below it.
    fn leftovers(&self) -> Vec<Pid> {
        let needle = self.dir.path().as_os_str().as_bytes();
        let has_needle = |text: &[u8]| text.windows(needle.len()).any(|part| part == needle);
        let is_ours = |process: &Path| {
            let read = |file: &str| fs::read(process.join(file)).unwrap_or_default();
            let mounts = read("mountinfo");
            let mut lines = mounts.split(|byte| *byte == b'\n');
            has_needle(&read("cmdline"))
                || lines.any(|line| {
                    let mut fields = line.split(|byte| *byte == b' ').skip(3);
                    let (root, point) = (fields.next(), fields.next());
                    point == Some(b"/") && root.is_some_and(has_needle)
                })
        };
        let processes = fs::read_dir("/proc").expect("/proc can be read").flatten();
        let number = |name: &OsStr| name.to_str()?.parse().ok().map(Pid::from_raw);
        let ours = processes.filter_map(|entry| Some((number(&entry.file_name())?, entry.path())));
        ours.filter(|(pid, path)| *pid != Pid::this() && is_ours(path))
            .map(|(pid, _)| pid)
            .collect()
    }
}

/// Whether this machine can run engines: the test is root, and they are installed. If not, a line
/// names what was skipped.
///
/// # Panics
/// When `CI` is set, where nothing is skipped.
pub fn engine_or_skip() -> bool {
    tools_or_skip("runs a Docker engine", &["dockerd", "docker", "containerd", "busybox"])
}

/// [`engine_or_skip`] for a test that also needs Compose.
pub fn compose_or_skip() -> bool {
    engine_or_skip() && tools_or_skip("runs Compose", &["docker-compose"])
}

fn tools_or_skip(what: &str, tools: &[&str]) -> bool {
    if !root::or_skip(what) {
        return false;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_installed =
        |tool: &&&str| std::env::split_paths(&path).any(|dir| dir.join(tool).is_file());
    let Some(missing) = tools.iter().find(|tool| !is_installed(tool)) else { return true };
    let line = format!("SKIPPED (needs {missing}): {what}");
    assert!(std::env::var_os("CI").is_none(), "{line}; but CI is set, where nothing is skipped");
    // Written past the capture of test output, which hides it when the test passes.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
    false
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.daemon.is_running() {
            let listed = self.docker(&["ps", "-aq"]).stdout;
            let listed = String::from_utf8_lossy(&listed).into_owned();
            let containers: Vec<&str> = listed.split_whitespace().collect();
            if !containers.is_empty() {
                let _ = self.docker(&[&["rm", "-f"], containers.as_slice()].concat());
            }
        }
        self.daemon.kill9();
        self.containerd.kill9();
        self.end_leftovers();
    }
}

fn output_text(output: &Output) -> String {
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    format!("{}: {}", output.status, String::from_utf8_lossy(&text).trim())
}
