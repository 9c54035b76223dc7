//! The containers of the rendered pods with their mounts, on this machine: the sidecar and nginx accept their
//! configuration, and a changed ConfigMap reloads nginx.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use shortlink_tests::http::{self, Connection};
use shortlink_tests::metrics::Page;
use shortlink_tests::process::Process;
use shortlink_tests::redis::Redis;
use shortlink_tests::sidecar::{self, api};
use shortlink_tests::stack::{directory, text as member};
use shortlink_tests::wait::{SOON, until};
use shortlink_tests::{nginx, ports, workspace};

use super::{RENDERED, Resources, list, text};

/// The file system of a container, below a directory.
struct Root {
    path: PathBuf,
    /// Texts of configuration files that are different here: places and ports.
    replace: Vec<(String, String)>,
}

impl Root {
    fn at(&self, path: &str) -> PathBuf {
        self.path.join(path.trim_start_matches('/'))
    }

    fn fit(&self, content: &str) -> String {
        // Only on IPv4: not every machine has IPv6.
        let lines = content
            .split_inclusive('\n')
            .filter(|it| !it.trim_start().starts_with("listen [::]:"));
        let replaced = |text: String, (from, to): &(String, String)| text.replace(from, to);
        self.replace.iter().fold(lines.collect(), replaced)
    }

    /// Mounts the volumes of a container as kubelet does.
    fn mount(&self, resources: &Resources, pod: &Value, container: &Value) {
        for mount in list(&container["volumeMounts"]) {
            let mut volumes = list(&pod["volumes"]).iter();
            let volume = volumes
                .find(|it| it["name"] == mount["name"])
                .unwrap_or(&Value::Null);
            let files = files_of(resources, volume);
            let place = self.at(text(&mount["mountPath"]));
            if let Some(one) = mount["subPath"].as_str() {
                let (_, content) = files
                    .iter()
                    .find(|it| it.0 == one)
                    .expect("a file of the volume");
                fs::create_dir_all(place.parent().expect("a folder")).expect("a folder");
                fs::write(place, self.fit(content)).expect("a file");
            } else {
                fs::create_dir_all(&place).expect("a folder");
                self.swap(&place, &files);
            }
        }
    }

    /// Replaces the files of a mounted volume, all at once.
    fn swap(&self, place: &Path, files: &[(String, String)]) {
        if files.is_empty() {
            return;
        }
        let data = tempfile::Builder::new()
            .prefix("..")
            .tempdir_in(place)
            .expect("a folder")
            .keep();
        fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).expect("its mode");
        for (name, content) in files {
            fs::write(data.join(name), self.fit(content)).expect("a file");
            let link = place.join(name);
            if !link.is_symlink() {
                let _ = fs::remove_file(&link);
                symlink(Path::new("..data").join(name), link).expect("a link");
            }
        }
        let (temporary, current) = (place.join("..data_tmp"), place.join("..data"));
        let before = fs::read_link(&current).ok();
        symlink(data.file_name().expect("a name"), &temporary).expect("a link");
        fs::rename(&temporary, &current).expect("swapped");
        if let Some(before) = before {
            fs::remove_dir_all(place.join(before)).expect("removed");
        }
    }
}

/// The names and contents of the files of a volume.
fn files_of(resources: &Resources, source: &Value) -> Vec<(String, String)> {
    let named = |kind: &str, name: &Value| {
        resources.get(kind, text(name))["data"]
            .as_object()
            .expect("data")
            .clone()
    };
    let mut files: Vec<_> = list(&source["projected"]["sources"])
        .iter()
        .flat_map(|it| files_of(resources, it))
        .collect();
    if let Some(name) = source.pointer("/configMap/name") {
        let data = named("ConfigMap", name);
        files.extend(
            data.into_iter()
                .map(|(name, content)| (name, text(&content).to_owned())),
        );
    }
    if let Some(name) = source
        .pointer("/secret/secretName")
        .or(source.pointer("/secret/name"))
    {
        files.extend(
            named("Secret", name)
                .into_iter()
                .map(|(name, content)| (name, decoded(&content))),
        );
    }
    files
}

fn decoded(content: &Value) -> String {
    // kustomize wraps its lines.
    let content = text(content).replace('\n', "");
    String::from_utf8(STANDARD.decode(content).expect("base64")).expect("text")
}

/// A pod's template, and its first container.
fn pod_of<'r>(resources: &'r Resources, kind: &str, name: &str) -> (&'r Value, &'r Value) {
    let pod = &resources.get(kind, name)["spec"]["template"]["spec"];
    (pod, &pod["containers"][0])
}

/// The sidecar with the configuration of its pod, on a SQLite file.
struct SidecarPod {
    root: Root,
    port: u16,
    environment: Vec<(String, String)>,
    _process: Option<Process>,
}

impl SidecarPod {
    fn start(resources: &Resources, directory: &Path, redis_port: u16) -> Self {
        let path = directory.join("sidecar");
        let place = format!("{}/etc/shortlink", path.display());
        let root = Root {
            path,
            replace: vec![("/etc/shortlink".to_owned(), place.clone())],
        };
        let (pod, container) = pod_of(resources, "Deployment", "sidecar");
        root.mount(resources, pod, container);
        let secret = text(&container["envFrom"][0]["secretRef"]["name"]);
        let secret = resources.get("Secret", secret)["data"]
            .as_object()
            .expect("data");
        let mut environment: Vec<(String, String)> = secret
            .iter()
            .map(|(name, value)| (name.clone(), decoded(value)))
            .collect();
        for it in list(&container["env"]) {
            environment.push((
                text(&it["name"]).to_owned(),
                text(&it["value"]).replace("/etc/shortlink", &place),
            ));
        }
        let port = ports::free();
        // The image sets the first of them, and the address of Redis has the password of the secret.
        let database = format!("sqlite:{}", directory.join("links.db").display());
        environment.push((
            "SHORTLINK_HTTP__LISTEN".to_owned(),
            format!("127.0.0.1:{port}"),
        ));
        for (name, value) in &mut environment {
            if name == "DATABASE_URL" {
                value.clone_from(&database);
            }
            *value = value.replace("@redis:6379", &format!("@127.0.0.1:{redis_port}"));
        }
        let mut sidecar = Self {
            root,
            port,
            environment,
            _process: None,
        };
        let (_, migrate) = pod_of(resources, "Job", "migrate");
        sidecar.run(&arguments(migrate));
        let mut command = sidecar.command();
        command.args(arguments(container));
        let mut process = Process::start("the sidecar", &command, &sidecar.root.at("log"));
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            let path = text(&container[probe]["httpGet"]["path"]);
            let request = http::request("GET", path, &[], b"");
            process.wait_ready(|| {
                http::try_send(port, "GET", &request).is_ok_and(|answer| answer.status == 200)
            });
        }
        sidecar._process = Some(process);
        sidecar
    }

    fn command(&self) -> Command {
        let mut command = sidecar::program();
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs a command of the program, and returns what it prints.
    fn run(&self, arguments: &[&str]) -> String {
        let output = self.command().args(arguments).output().expect("a program");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout)
            .expect("text")
            .trim()
            .to_owned()
    }
}

fn arguments(container: &Value) -> Vec<&str> {
    list(&container["args"]).iter().map(text).collect()
}

/// The containers of the pod of nginx.
struct NginxPod {
    root: Root,
    public: u16,
    internal: u16,
    state: u16,
    _nginx: Option<Process>,
    reload: Option<Process>,
}

impl NginxPod {
    /// Lays out the files of the image, and mounts the volumes over them.
    fn prepare(resources: &Resources, directory: &Path, redis: u16, sidecar: u16) -> Self {
        let path = directory.join("nginx");
        let [public, internal, state] = [(); 3].map(|()| ports::free());
        let below = |place: &str| (place.to_owned(), format!("{}{place}", path.display()));
        let replace = vec![
            below("/etc/nginx/"),
            below("/run/"),
            below("/var/spool/"),
            (
                "/dev/stdout".to_owned(),
                path.join("access.log").display().to_string(),
            ),
            (
                "modules/ngx_http_shortlink_module.so".to_owned(),
                nginx::module().display().to_string(),
            ),
            (
                "listen 8080".to_owned(),
                format!("listen 127.0.0.1:{public}"),
            ),
            (
                "listen 8081".to_owned(),
                format!("listen 127.0.0.1:{internal}"),
            ),
            (
                "listen 8082".to_owned(),
                format!("listen 127.0.0.1:{state}"),
            ),
            ("redis:6379".to_owned(), format!("127.0.0.1:{redis}")),
            ("sidecar:8090".to_owned(), format!("127.0.0.1:{sidecar}")),
            ("events {".to_owned(), format!("{}events {{", user())),
        ];
        let root = Root { path, replace };
        let (pod, container) = pod_of(resources, "StatefulSet", "nginx");
        root.lay_out_image();
        root.mount(resources, pod, container);
        Self {
            root,
            public,
            internal,
            state,
            _nginx: None,
            reload: None,
        }
    }

    fn start(&mut self, resources: &Resources) {
        let (pod, container) = pod_of(resources, "StatefulSet", "nginx");
        let run = arguments(container);
        assert_eq!(run[0], "nginx");
        let mut command = Command::new(self.root.at("bin/nginx"));
        command.args(&run[1..]);
        let mut process = Process::start("nginx", &command, &self.root.at("nginx.log"));
        let state = self.state;
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            let request =
                http::request("GET", text(&container[probe]["httpGet"]["path"]), &[], b"");
            process.wait_ready(|| {
                http::try_send(state, "GET", &request).is_ok_and(|answer| answer.status == 200)
            });
        }
        self._nginx = Some(process);

        let reload = &pod["containers"][1];
        assert_eq!(reload["volumeMounts"], container["volumeMounts"]);
        assert_eq!(pod["shareProcessNamespace"], true);
        let run = arguments(reload);
        let mut command = Command::new(workspace().join("containers").join(run[0]));
        command.args(run[1..].iter().map(|it| self.root.at(it)));
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.root.at("bin").display()));
        command
            .env("RUN_DIRECTORY", self.root.at("run/nginx"))
            .env("RELOAD_INTERVAL_S", "0.1");
        self.reload = Some(Process::start(
            "reload-on-change",
            &command,
            &self.root.at("reload.log"),
        ));
    }

    /// Changes the ConfigMap of the domains.
    fn set_domains(&self, table: &str) {
        let content = format!("shortlink_domains {{\n{table}\n}}\n");
        let files = [("domains.conf".to_owned(), content)];
        self.root.swap(&self.root.at("etc/nginx/domains"), &files);
    }

    /// The status of a code on a short domain; `None` if nginx does not answer for it.
    fn follow(&self, host: &str, code: &str) -> Option<u16> {
        let mut connection = Connection::open(self.public).expect("a connection");
        let request = http::request("GET", &format!("/{code}"), &[("Host", host)], b"");
        connection.send(&request).expect("sent");
        // A worker that has just ended may reset the connection.
        connection
            .receive("GET")
            .ok()
            .flatten()
            .map(|answer| answer.status)
    }

    /// Returns whether the last change is refused, and the time of the last reload.
    fn state(&self) -> (bool, f64) {
        let page = http::get(self.state, "/metrics");
        let page = Page::read(&String::from_utf8_lossy(&page.body));
        let is_refused = page.sum("shortlink_reload_refused") == 1.0;
        (
            is_refused,
            page.sum("shortlink_reload_last_success_seconds"),
        )
    }

    fn reloads(&self) -> usize {
        self.log().matches("reload-on-change: reloaded").count()
    }

    fn log(&self) -> String {
        self.reload.as_ref().expect("started").log()
    }
}

/// The directive `user`, where the tests run as root: workers must reach the temporary directory.
fn user() -> &'static str {
    if nix::unistd::geteuid().is_root() {
        "user root;\n"
    } else {
        ""
    }
}

impl Root {
    /// Makes `/etc/nginx` as `nginx.Containerfile` does, and a program `nginx` that uses it.
    fn lay_out_image(&self) {
        let (conf, bin) = (self.at("etc/nginx"), self.at("bin"));
        let script = "set -e\n\
            mkdir -p \"$CONF/shortlink\" \"$BIN\"\n\
            cp nginx/shortlink.conf nginx/pages.conf nginx/public.conf nginx/tls.conf nginx/http*.conf nginx/internal.conf \"$CONF/shortlink/\"\n\
            cp -r nginx/pages \"$CONF/shortlink/pages\"\n\
            scripts/fit-nginx \"$CONF/shortlink\" \"$NGINX\"\n\
            containers/fit-configuration \"$CONF\"\n\
            printf '#!/bin/sh\\nexec %s -p %s -c %s/nginx.conf \"$@\"\\n' \"$NGINX\" \"$CONF\" \"$CONF\" >\"$BIN/nginx\"\n\
            chmod 755 \"$BIN/nginx\"";
        let path = std::env::var("PATH").unwrap_or_default();
        let done = Command::new("bash")
            .args(["-c", script])
            .current_dir(workspace())
            .env("CONF", &conf)
            .env("BIN", bin)
            .env("NGINX", nginx::program())
            .env("PATH", format!("{path}:/usr/sbin:/sbin"))
            .output()
            .expect("bash");
        assert!(done.status.success(), "{done:?}");
        for file in fs::read_dir(conf.join("shortlink")).expect("a folder") {
            let file = file.expect("a file").path();
            if file.extension().is_some_and(|it| it == "conf") {
                let content = fs::read_to_string(&file).expect("a file");
                fs::write(&file, self.fit(&content)).expect("a file");
            }
        }
    }
}

#[test]
fn the_pods_serve_and_a_changed_configmap_reloads_nginx() {
    let [resources, _] = &*RENDERED;
    let directory = directory();
    let redis = Redis::start(&directory.path().join("redis"), ports::free());
    redis.command(&["CONFIG", "SET", "requirepass", "secret"]);
    let sidecar = SidecarPod::start(resources, directory.path(), redis.port);
    let mut pod = NginxPod::prepare(resources, directory.path(), redis.port, sidecar.port);
    let tested = Command::new(pod.root.at("bin/nginx"))
        .arg("-t")
        .output()
        .expect("nginx");
    assert!(
        tested.status.success(),
        "{}",
        String::from_utf8_lossy(&tested.stderr)
    );
    pod.start(resources);
    until("the first reload", SOON, || {
        pod.reloads() == 1 && pod.state().1 > 0.0
    });

    // The file of the example: both programs agree on codes, passwords and the secret of the proxy.
    let key = sidecar.run(&["keys", "create", "--name", "test", "--scope", "links:write"]);
    let body = json!({ "longUrl": "https://target.example/" });
    let made = api(pod.internal, &key, "POST", "/v1/links", Some(&body));
    assert_eq!(made.status, 201, "{made:?}");
    let made = made.json();
    let code = member(&made, "shortCode");
    assert_eq!(
        member(&made, "shortUrl"),
        format!("https://s.example.com/{code}")
    );
    assert_eq!(pod.follow("s.example.com", &code), Some(302));
    assert_eq!(pod.follow("new.example", &code), None);

    let swapped = "new.example active;\ns.example.com serving;";
    pod.set_domains(swapped);
    until("the new domain redirects", SOON, || {
        pod.follow("new.example", &code) == Some(302)
    });
    until("the second reload is noted", SOON, || pod.reloads() == 2);
    assert!(!pod.state().0);

    // Refused: the old one goes on, and it is visible.
    pod.set_domains("new.example nonsense;");
    until("the change is refused", SOON, || pod.state().0);
    assert!(pod.log().contains("nonsense"), "{}", pod.log());
    assert_eq!(pod.follow("new.example", &code), Some(302));

    // The same content in other files is no change.
    pod.set_domains(swapped);
    until("nothing is refused any more", SOON, || !pod.state().0);
    assert_eq!(pod.reloads(), 2, "{}", pod.log());

    pod.set_domains("last.example active;");
    until("the last domain redirects", SOON, || {
        pod.follow("last.example", &code) == Some(302)
    });
    until("the third reload is noted", SOON, || pod.reloads() == 3);
    until("the old domain is gone", SOON, || {
        pod.follow("new.example", &code).is_none()
    });

    let mut reload = pod.reload.take().expect("started");
    // The stop signal of the image.
    reload.signal(Signal::SIGQUIT);
    assert_eq!(reload.wait(SOON).code(), Some(0));
}

#[test]
fn a_wrong_directive_in_the_configmap_is_found() {
    let [resources, _] = &*RENDERED;
    let directory = directory();
    let pod = NginxPod::prepare(resources, directory.path(), ports::free(), ports::free());
    let file = pod.root.at("etc/nginx/shortlink/shortlink.conf");
    let settings = fs::read_to_string(&file).expect("settings");
    fs::write(
        &file,
        settings.replace("shortlink_cache 32m", "shortlink_cache 32x"),
    )
    .expect("written");
    let tested = Command::new(pod.root.at("bin/nginx"))
        .arg("-t")
        .output()
        .expect("nginx");
    let complaints = String::from_utf8_lossy(&tested.stderr);
    assert!(
        !tested.status.success() && complaints.contains("32x"),
        "{complaints}"
    );
}
