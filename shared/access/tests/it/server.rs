//! nats-servers with the layout of hosts: the sample configuration, which includes
//! `nats/host.conf`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use berth_access::directory::{FilePlace, NewIdentity};
use berth_access::host::Host;
use berth_access::install::install;
use berth_access::{Directory, Role};
use berth_domain::Timestamp;
use berth_harness::dirs::Dir;
use berth_harness::nats;
use berth_harness::ports::Port;
use berth_harness::process::{Daemon, Program};
use berth_harness::wait;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::client::{Client, Dial};

/// How long a server may take to start, or a cluster to elect.
pub const SOON: Duration = Duration::from_secs(60);

pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Timestamp::from_unix_ms(u64::try_from(since.as_millis()).unwrap())
}

pub fn hosts(names: &[&str]) -> Vec<Host> {
    names.iter().map(|name| Host::parse(name).unwrap()).collect()
}

/// A server with its ports. Dropped before its directory.
#[derive(Debug)]
pub struct HostServer {
    pub daemon: Daemon,
    pub name: String,
    port: Port,
    monitor: Port,
}

/// A fleet's directory and its running servers.
#[derive(Debug)]
pub struct Fleet {
    pub servers: Vec<HostServer>,
    pub directory: Directory,
    pub dir: Dir,
    routes: Vec<Port>,
}

impl Fleet {
    /// Makes a fleet with these hosts, and starts their servers on loopback.
    pub async fn start(names: &[&str]) -> Self {
        let mut fleet = Self::make(names);
        for (index, name) in names.iter().enumerate() {
            let server = fleet.launch(index, name, &[]);
            fleet.servers.push(server);
        }
        fleet.await_ready().await;
        fleet
    }

    /// Makes another fleet with one running server, which tries to join the first fleet's cluster.
    pub fn start_intruder(names: &[&str], routes: &[u16]) -> Self {
        let mut fleet = Self::make(names);
        let server = fleet.launch(0, names[0], routes);
        fleet.servers.push(server);
        fleet
    }

    /// Makes a fleet whose servers do not run.
    pub fn make(names: &[&str]) -> Self {
        let dir = Dir::new("access");
        let directory =
            Directory::create(&dir.join("access"), &hosts(names), &FilePlace::InDirectory, now())
                .unwrap();
        let routes: Vec<Port> = names.iter().map(|_| Port::reserve()).collect();
        Self { servers: Vec::new(), directory, dir, routes }
    }

    fn launch(&self, index: usize, name: &str, more_routes: &[u16]) -> HostServer {
        let (port, monitor) = (Port::reserve(), Port::reserve());
        let etc = self.dir.join(format!("{name}.etc"));
        fs::create_dir(&etc).unwrap();
        let files = self.directory.server_dir(&Host::parse(name).unwrap());
        symlink(files, etc.join("nats")).unwrap();
        let sample = berth_harness::repository().join("deploy/nats/nats.conf");
        let sample = fs::read_to_string(sample).unwrap();
        let store = self.dir.join(format!("{name}.store"));
        let config = sample.replace("/var/lib/nats-server", store.to_str().unwrap());
        assert_ne!(config, sample);
        fs::write(etc.join("nats.conf"), config).unwrap();
        let number = |port: &Port| port.number().to_string();
        let mut program = Program::new(
            &format!("nats-server {name}"),
            nats::program(),
            self.dir.join(format!("{name}.log")),
        );
        program = program.arg("-c").arg(etc.join("nats.conf"));
        program = program.args(["-a", "127.0.0.1", "-p", &number(&port), "-m", &number(&monitor)]);
        if self.routes.len() > 1 {
            let route = |port: u16| format!("nats://127.0.0.1:{port}");
            let ports = self.routes.iter().map(Port::number).chain(more_routes.iter().copied());
            let routes: Vec<String> = ports.map(route).collect();
            program = program.args(["--cluster", &route(self.routes[index].number())]);
            program = program.args(["--routes", &routes.join(",")]);
            // On real hosts the configuration's address is right; in the test it is loopback.
            program =
                program.args(["--cluster_advertise", &self.routes[index].address().to_string()]);
        }
        HostServer { daemon: program.start(), name: name.to_owned(), port, monitor }
    }

    /// Waits until all servers answer.
    pub async fn await_ready(&self) {
        for server in &self.servers {
            wait::until("the server is healthy", SOON, async || {
                if let Some(status) = server.daemon.exit_status() {
                    panic!("{} ended: {status}\n{}", server.name, server.daemon.log());
                }
                match server.monitor("/healthz") {
                    Ok(health) if health["status"] == "ok" => Ok(()),
                    Ok(health) => Err(health.to_string()),
                    Err(error) => Err(error),
                }
            })
            .await;
        }
    }

    /// The port on which servers of the cluster connect.
    pub fn route_port(&self, index: usize) -> u16 {
        self.routes[index].number()
    }

    /// Makes an identity, and returns its file.
    pub fn creds(&mut self, role: Role) -> PathBuf {
        self.directory.issue(&NewIdentity::of_role(role), now()).unwrap().creds
    }

    /// Connects to the first server.
    pub fn connect(&self, creds: &std::path::Path) -> Result<Client, String> {
        Client::connect(self.dial(0, &self.directory.ca(), Some(creds)))
    }

    /// The parameters of a connection to a server by its name.
    pub fn dial<'a>(
        &'a self,
        index: usize,
        ca: &'a std::path::Path,
        creds: Option<&'a std::path::Path>,
    ) -> Dial<'a> {
        let server = &self.servers[index];
        Dial { port: server.port.number(), name: &server.name, ca, creds, token: None }
    }

    /// Gives the first server a directory of files of its own, as on a host.
    pub fn separate_files(&self) -> PathBuf {
        let name = &self.servers[0].name;
        let place = self.dir.join(format!("{name}.etc/nats"));
        fs::remove_file(&place).unwrap();
        fs::create_dir(&place).unwrap();
        let from = self.directory.server_dir(&Host::parse(name).unwrap());
        install(&from, &place).unwrap();
        place
    }

    /// Reloads all servers, and waits until they have read their configuration.
    pub async fn reload(&self) {
        for server in &self.servers {
            let reloads = || server.daemon.log().matches("Reloaded server configuration").count();
            let before = reloads();
            server.daemon.signal(Signal::SIGHUP);
            wait::until("the server has reloaded", SOON, async || {
                if reloads() > before { Ok(()) } else { Err(server.daemon.log()) }
            })
            .await;
        }
    }
}

impl HostServer {
    /// The address for programs on the server's host.
    pub fn url(&self) -> String {
        format!("nats://localhost:{}", self.port.number())
    }

    /// The answer of the server's monitoring port.
    pub fn monitor(&self, path: &str) -> Result<Value, String> {
        use std::io::{Read as _, Write as _};
        let text = |error: std::io::Error| error.to_string();
        let mut stream = std::net::TcpStream::connect(self.monitor.address()).map_err(text)?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).map_err(text)?;
        let ask = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        stream.write_all(ask.as_bytes()).map_err(text)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map_err(text)?;
        let body = answer.split_once("\r\n\r\n").ok_or("no answer")?.1;
        serde_json::from_str(body).map_err(|error| format!("{error}: {body}"))
    }
}
