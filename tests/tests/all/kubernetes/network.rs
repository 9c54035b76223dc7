//! The policies of the network allow the connections that the parts need, and no others.

use serde_json::{Value, json};

use super::{RENDERED, Resources, list, selects, text};

/// Returns whether one pod may connect to another.
fn may_connect(resources: &Resources, from: &Value, to: &Value, port: u16) -> bool {
    let passes = |direction: &str, rules: &str, peer: &str, own: &Value, other: &Value| {
        let policies = resources
            .of("NetworkPolicy")
            .map(|it| &it["spec"])
            .filter(|it| {
                selects(&it["podSelector"], own)
                    && list(&it["policyTypes"]).contains(&json!(direction))
            });
        let policies: Vec<&Value> = policies.collect();
        // No policy: everything is allowed.
        policies.is_empty()
            || policies.iter().flat_map(|it| list(&it[rules])).any(|rule| {
                let ports = list(&rule["ports"]);
                let peers = list(&rule[peer]);
                let is_port = |it: &Value| it["port"] == port && it["protocol"] != "UDP";
                let is_peer = |it: &Value| {
                    // A namespace by its name is another one than that of these pods.
                    let is_here = it["namespaceSelector"]["matchLabels"].is_null();
                    it["podSelector"].is_object() && is_here && selects(&it["podSelector"], other)
                };
                (ports.is_empty() || ports.iter().any(is_port))
                    && (peers.is_empty() || peers.iter().any(is_peer))
            })
    };
    passes("Egress", "egress", "to", from, to) && passes("Ingress", "ingress", "from", to, from)
}

#[test]
fn only_the_connections_that_the_parts_need_are_allowed() {
    let [_, base] = &*RENDERED;
    let labels = |name: &str| match name {
        "stranger" => json!({ "app": "other" }),
        "client" => json!({ "shortlink-api": "true" }),
        "redis" | "postgres" => json!({ "app.kubernetes.io/name": name }),
        name => {
            let templates = base.templates();
            let (_, template) = templates
                .iter()
                .find(|it| it.0 == name)
                .expect("a workload");
            template["metadata"]["labels"].clone()
        }
    };
    let parts = [
        "nginx", "sidecar", "migrate", "redis", "postgres", "stranger", "client",
    ];
    let allowed = [
        ("nginx", "redis", 6379),
        ("nginx", "sidecar", 8090),
        ("sidecar", "redis", 6379),
        ("sidecar", "postgres", 5432),
        ("migrate", "postgres", 5432),
        ("client", "nginx", 8081),
        ("client", "nginx", 8080),
        ("stranger", "nginx", 8080),
        // Servers that the policies of this project do not cover.
        ("stranger", "redis", 6379),
        ("stranger", "postgres", 5432),
        ("client", "redis", 6379),
        ("client", "postgres", 5432),
        ("redis", "nginx", 8080),
        ("postgres", "nginx", 8080),
        ("redis", "postgres", 5432),
        ("postgres", "redis", 6379),
    ];
    let ports = [
        ("redis", vec![6379]),
        ("postgres", vec![5432]),
        ("sidecar", vec![8090]),
        ("nginx", vec![8080, 8081, 8082]),
    ];
    for from in parts {
        for (to, ports) in &ports {
            for &port in ports.iter().filter(|_| from != *to) {
                let expected = allowed.contains(&(from, *to, port));
                let found = may_connect(base, &labels(from), &labels(to), port);
                assert_eq!(found, expected, "{from} to {to}:{port}");
            }
        }
    }
}

#[test]
fn the_example_reaches_its_servers_and_prometheus_the_pods() {
    let [example, _] = &*RENDERED;
    let address = text(&example.get("EndpointSlice", "redis")["endpoints"][0]["addresses"][0]);
    for (policy, host) in [("redis", address), ("postgres", "10.20.0.20")] {
        let rules = list(&example.get("NetworkPolicy", policy)["spec"]["egress"]);
        let peers: Vec<&Value> = rules.iter().flat_map(|it| list(&it["to"])).collect();
        assert_eq!(
            peers,
            [&json!({ "ipBlock": { "cidr": format!("{host}/32") } })],
            "{policy}"
        );
    }
    let prometheus = &example.get("NetworkPolicy", "prometheus")["spec"];
    for (_, template) in example.templates().iter().filter(|it| it.0 != "migrate") {
        assert!(selects(
            &prometheus["podSelector"],
            &template["metadata"]["labels"]
        ));
    }
}
