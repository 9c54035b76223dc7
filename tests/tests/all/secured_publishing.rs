//! A sidecar whose Redis has TLS, or whose sentinels have passwords.

use std::path::Path;

use shortlink_tests::cluster::{Cluster, MASTER, Sentinels};
use shortlink_tests::made::make_batch;
use shortlink_tests::ports;
use shortlink_tests::redis::{Redis, make_certificates, secured};
use shortlink_tests::sidecar::Sidecar;
use shortlink_tests::stack::directory;
use shortlink_tests::wait::{SOON, until};

/// The links of a batch.
const LINKS: usize = 2_000;

/// The settings of a URL with TLS, with the sidecar's own certificate or without it.
fn settings(url: &str, certificates: &Path, has_own: bool) -> String {
    let file = |name: &str| certificates.join(name).display().to_string();
    let own = format!(
        "\ncertificate_file = \"{}\"\ncertificate_key_file = \"{}\"",
        file("redis.crt"),
        file("redis.key")
    );
    let own = if has_own { own } else { String::new() };
    format!("url = \"{url}\"\nca_file = \"{}\"{own}", file("ca.crt"))
}

/// Starts a sidecar on one server, and then again with other settings of `[redis]`.
fn start(directory: &Path, settings: &str) -> Sidecar {
    let before = Redis::start(&directory.join("before"), ports::free());
    let mut sidecar = Sidecar::start(&directory.join("sidecar"), ports::free(), before.port, "");
    assert_eq!(sidecar.stop(), Some(0));
    let url = format!("url = \"redis://127.0.0.1:{}/0\"", before.port);
    sidecar.edit_config(&url, settings);
    sidecar.start_again();
    sidecar
}

/// Has links published, and Redis filled again.
fn assert_publishes(sidecar: &Sidecar, redis: &[Redis]) {
    let headers = [("X-Api-Key", &*sidecar.key)];
    let targets = (0..LINKS).map(|number| format!("https://example.com/{number}"));
    let results = make_batch(sidecar.port, &headers, &targets.collect::<Vec<_>>());
    let counts = (results.made.len(), results.late);
    assert_eq!(counts, (LINKS, 0), "{}", sidecar.log());
    let count = || -> usize {
        let keys = redis.iter().map(|node| node.command(&["KEYS", "sl:l:*"]));
        keys.map(|keys| keys.lines().filter(|key| !key.is_empty()).count())
            .sum()
    };
    assert_eq!(count(), LINKS);
    for node in redis {
        node.command(&["FLUSHALL"]);
    }
    sidecar.run_ok(&["rebuild"]);
    until("all links are there again", SOON, || count() == LINKS);
    sidecar.run_ok(&["audit"]);
}

#[test]
fn a_server_with_tls_is_written_to() {
    let directory = directory();
    let path = directory.path();
    make_certificates(path);
    let tls_port = ports::free();
    let arguments = secured(path, tls_port);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let redis = Redis::start_with(&path.join("redis"), ports::free(), &arguments);
    let url = format!("rediss://127.0.0.1:{tls_port}/0");
    let mut sidecar = start(path, &settings(&url, path, true));
    let redis = [redis];
    assert_publishes(&sidecar, &redis);
    // Without a certificate of its own it is refused, and for another name it does not connect.
    for (url, has_own, said) in [
        (url.clone(), false, "ertificate"),
        (
            format!("rediss://localhost:{tls_port}/0"),
            true,
            "not valid for name",
        ),
    ] {
        let config = path.join("sidecar/other.toml");
        let text = std::fs::read_to_string(&sidecar.config).expect("a configuration");
        let own = settings(&format!("rediss://127.0.0.1:{tls_port}/0"), path, true);
        let text = text.replace(&own, &settings(&url, path, has_own));
        std::fs::write(&config, text).expect("a configuration");
        let output = sidecar.run(&["--config", &config.display().to_string(), "doctor"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains(said), "{said:?} is missing: {text}");
    }
    assert_eq!(sidecar.stop(), Some(0));
}

#[test]
fn a_cluster_with_tls_is_written_to() {
    let directory = directory();
    let path = directory.path();
    make_certificates(path);
    let tls_ports: Vec<u16> = (0..3).map(|_node| ports::free()).collect();
    let cluster = Cluster::start_with(path, |node| {
        let mut arguments = secured(path, tls_ports[node]);
        // Else nodes name each other's ports without TLS.
        arguments.extend(["--tls-cluster", "yes"].map(str::to_owned));
        arguments
    });
    let url = format!("rediss://127.0.0.1:{}/0", tls_ports[1]);
    let settings = settings(&url, path, true);
    let topology = format!(
        "topology = \"cluster\"\nnodes = [\"127.0.0.1:{}\"]",
        tls_ports[2]
    );
    let sidecar = start(path, &format!("{settings}\n{topology}"));
    assert_publishes(&sidecar, &cluster.nodes);
}

#[test]
fn sentinels_with_passwords_are_asked() {
    let directory = directory();
    let path = directory.path();
    let (master, _replica, sentinels) = Sentinels::start_with_servers(path);
    sentinels.demand_passwords("sidecar", "secret");
    let nodes = sentinels.addresses();
    let settings = format!(
        "url = \"redis://{MASTER}/0\"\ntopology = \"sentinel\"\nnodes = {nodes:?}\n\
         sentinel_user = \"sidecar\"\nsentinel_password = \"secret\""
    );
    let sidecar = start(path, &settings);
    assert_publishes(&sidecar, &[master]);
}
