//! The manifests of `containers/kubernetes`, rendered by kustomize and checked against the API of Kubernetes.

mod network;
mod pods;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::LazyLock;

use serde_json::Value;
use shortlink_tests::workspace;
use tempfile::TempDir;

/// The resources of a kustomization.
pub(crate) struct Resources(Vec<Value>);

impl Resources {
    /// All resources of a kind.
    fn of<'r, 'k>(&'r self, kind: &'k str) -> impl Iterator<Item = &'r Value> + use<'r, 'k> {
        self.0.iter().filter(move |it| it["kind"] == kind)
    }

    /// The resource of a kind with a name, which kustomize may have given a suffix.
    fn get(&self, kind: &str, name: &str) -> &Value {
        let suffixed = format!("{name}-");
        let mut found = self.of(kind).filter(|it| {
            let own = text(&it["metadata"]["name"]);
            own == name || own.strip_prefix(&suffixed).is_some_and(|it| it.len() == 10)
        });
        let first = found.next();
        assert!(found.next().is_none(), "several {kind} {name}");
        first.unwrap_or_else(|| panic!("no {kind} {name}"))
    }

    /// The templates of all pods, by the name of their workload.
    fn templates(&self) -> Vec<(&str, &Value)> {
        let kinds = ["Deployment", "StatefulSet", "Job"];
        let workloads = kinds.iter().flat_map(|kind| self.of(kind));
        workloads
            .map(|it| (text(&it["metadata"]["name"]), &it["spec"]["template"]))
            .collect()
    }
}

/// The installation of the example, and the base, with secrets that its script has made.
pub(crate) static RENDERED: LazyLock<[Resources; 2]> = LazyLock::new(|| {
    let directory = copied();
    let made = Command::new(directory.path().join("example/secrets/init"))
        .env(
            "DATABASE_URL",
            "postgres://shortlink:p@10.20.0.20/shortlink",
        )
        .env("REDIS_PASSWORD", "secret")
        .output()
        .expect("a script");
    assert!(made.status.success(), "{made:?}");
    ["example", "base"].map(|name| {
        let output = render(&directory.path().join(name));
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {complaints}");
        Resources(serde_json::from_slice(&output.stdout).expect("JSON"))
    })
});

fn copied() -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let copied = Command::new("cp")
        .arg("-r")
        .arg(workspace().join("containers/kubernetes/."))
        .arg(directory.path())
        .status();
    assert!(copied.expect("cp").success());
    // Secrets of a checkout that is in use.
    let secrets = fs::read_dir(directory.path().join("example/secrets")).expect("a directory");
    for file in secrets.map(|it| it.expect("a file").path()) {
        if file.file_name().is_some_and(|name| name != "init") {
            fs::remove_file(file).expect("removed");
        }
    }
    directory
}

fn render(directory: &Path) -> Output {
    let script = workspace().join("scripts/kubernetes");
    Command::new(script).arg(directory).output().expect("bash")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns whether labels have all that a selector demands.
fn selects(selector: &Value, labels: &Value) -> bool {
    let equal = selector["matchLabels"].as_object().into_iter().flatten();
    let one_of = list(&selector["matchExpressions"]).iter();
    equal.into_iter().all(|(key, value)| labels[key] == *value)
        && one_of.into_iter().all(|it| {
            assert_eq!(it["operator"], "In", "only In is understood here");
            list(&it["values"]).contains(&labels[text(&it["key"])])
        })
}

#[test]
fn a_wrong_member_and_an_unknown_kind_are_found() {
    for (from, to, complaint) in [
        (
            "terminationGracePeriodSeconds: 30",
            "terminationGraceSeconds: 30",
            "terminationGraceSeconds",
        ),
        ("replicas: 2", "replicas: two", "spec.replicas"),
        ("kind: Deployment", "kind: Deploy", "Deploy"),
    ] {
        let directory = copied();
        let file = directory.path().join("base/sidecar.yaml");
        let manifest = fs::read_to_string(&file).expect("a manifest");
        assert!(manifest.contains(from), "{from}");
        fs::write(&file, manifest.replace(from, to)).expect("written");
        let output = render(&directory.path().join("base"));
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && complaints.contains(complaint),
            "{complaints}"
        );
    }
}

#[test]
fn pods_are_restricted_and_have_requests_and_versions() {
    let [example, base] = &*RENDERED;
    for (workload, template) in example.templates().into_iter().chain(base.templates()) {
        let pod = &template["spec"];
        assert_eq!(pod["automountServiceAccountToken"], false, "{workload}");
        assert_eq!(pod["enableServiceLinks"], false, "{workload}");
        let security = &pod["securityContext"];
        assert_eq!(security["runAsNonRoot"], true, "{workload}");
        assert!(security["runAsUser"].as_u64() > Some(0), "{workload}");
        assert_eq!(
            security["seccompProfile"]["type"], "RuntimeDefault",
            "{workload}"
        );
        for container in list(&pod["containers"]) {
            let name = text(&container["name"]);
            let security = &container["securityContext"];
            assert_eq!(security["allowPrivilegeEscalation"], false, "{name}");
            assert_eq!(security["readOnlyRootFilesystem"], true, "{name}");
            assert_eq!(security["capabilities"]["drop"][0], "ALL", "{name}");
            let (_, tag) = text(&container["image"]).rsplit_once(':').expect("a tag");
            assert_eq!(tag, env!("CARGO_PKG_VERSION"), "{name}");
            for value in ["/requests/cpu", "/requests/memory", "/limits/memory"] {
                assert!(
                    container["resources"].pointer(value).is_some(),
                    "{name} {value}"
                );
            }
        }
    }
}

#[test]
fn references_and_selectors_have_their_counterparts() {
    let [example, _] = &*RENDERED;
    let exists = |kind: &str, name: &Value| {
        assert!(
            example.of(kind).any(|it| it["metadata"]["name"] == *name),
            "no {kind} {name}"
        );
    };
    let templates = example.templates();
    for (workload, template) in &templates {
        let pod = &template["spec"];
        let mut volumes: Vec<&Value> = list(&pod["volumes"]).iter().collect();
        volumes.extend(
            volumes
                .clone()
                .iter()
                .flat_map(|it| list(&it["projected"]["sources"])),
        );
        let from = list(&pod["containers"])
            .iter()
            .flat_map(|it| list(&it["envFrom"]));
        for source in volumes.into_iter().chain(from) {
            let names = [
                ("ConfigMap", "/configMap/name"),
                ("Secret", "/secret/secretName"),
            ];
            let others = [("Secret", "/secret/name"), ("Secret", "/secretRef/name")];
            for (kind, pointer) in names.into_iter().chain(others) {
                if let Some(name) = source.pointer(pointer) {
                    exists(kind, name);
                }
            }
        }
        let workloads = example.of("Deployment").chain(example.of("StatefulSet"));
        for it in workloads.filter(|it| it["metadata"]["name"] == **workload) {
            assert!(
                selects(&it["spec"]["selector"], &template["metadata"]["labels"]),
                "{workload}"
            );
        }
    }
    for budget in example.of("PodDisruptionBudget") {
        let chosen = |labels| selects(&budget["spec"]["selector"], labels);
        assert!(
            templates
                .iter()
                .any(|(_, it)| chosen(&it["metadata"]["labels"])),
            "{budget}"
        );
    }
    for service in example
        .of("Service")
        .filter(|it| it["spec"]["selector"].is_object())
    {
        let selector = serde_json::json!({ "matchLabels": service["spec"]["selector"] });
        let is_behind = |it: &&(&str, &Value)| selects(&selector, &it.1["metadata"]["labels"]);
        let (_, template) = templates.iter().find(is_behind).expect("pods of a service");
        let containers = list(&template["spec"]["containers"]).iter();
        let ports: Vec<&Value> = containers.flat_map(|it| list(&it["ports"])).collect();
        for port in list(&service["spec"]["ports"]) {
            assert!(
                ports.iter().any(|it| it["name"] == port["targetPort"]),
                "{port}"
            );
        }
    }
    let monitors: Vec<&Value> = example.of("ServiceMonitor").collect();
    assert_eq!(monitors.len(), 3);
    for monitor in monitors {
        let selector = &monitor["spec"]["selector"];
        let mut services = example
            .of("Service")
            .filter(|it| selects(selector, &it["metadata"]["labels"]));
        let service = services.next().expect("a service");
        assert!(services.next().is_none(), "each pod is scraped once");
        let port = &monitor["spec"]["endpoints"][0]["port"];
        assert!(
            list(&service["spec"]["ports"])
                .iter()
                .any(|it| it["name"] == *port),
            "{port}"
        );
    }
}

#[test]
fn pods_have_the_time_that_their_programs_need_to_stop() {
    let [example, _] = &*RENDERED;
    let pause = |pod: &Value| {
        let command = &pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"];
        assert_eq!(command[0], "sleep");
        text(&command[1]).parse::<u64>().expect("seconds")
    };
    let sidecar = &example.get("Deployment", "sidecar")["spec"]["template"]["spec"];
    // The default of http.shutdown_grace_ms, and LAST_GRACE of the sidecar.
    let settings = text(&example.get("ConfigMap", "sidecar")["data"]["shortlink.toml"]);
    assert!(!settings.contains("shutdown_grace_ms"), "{settings}");
    let needs = pause(sidecar) + 10 + 3;
    assert!(sidecar["terminationGracePeriodSeconds"].as_u64() > Some(needs));

    let nginx = &example.get("StatefulSet", "nginx")["spec"]["template"]["spec"];
    let settings = text(&example.get("ConfigMap", "nginx")["data"]["nginx.conf"]);
    assert!(settings.contains("\nworker_shutdown_timeout 30s;"));
    assert!(nginx["terminationGracePeriodSeconds"].as_u64() > Some(pause(nginx) + 30));
}

#[test]
fn the_alert_on_refused_changes_is_a_rule_of_prometheus() {
    let [example, _] = &*RENDERED;
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("rules.yml");
    let rules = example.get("PrometheusRule", "shortlink-reload")["spec"].to_string();
    fs::write(&file, rules).expect("written");
    let checked = Command::new("promtool")
        .args(["check", "rules"])
        .arg(&file)
        .output();
    let checked = checked.expect("promtool");
    assert!(checked.status.success(), "{checked:?}");
}

/// The directives of a text at its first level.
fn directives(settings: &str) -> Vec<&str> {
    let lines = settings
        .lines()
        .filter(|it| it.starts_with(|first: char| first.is_ascii_lowercase()));
    let mut found: Vec<&str> = lines
        .map(|it| it.split_once([' ', ';']).expect("a directive").0)
        .filter(|it| *it != "include")
        .collect();
    found.sort_unstable();
    found
}

#[test]
fn the_settings_of_the_module_are_those_of_the_sample() {
    let [_, base] = &*RENDERED;
    let sample = fs::read_to_string(workspace().join("nginx/shortlink.conf")).expect("the sample");
    let settings = text(&base.get("ConfigMap", "nginx")["data"]["shortlink.conf"]);
    // The format of codes is a file of its own here.
    let codes = text(&base.get("ConfigMap", "codes")["data"]["codes.conf"]);
    assert_eq!(
        directives(&format!("{settings}\n{codes}")),
        directives(&sample)
    );
}
