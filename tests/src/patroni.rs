//! PostgreSQL with automatic failover: three servers that Patroni manages, each on a machine of its own with an etcd,
//! as far as loopback has machines.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use serde_json::Value;

use crate::process::Process;
use crate::proxy::{Mode, Proxy};
use crate::wait::within;
use crate::{http, ports, workspace};

/// The number of servers.
const SERVERS: usize = 3;

/// Seconds after which a leader that is silent is replaced. Patroni's default is 30.
const TTL: u32 = 10;

/// The limit for a cluster of three servers to be complete.
const COMPLETE: Duration = Duration::from_secs(60);

/// A cluster of three servers. A transaction is acknowledged once the leader and a synchronous standby have it.
#[derive(Debug)]
pub struct Patroni {
    nodes: Vec<Node>,
}

/// A machine of the cluster.
#[derive(Debug)]
struct Node {
    patroni: Option<Process>,
    _etcd: Process,
    directory: PathBuf,
    /// The port of PostgreSQL.
    port: u16,
    /// The port of Patroni's API.
    api_port: u16,
    /// The network of the machine: connections to its PostgreSQL, and from Patroni to etcd.
    network: [Proxy; 2],
}

impl Node {
    fn start(&mut self) {
        let mut command = Command::new(workspace().join("scripts/test-postgres"));
        command.arg("patroni").arg(&self.directory);
        let log = self.directory.with_extension("log");
        self.patroni = Some(Process::start("patroni", &command, &log));
    }

    /// The process id of the server itself, if it runs.
    fn postmaster(&self) -> Option<Pid> {
        let file = fs::read_to_string(self.directory.join("data/postmaster.pid")).ok()?;
        file.lines().next()?.trim().parse().ok().map(Pid::from_raw)
    }

    fn signal(&self, signal: Signal) {
        let patroni = self.patroni.as_ref().expect("a running Patroni");
        patroni.signal(signal);
        let postmaster = self.postmaster().expect("a running PostgreSQL");
        signal::kill(postmaster, signal).expect("a running PostgreSQL");
    }

    fn log(&self) -> String {
        let log = self.patroni.as_ref().map(Process::log);
        let log = log.unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Patroni would start the server again, and both would wait for others when asked to end.
        if let Some(mut patroni) = self.patroni.take() {
            patroni.kill();
        }
        if let Some(postmaster) = self.postmaster() {
            let _ = signal::kill(postmaster, Signal::SIGQUIT);
            let _ = signal::kill(postmaster, Signal::SIGCONT);
        }
    }
}

impl Patroni {
    /// Starts a cluster and waits until it is complete.
    ///
    /// # Panics
    /// When etcd or Patroni is missing, or does not start.
    pub fn start(directory: &Path) -> Self {
        let etcds: Vec<(u16, u16)> = (0..SERVERS)
            .map(|_| (ports::free(), ports::free()))
            .collect();
        let members: Vec<String> = (0..SERVERS)
            .map(|node| format!("node{node}=http://127.0.0.1:{}", etcds[node].1))
            .collect();
        let mut nodes: Vec<Node> = Vec::new();
        for (number, (client, peer)) in etcds.into_iter().enumerate() {
            let directory = directory.join(format!("node{number}"));
            fs::create_dir_all(&directory).expect("a directory");
            let etcd = etcd(&directory, number, (client, peer), &members.join(","));
            let port = ports::free();
            let mut node = Node {
                patroni: None,
                _etcd: etcd,
                directory,
                port,
                api_port: ports::free(),
                network: [Proxy::to(port), Proxy::to(client)],
            };
            let file = node.directory.join("patroni.yml");
            fs::write(file, configuration(number, &node)).expect("a configuration");
            node.start();
            nodes.push(node);
        }
        let cluster = Self { nodes };
        cluster.wait_until_complete();
        cluster
    }

    /// The URL of the database on all servers.
    pub fn url(&self) -> String {
        let hosts = self
            .nodes
            .iter()
            .map(|node| format!("127.0.0.1:{}", node.network[0].port));
        let hosts: Vec<String> = hosts.collect();
        let hosts = hosts.join(",");
        format!("postgres://shortlink@{hosts}/postgres?target_session_attrs=read-write")
    }

    /// Waits until one server is the leader, another one its synchronous standby, and the third one follows, too.
    ///
    /// # Panics
    /// When that takes too long.
    pub fn wait_until_complete(&self) {
        let is_complete = || {
            let members = self.members().unwrap_or_default();
            let members = members.as_array().map_or(&[][..], Vec::as_slice);
            let timelines = |role: &str| {
                let running = ["running", "streaming"].map(Value::from);
                let of_role = members.iter();
                let of_role = of_role
                    .filter(|member| running.contains(&member["state"]) && member["role"] == role);
                of_role
                    .map(|member| &member["timeline"])
                    .collect::<Vec<_>>()
            };
            let leader = timelines("leader");
            leader.len() == 1
                && timelines("sync_standby") == leader
                && timelines("replica") == leader
        };
        if within(COMPLETE, || is_complete().then_some(())).is_none() {
            let logs: Vec<String> = self.nodes.iter().map(Node::log).collect();
            let (members, logs) = (self.members(), logs.join("\n\n"));
            panic!("the cluster is not complete: {members:?}\n{logs}");
        }
    }

    /// The members as any Patroni knows them.
    fn members(&self) -> Option<Value> {
        self.nodes.iter().find_map(|node| {
            let request = http::request("GET", "/cluster", &[], b"");
            let mut connection = http::Connection::open(node.api_port).ok()?;
            connection.set_patience(Duration::from_secs(1)).ok()?;
            connection.send(&request).ok()?;
            let answer = connection.receive("GET").ok()??;
            Some(answer.json()["members"].clone())
        })
    }

    /// The number of the server that takes changes, other than one that may hang.
    pub fn primary_except(&self, hung: Option<usize>) -> Option<usize> {
        let others = (0..SERVERS).filter(|node| Some(*node) != hung);
        others
            .into_iter()
            .find(|&node| self.ask(node, "SELECT NOT pg_is_in_recovery()").as_deref() == Some("t"))
    }

    /// The number of the server that takes changes.
    ///
    /// # Panics
    /// When none does.
    pub fn primary(&self) -> usize {
        self.primary_except(None).expect("a primary")
    }

    /// Has the primary run a statement, and returns what it answers.
    ///
    /// # Panics
    /// When it does not.
    pub fn query(&self, statement: &str) -> String {
        self.ask(self.primary(), statement).expect(statement)
    }

    /// Has a server run a statement, not through its network.
    fn ask(&self, node: usize, statement: &str) -> Option<String> {
        let url = format!(
            "postgres://shortlink@127.0.0.1:{}/postgres",
            self.nodes[node].port
        );
        let output = Command::new("psql")
            .args(["-X", "-A", "-t", "-q", "-d", &url, "-c", statement])
            .output();
        let output = output.expect("psql can be run");
        let answer = String::from_utf8(output.stdout).expect("text");
        output.status.success().then(|| answer.trim().to_owned())
    }

    /// Has all servers but one, which may hang, show the timeline that they follow: they would within
    /// `checkpoint_timeout`. A standby shows it only after the primary.
    pub fn show_timelines(&self, hung: usize) {
        for node in (0..SERVERS).filter(|node| *node != hung) {
            let _ = self.ask(node, "CHECKPOINT");
        }
    }

    /// Kills a server and its Patroni.
    pub fn kill(&mut self, node: usize) {
        self.nodes[node].signal(Signal::SIGKILL);
    }

    /// Starts a server again after [`Patroni::kill`].
    pub fn start_again(&mut self, node: usize) {
        self.nodes[node].start();
    }

    /// Lets a server and its Patroni hang, so that it takes no connection. Its sessions go on.
    pub fn hang(&self, node: usize) {
        self.nodes[node].signal(Signal::SIGSTOP);
    }

    /// Ends [`Patroni::hang`].
    pub fn go_on(&self, node: usize) {
        self.nodes[node].signal(Signal::SIGCONT);
    }

    /// Sets how the network of a server works: towards its clients and the other servers, and to etcd.
    pub fn set_network(&self, node: usize, mode: Mode) {
        for proxy in &self.nodes[node].network {
            proxy.set(mode);
        }
    }

    /// Has an operator move the primary elsewhere.
    ///
    /// # Panics
    /// When it does not move.
    pub fn switch_over(&self) {
        let file = self.nodes[0].directory.join("patroni.yml");
        let output = Command::new("patronictl")
            .arg("-c")
            .arg(file)
            .args(["switchover", "--force"])
            .output();
        let output = output.expect("patronictl can be run");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("Successfully switched over"), "{said}");
    }
}

fn etcd(directory: &Path, number: usize, (client, peer): (u16, u16), members: &str) -> Process {
    let (client, peer) = (
        format!("http://127.0.0.1:{client}"),
        format!("http://127.0.0.1:{peer}"),
    );
    let mut command = Command::new("etcd");
    command
        .args(["--name", &format!("node{number}"), "--data-dir"])
        .arg(directory.with_extension("etcd"))
        .args([
            "--listen-client-urls",
            &client,
            "--advertise-client-urls",
            &client,
        ])
        .args([
            "--listen-peer-urls",
            &peer,
            "--initial-advertise-peer-urls",
            &peer,
        ])
        .args(["--initial-cluster", members])
        // Patroni 3.0 with the newer API lost sight of its own changes, and never had a synchronous standby.
        .arg("--enable-v2")
        // A machine that is busy is not one that is gone.
        .args(["--heartbeat-interval", "200", "--election-timeout", "2000"]);
    Process::start("etcd", &command, &directory.with_extension("etcd.log"))
}

fn configuration(number: usize, node: &Node) -> String {
    let Node {
        directory,
        port,
        api_port,
        network: [database, etcd],
        ..
    } = node;
    let (directory, database, etcd) = (directory.display(), database.port, etcd.port);
    // Without use_proxies, Patroni would ask etcd for the addresses of its members, and use these.
    format!(
        "scope: shortlink
name: node{number}
restapi: {{listen: '127.0.0.1:{api_port}', connect_address: '127.0.0.1:{api_port}'}}
etcd: {{hosts: ['127.0.0.1:{etcd}'], use_proxies: true}}
bootstrap:
  dcs:
    ttl: {TTL}
    loop_wait: 1
    retry_timeout: 3
    synchronous_mode: true
    postgresql: {{use_pg_rewind: true}}
  initdb: [{{encoding: UTF8}}, {{locale: C}}, no-sync]
postgresql:
  listen: 127.0.0.1:{port}
  connect_address: 127.0.0.1:{database}
  data_dir: {directory}/data
  pgpass: {directory}/pgpass
  authentication:
    superuser: {{username: shortlink, password: unused}}
    replication: {{username: replicator, password: unused}}
  parameters:
    fsync: 'off'
    shared_buffers: 32MB
    unix_socket_directories: ''
  pg_hba: ['host all all 127.0.0.1/32 trust', 'host replication all 127.0.0.1/32 trust']
"
    )
}
