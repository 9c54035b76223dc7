//! Several redis-servers that belong together: a cluster, or a master with replicas and sentinels.

use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;

use crate::ports;
use crate::process::Process;
use crate::redis::{Beats, Redis, server, try_command};
use crate::wait::{SOON, until};

/// A port that is free together with that by which nodes talk to each other.
fn port_of_node() -> u16 {
    loop {
        let port = ports::free();
        if TcpListener::bind(("127.0.0.1", port + BETWEEN_NODES)).is_ok() {
            return port;
        }
    }
}

/// Distance from a node's port to the port on which it listens to the others.
const BETWEEN_NODES: u16 = 10_000;

/// Number of slots of a cluster.
const SLOTS: u16 = 16384;

/// A cluster of masters without replicas.
#[derive(Debug)]
pub struct Cluster {
    /// The nodes.
    pub nodes: Vec<Redis>,
}

impl Cluster {
    /// Starts a cluster of three.
    ///
    /// # Panics
    /// When it does not come together.
    pub fn start(directory: &Path) -> Self {
        Self::start_with(directory, |_node| Vec::new())
    }

    /// The same with more arguments for each node.
    ///
    /// # Panics
    /// When it does not come together.
    pub fn start_with(directory: &Path, more: impl Fn(usize) -> Vec<String>) -> Self {
        let arguments = [
            "--cluster-enabled",
            "yes",
            "--cluster-node-timeout",
            "15000",
            "--cluster-config-file",
            "nodes.conf",
        ];
        let nodes: Vec<Redis> = (0..3)
            .map(|node| {
                let directory = directory.join(format!("node{node}"));
                let port = port_of_node();
                let bus = (port + BETWEEN_NODES).to_string();
                let more = more(node);
                let more = more.iter().map(String::as_str);
                let arguments = arguments.iter().copied().chain(["--cluster-port", &bus]);
                let arguments: Vec<&str> = arguments.chain(more).collect();
                Redis::start_with(&directory, port, &arguments)
            })
            .collect();
        let cluster = Self { nodes };
        let share = SLOTS / 3 + 1;
        for (index, node) in (0..).zip(&cluster.nodes) {
            let (first, last) = (index * share, (SLOTS - 1).min((index + 1) * share - 1));
            let (first, last) = (first.to_string(), last.to_string());
            node.command(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
            let epoch = (index + 1).to_string();
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]);
            let port = cluster.nodes[0].port;
            let (port, bus) = (port.to_string(), (port + BETWEEN_NODES).to_string());
            node.command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
        }
        until("the cluster is whole", SOON, || {
            cluster.nodes.iter().all(|node| {
                let info = node.command(&["CLUSTER", "INFO"]);
                info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
            })
        });
        cluster
    }

    /// Sends a command about a key to the node that has it.
    ///
    /// # Panics
    /// When no node does it.
    pub fn command(&self, arguments: &[&str]) -> String {
        for node in &self.nodes {
            match try_command(node.port, arguments) {
                Ok(reply) => return reply,
                Err(error) if error.to_string().starts_with("MOVED") => {}
                Err(error) => panic!("{arguments:?}: {error}"),
            }
        }
        panic!("no node does {arguments:?}");
    }

    /// Gives each node beats, as a sidecar does, until they are dropped. The slots of their keys may not move.
    ///
    /// # Panics
    /// When a node has no slot for its key.
    pub fn beats(&self) -> Vec<Beats> {
        let key = |tag: u16| format!("sl:gen{{{tag}}}");
        let of_node = self.nodes.iter().map(|node| {
            let owns = |key: &String| try_command(node.port, &["EXISTS", key]).is_ok();
            let key = (0..1024).map(key).find(owns).expect("a slot");
            Beats::begin(node.port, key, Arc::default())
        });
        of_node.collect()
    }

    /// The slot of a key.
    ///
    /// # Panics
    /// When it can't be asked for.
    pub fn slot(&self, key: &str) -> String {
        self.nodes[0].command(&["CLUSTER", "KEYSLOT", key])
    }

    /// The nodes that a key's slot belongs to and does not belong to.
    ///
    /// # Panics
    /// When there are none.
    pub fn owner_and_other(&self, key: &str) -> (&Redis, &Redis) {
        let is_owner = |node: &&Redis| try_command(node.port, &["EXISTS", key]).is_ok();
        let owner = self.nodes.iter().find(is_owner).expect("an owner");
        let other = self.nodes.iter().find(|node| node.port != owner.port);
        (owner, other.expect("another node"))
    }

    /// Adds a replica of a master to the nodes; returns its place.
    ///
    /// # Panics
    /// When it does not become one.
    pub fn add_replica(&mut self, directory: &Path, of: usize) -> usize {
        let port = port_of_node();
        let bus = (port + BETWEEN_NODES).to_string();
        let arguments = ["--cluster-enabled", "yes", "--cluster-port", &bus];
        let replica = Redis::start_with(&directory.join("replica"), port, &arguments);
        let first = self.nodes[0].port;
        let (port, bus) = (first.to_string(), (first + BETWEEN_NODES).to_string());
        replica.command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
        let master = Self::id(&self.nodes[of]);
        until("it is a replica", SOON, || {
            try_command(replica.port, &["CLUSTER", "REPLICATE", &master]).is_ok()
        });
        until("it has the data", SOON, || {
            let state = replica.command(&["INFO", "replication"]);
            state.contains("master_link_status:up")
        });
        let id = Self::id(&replica);
        until("all know it", SOON, || {
            let knows = |node: &Redis| node.command(&["CLUSTER", "NODES"]).contains(&id);
            self.nodes.iter().all(knows)
        });
        self.nodes.push(replica);
        self.nodes.len() - 1
    }

    /// Moves a slot with its keys from one node to another, as `redis-cli --cluster reshard` does.
    ///
    /// # Panics
    /// When a node refuses.
    pub fn move_slot(&self, slot: u16, from: usize, to: usize) {
        let (slot, from, to) = (slot.to_string(), &self.nodes[from], &self.nodes[to]);
        let (from_id, to_id) = (Self::id(from), Self::id(to));
        to.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]);
        from.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]);
        let port = to.port.to_string();
        let keys = from.command(&["CLUSTER", "GETKEYSINSLOT", &slot, "1000"]);
        for key in keys.lines().filter(|key| !key.is_empty()) {
            from.command(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
        }
        for node in [to, from] {
            node.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]);
        }
    }

    /// The id of a node.
    ///
    /// # Panics
    /// When it can't be asked.
    pub fn id(node: &Redis) -> String {
        node.command(&["CLUSTER", "MYID"])
    }
}

/// Sentinels that watch one master.
#[derive(Debug)]
pub struct Sentinels {
    processes: Vec<Process>,
    /// Their ports.
    pub ports: Vec<u16>,
}

/// The sentinels' name of their master.
pub const MASTER: &str = "links";

impl Sentinels {
    /// Their addresses, with the host.
    pub fn addresses(&self) -> Vec<String> {
        let ports = self.ports.iter();
        ports.map(|port| format!("127.0.0.1:{port}")).collect()
    }

    /// Starts a master, a replica of it, and three sentinels that watch them.
    ///
    /// # Panics
    /// When they do not start.
    pub fn start_with_servers(directory: &Path) -> (Redis, Redis, Self) {
        let master = Redis::start(&directory.join("first"), ports::free());
        let port = master.port.to_string();
        let replica = Redis::start_with(
            &directory.join("second"),
            ports::free(),
            &["--replicaof", "127.0.0.1", &port],
        );
        let sentinels = Self::start(directory, 3, &master);
        (master, replica, sentinels)
    }

    /// Starts so many sentinels of a master.
    fn start(directory: &Path, count: usize, master: &Redis) -> Self {
        let mut sentinels = Self {
            processes: Vec::new(),
            ports: Vec::new(),
        };
        for index in 0..count {
            let directory = directory.join(format!("sentinel{index}"));
            std::fs::create_dir_all(&directory).expect("a directory");
            let port = ports::free();
            let configuration = format!(
                "port {port}\nbind 127.0.0.1\ndir {}\n\
                 sentinel monitor {MASTER} 127.0.0.1 {} {}\n\
                 sentinel down-after-milliseconds {MASTER} 4000\n\
                 sentinel failover-timeout {MASTER} 3000\n",
                directory.display(),
                master.port,
                count / 2 + 1,
            );
            let file = directory.join("sentinel.conf");
            std::fs::write(&file, configuration).expect("a configuration");
            let mut command = server();
            command.arg(&file).arg("--sentinel");
            let log = directory.join("sentinel.log");
            let mut process = Process::start("sentinel", &command, &log);
            process.wait_ready(|| try_command(port, &["PING"]).is_ok());
            sentinels.processes.push(process);
            sentinels.ports.push(port);
        }
        until("the sentinels know each other", SOON, || {
            sentinels.ports.iter().all(|&port| {
                let state = try_command(port, &["SENTINEL", "MASTER", MASTER]);
                let state = state.unwrap_or_default();
                let others = format!("num-other-sentinels\n{}\n", count - 1);
                state.contains(&others) && state.contains("num-slaves\n1\n")
            })
        });
        sentinels
    }

    /// The port of the master that the sentinels name.
    ///
    /// # Panics
    /// When they name none.
    pub fn master(&self) -> u16 {
        let last = self.ports.last().expect("a sentinel");
        let command = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER];
        let reply = try_command(*last, &command).expect("a master");
        let port = reply.lines().nth(1).expect("a port");
        port.parse().expect("a number")
    }

    /// Has the sentinels demand the password of a user; their default user is off.
    ///
    /// # Panics
    /// When they refuse.
    pub fn demand_passwords(&self, user: &str, password: &str) {
        let password = format!(">{password}");
        for &port in &self.ports {
            let command = ["ACL", "SETUSER", user, "on", &password, "~*", "&*", "+@all"];
            try_command(port, &command).expect("a user");
            try_command(port, &["ACL", "SETUSER", "default", "off"]).expect("a change");
        }
    }

    /// Kills the first of those that run.
    ///
    /// # Panics
    /// When none runs.
    pub fn kill_first(&mut self) {
        self.processes.remove(0).kill();
        self.ports.remove(0);
    }
}
