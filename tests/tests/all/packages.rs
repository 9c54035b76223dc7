//! The Debian packages, in a throw-away Debian: what an operator does with them.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use serde_json::json;
use shortlink_tests::debian::{Debian, packages, said};
use shortlink_tests::process::Process;
use shortlink_tests::sidecar::api;
use shortlink_tests::wait::{OverAtEnd, SOON, until};
use shortlink_tests::{http, ports, stack};

const MODULE: &str = "/usr/lib/nginx/modules/ngx_http_shortlink_module.so";
const MODULE_LINK: &str = "/etc/nginx/modules-enabled/50-mod-http-shortlink.conf";
const SITE: &str = "/etc/nginx/conf.d/shortlink.conf";
const DOMAINS: &str = "/etc/nginx/shortlink/domains.conf";
const DATABASE: &str = "/var/lib/shortlink/elsewhere.db";

/// The files of the packages: path, owner and group, mode.
const FILES: [(&str, &str, u32); 24] = [
    ("/usr/share/doc/shortlink/README.md", "root:root", 0o644),
    (
        "/usr/share/doc/shortlink/docs/src/operations/doctor.md",
        "root:root",
        0o644,
    ),
    ("/usr/bin/shortlink", "root:root", 0o755),
    ("/usr/sbin/shortlink-admin", "root:root", 0o755),
    ("/lib/systemd/system/shortlink.service", "root:root", 0o644),
    (
        "/lib/systemd/system/shortlink-migrate.service",
        "root:root",
        0o644,
    ),
    ("/etc/shortlink/shortlink.toml", "root:root", 0o644),
    ("/etc/shortlink/shortlink.env", "root:root", 0o600),
    ("/var/lib/shortlink", "shortlink:shortlink", 0o700),
    ("/usr/share/man/man1/shortlink.1.gz", "root:root", 0o644),
    (
        "/usr/share/man/man1/shortlink-links-import.1.gz",
        "root:root",
        0o644,
    ),
    (
        "/usr/share/man/man1/shortlink-doctor.1.gz",
        "root:root",
        0o644,
    ),
    (
        "/usr/share/bash-completion/completions/shortlink",
        "root:root",
        0o644,
    ),
    (
        "/usr/share/zsh/vendor-completions/_shortlink",
        "root:root",
        0o644,
    ),
    (
        "/usr/share/fish/vendor_completions.d/shortlink.fish",
        "root:root",
        0o644,
    ),
    ("/usr/share/doc/shortlink/copyright", "root:root", 0o644),
    (
        "/usr/share/doc/shortlink/config.default.toml.gz",
        "root:root",
        0o644,
    ),
    (MODULE, "root:root", 0o644),
    (
        "/usr/share/nginx/modules-available/mod-http-shortlink.conf",
        "root:root",
        0o644,
    ),
    (
        "/lib/systemd/system/nginx.service.d/10-shortlink.conf",
        "root:root",
        0o644,
    ),
    (DOMAINS, "root:root", 0o644),
    ("/etc/nginx/shortlink/shortlink.conf", "root:root", 0o644),
    ("/etc/nginx/shortlink/public.conf", "root:root", 0o644),
    ("/etc/nginx/shortlink/internal.conf", "root:root", 0o644),
];

/// Runs apt-get. It needs no network: what packages depend on is there.
fn apt(debian: &Debian, arguments: &[&str]) -> String {
    let mut whole = vec!["-y", "-o", "Dpkg::Options::=--force-confold"];
    whole.extend(arguments);
    debian.said("apt-get", &whole)
}

/// Copies packages into the system and installs them.
fn install(debian: &Debian, packages: &[PathBuf]) -> String {
    let mut inside = Vec::new();
    for package in packages {
        let name = package.file_name().expect("a name").to_string_lossy();
        let path = format!("/tmp/{name}");
        fs::copy(package, debian.outside(&path)).expect("a copy");
        inside.push(path);
    }
    let mut arguments = vec!["install"];
    arguments.extend(inside.iter().map(String::as_str));
    apt(debian, &arguments)
}

/// The packages as their next version might be: other bytes, other samples.
fn next_version(from: &Path, into: &Path) -> PathBuf {
    let tree = into.join("tree");
    said(Command::new("dpkg-deb").arg("-R").args([from, &tree]));
    let control = tree.join("DEBIAN/control");
    let text = fs::read_to_string(&control).expect("control");
    let version = text.lines().find_map(|line| line.strip_prefix("Version: "));
    let version = version.expect("a version").to_owned();
    let text = text.replace(&version, &format!("{version}+next"));
    fs::write(&control, text).expect("control");
    let domains = tree.join("etc/nginx/shortlink/domains.conf");
    if domains.exists() {
        let text = fs::read_to_string(&domains).expect("a sample");
        fs::write(&domains, format!("# Another sample.\n{text}")).expect("a sample");
    }
    let package = into.join(from.file_name().expect("a name"));
    said(
        Command::new("dpkg-deb")
            .args(["--root-owner-group", "-b"])
            .args([&tree, &package]),
    );
    fs::remove_dir_all(&tree).expect("a tree");
    package
}

fn exists(debian: &Debian, path: &str) -> bool {
    debian.outside(path).symlink_metadata().is_ok()
}

fn check_files(debian: &Debian) {
    let owners = |kind: &str, id: u32| {
        let text = debian.read(&format!("/etc/{kind}"));
        let mut lines = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let line = lines.find(|fields| fields[2] == id.to_string());
        line.map_or_else(|| id.to_string(), |fields| fields[0].to_owned())
    };
    for (path, owner, mode) in FILES {
        let found = fs::symlink_metadata(debian.outside(path));
        let found = found.unwrap_or_else(|error| panic!("{path}: {error}"));
        let who = [owners("passwd", found.uid()), owners("group", found.gid())].join(":");
        let found = (who, found.permissions().mode() & 0o7777);
        assert_eq!(found, (owner.to_owned(), mode), "{path}");
    }
    let links = [
        (
            MODULE_LINK,
            "/usr/share/nginx/modules-available/mod-http-shortlink.conf",
        ),
        (
            "/etc/systemd/system/multi-user.target.wants/shortlink.service",
            "/usr/lib/systemd/system/shortlink.service",
        ),
    ];
    for (link, to) in links {
        // Up to Debian 12 it is named by way of the link `/lib`.
        assert_eq!(debian.said("readlink", &["-f", link]).trim(), to, "{link}");
    }
    let user = debian.read("/etc/passwd");
    let user = user.lines().find(|line| line.starts_with("shortlink:"));
    let user = user.expect("a user");
    assert!(
        user.ends_with(":/var/lib/shortlink:/usr/sbin/nologin"),
        "{user}"
    );
    // Nothing is served before the operator says so.
    assert!(!exists(debian, SITE));
    debian.said("nginx", &["-t"]);
    // 40 MB; with debug information it would be 140.
    let program = fs::metadata(debian.outside("/usr/bin/shortlink")).expect("a program");
    assert!(program.len() <= 50_000_000, "{}", program.len());
}

fn check_units(debian: &Debian) {
    let units = [
        "shortlink.service",
        "shortlink-migrate.service",
        "nginx.service",
    ];
    let verified = debian.said(
        "systemd-analyze",
        &[&["verify", "--man=no"][..], &units[..]].concat(),
    );
    assert_eq!(verified, "");
    for unit in &units[..2] {
        // In tenths.
        debian.said(
            "systemd-analyze",
            &[
                "security",
                "--offline=true",
                "--threshold=20",
                "--no-pager",
                unit,
            ],
        );
    }
    let service = debian.read("/lib/systemd/system/shortlink.service");
    for line in [
        "Requires=shortlink-migrate.service",
        "After=shortlink-migrate.service",
        "Type=exec",
        "Restart=on-failure",
    ] {
        assert!(service.lines().any(|found| found == line), "{line}");
    }
    // nginx starts and restarts whatever becomes of the others.
    let drop_in = debian.read("/lib/systemd/system/nginx.service.d/10-shortlink.conf");
    for name in [
        "Requires",
        "BindsTo",
        "Requisite",
        "PartOf",
        "After",
        "Exec",
        "Assert",
        "Condition",
    ] {
        let mut lines = drop_in.lines();
        assert!(
            !lines.any(|line| line.starts_with(name)),
            "{name} in\n{drop_in}"
        );
    }
}

/// The ports of the servers.
struct Ports {
    public: u16,
    internal: u16,
    sidecar: u16,
    redis: u16,
}

/// Edits the configuration as it is installed: free ports, and a database that only the file with
/// secrets names.
fn configure(debian: &Debian) -> Ports {
    let ports = Ports {
        public: ports::free(),
        internal: ports::free(),
        sidecar: ports::free(),
        redis: ports::free(),
    };
    let sidecar = format!("127.0.0.1:{}", ports.sidecar);
    let redis = format!("127.0.0.1:{}", ports.redis);
    debian.edit(
        "/etc/shortlink/shortlink.toml",
        &[("127.0.0.1:8090", &sidecar), ("127.0.0.1:6379", &redis)],
    );
    debian.edit(
        "/etc/shortlink/shortlink.env",
        &[(
            "#DATABASE_URL=postgres:",
            &format!("DATABASE_URL=\"sqlite:{DATABASE}\"\n#DATABASE_URL=postgres:"),
        )],
    );
    debian.edit(
        "/etc/nginx/shortlink/shortlink.conf",
        &[
            ("127.0.0.1:8090", &sidecar),
            ("127.0.0.1:6379", &redis),
            // So that no request goes to the sidecar, which is away at times, when the machine stalls.
            ("budget   50ms", "budget   2s"),
        ],
    );
    let public = format!("listen {}", ports.public);
    let public_v6 = format!("listen [::]:{}", ports.public);
    let has_v6 = fs::read_to_string("/proc/net/if_inet6").is_ok_and(|text| !text.is_empty());
    let public_v6 = if has_v6 {
        public_v6
    } else {
        format!("#{public_v6}")
    };
    debian.edit(
        "/etc/nginx/shortlink/public.conf",
        &[("listen [::]:8080", &public_v6), ("listen 8080", &public)],
    );
    debian.edit(
        "/etc/nginx/shortlink/internal.conf",
        &[("127.0.0.1:8081", &format!("127.0.0.1:{}", ports.internal))],
    );
    debian.edit(DOMAINS, &[("port=8080", &format!("port={}", ports.public))]);
    // Debian's own page, which would listen on port 80.
    fs::remove_file(debian.outside("/etc/nginx/sites-enabled/default")).expect("Debian's page");
    // As the book says.
    debian.link("../shortlink/shortlink.conf", SITE);
    debian.said("nginx", &["-t"]);
    ports
}

fn start_redis(debian: &Debian, port: u16) -> Process {
    let port_text = port.to_string();
    let command = debian.command(
        "setpriv",
        &[
            &["--reuid", "redis", "--regid", "redis", "--clear-groups"][..],
            &[
                "redis-server",
                "--port",
                &port_text,
                "--bind",
                "127.0.0.1",
                "--dir",
                "/tmp",
            ][..],
        ]
        .concat(),
    );
    let mut redis = debian.start_server("redis", &command);
    redis.wait_ready(|| http::Connection::open(port).is_ok());
    redis
}

fn start_sidecar(debian: &Debian, port: u16) -> Process {
    said(&mut debian.command_of_unit("shortlink-migrate.service"));
    let mut sidecar = debian.start_server("sidecar", &debian.command_of_unit("shortlink.service"));
    let ready = http::request("GET", "/readyz", &[], b"");
    sidecar.wait_ready(|| {
        http::try_send(port, "GET", &ready).is_ok_and(|answer| answer.status == 200)
    });
    sidecar
}

/// The process id that nginx' pid file has, as it is in the system.
fn nginx_master(debian: &Debian) -> String {
    fs::read_to_string(debian.outside("/run/nginx.pid"))
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Returns whether all processes that have the module mapped have the file that is there now.
fn runs_module_that_is_there(debian: &Debian) -> bool {
    let mut mapped = 0;
    for pid in debian.processes() {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        for line in maps
            .lines()
            .filter(|line| line.contains("shortlink_module.so"))
        {
            mapped += 1;
            if line.ends_with("(deleted)") {
                return false;
            }
        }
    }
    mapped > 0
}

/// Installs newer packages while a link is followed; not one request may fail.
fn upgrade_under_load(debian: &Debian, ports: &Ports, code: &str) {
    let directory = stack::directory();
    let next = packages().map(|package| next_version(&package, directory.path()));
    let before = nginx_master(debian);
    let domains = debian.read(DOMAINS);
    let (over, followed) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let _over = OverAtEnd(&over);
        let client = scope.spawn(|| {
            let request = http::request("GET", &format!("/{code}"), &[], b"");
            while !over.load(Ordering::SeqCst) {
                let answer = http::try_send(ports.public, "GET", &request);
                let answer = answer.expect("an answer while nginx is upgraded");
                assert_eq!(answer.status, 302);
                followed.fetch_add(1, Ordering::SeqCst);
            }
        });
        let said = install(debian, &next);
        until("nginx has loaded the new module", SOON, || {
            assert!(!client.is_finished(), "a request has failed");
            nginx_master(debian) != before && runs_module_that_is_there(debian)
        });
        assert!(!said.contains("could not be upgraded"), "{said}");
        let (seen, enough) = (followed.load(Ordering::SeqCst), 100);
        until("the new workers answer", SOON, || {
            assert!(!client.is_finished(), "a request has failed");
            followed.load(Ordering::SeqCst) >= seen + enough
        });
    });
    let version = debian.said("dpkg-query", &["-W", "-f", "${Version}\n", "shortlink"]);
    assert!(version.trim().ends_with("+next"), "{version}");
    assert_eq!(debian.read(DOMAINS), domains);
    assert!(
        debian
            .read(&format!("{DOMAINS}.dpkg-dist"))
            .starts_with("# Another sample.")
    );
    check_secrets_are_kept(debian);
}

fn check_secrets_are_kept(debian: &Debian) {
    let secrets = fs::metadata(debian.outside("/etc/shortlink/shortlink.env")).expect("the file");
    assert_eq!(secrets.permissions().mode() & 0o7777, 0o600);
    assert!(
        debian
            .read("/etc/shortlink/shortlink.env")
            .contains(DATABASE)
    );
}

/// All paths of the system that speak of the project, but for packages that were copied there.
fn traces(debian: &Debian) -> Vec<String> {
    let found = debian.said("find", &["/", "-xdev", "-iname", "*shortlink*"]);
    let paths = found.lines().filter(|path| !path.ends_with(".deb"));
    paths.map(str::to_owned).collect()
}

#[test]
fn they_are_installed_used_upgraded_removed_and_purged() {
    let debian = Debian::start();
    install(&debian, &packages());
    check_files(&debian);
    check_units(&debian);

    let ports = configure(&debian);
    let redis = start_redis(&debian, ports.redis);
    let sidecar = start_sidecar(&debian, ports.sidecar);
    let scopes = ["--scope", "links:write", "--scope", "links:read"];
    let mut key = debian.command(
        "shortlink-admin",
        &[&["keys", "create", "--name", "shop"][..], &scopes[..]].concat(),
    );
    let key = key.output().expect("shortlink-admin can be run");
    assert!(key.status.success(), "{key:?}");
    let key = String::from_utf8(key.stdout).expect("a key");
    debian.said("service", &["nginx", "start"]);

    let link = api(
        ports.internal,
        key.trim(),
        "POST",
        "/v1/links",
        Some(&json!({ "longUrl": "https://www.example.com/spring" })),
    );
    assert_eq!(
        link.status,
        201,
        "{:?}",
        String::from_utf8_lossy(&link.body)
    );
    let code = stack::text(&link.json(), "shortCode");
    let url = stack::text(&link.json(), "shortUrl");
    assert_eq!(url, format!("http://localhost:{}/{code}", ports.public));
    let answer = http::get(ports.public, &format!("/{code}"));
    assert_eq!(answer.location(), Some("https://www.example.com/spring"));
    // Only the service may read it.
    let database = fs::metadata(debian.outside(DATABASE)).expect("the database");
    let folder = fs::metadata(debian.outside("/var/lib/shortlink")).expect("the folder");
    assert_eq!(database.uid(), folder.uid());
    assert_eq!(database.permissions().mode() & 0o7777, 0o600);
    // Visits that can't be sent wait where the workers may write.
    let spool = fs::metadata(debian.outside("/var/lib/nginx/shortlink")).expect("a spool");
    assert_ne!(spool.uid(), 0);

    upgrade_under_load(&debian, &ports, &code);

    // Without the sidecar nginx goes on.
    drop(sidecar);
    assert_eq!(http::get(ports.public, &format!("/{code}")).status, 302);

    let names = ["shortlink", "libnginx-mod-http-shortlink"];
    apt(&debian, &["remove", names[0], names[1]]);
    for gone in [
        MODULE,
        MODULE_LINK,
        SITE,
        "/usr/bin/shortlink",
        "/lib/systemd/system/shortlink.service",
    ] {
        assert!(!exists(&debian, gone), "{gone}");
    }
    debian.said("nginx", &["-t"]);
    until("nginx has let go of the site", SOON, || {
        http::Connection::open(ports.public).is_err()
    });
    for kept in [DATABASE, DOMAINS, "/etc/shortlink/shortlink.toml"] {
        assert!(exists(&debian, kept), "{kept}");
    }

    // A new installation finds the old state.
    install(&debian, &packages());
    assert!(exists(&debian, SITE) && exists(&debian, MODULE_LINK));
    until("nginx serves the site again", SOON, || {
        http::Connection::open(ports.public).is_ok()
    });
    assert_eq!(http::get(ports.public, &format!("/{code}")).status, 302);
    check_secrets_are_kept(&debian);

    apt(&debian, &["purge", names[0], names[1]]);
    assert_eq!(traces(&debian), [""; 0]);
    debian.said("nginx", &["-t"]);

    let processes = debian.processes();
    assert!(processes.len() > 2, "{processes:?}");
    drop((redis, debian));
    until("no process is left", SOON, || {
        let mut all = processes.iter();
        all.all(|pid| nix::sys::signal::kill(*pid, None).is_err())
    });
}
