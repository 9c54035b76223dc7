//! Each short domain has its own certificate, and one file says where they are.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use shortlink_tests::nginx::Nginx;
use shortlink_tests::stack::Stack;

/// The lines about certificates, with the directory `live` beside the configuration.
const LINES: &str = "certificate live/*/fullchain.pem;\ncertificate_key live/*/privkey.pem;";

/// Writes the table of domains, with these files of certificates.
pub(super) fn set_domains(nginx: &Nginx, table: &str) {
    let text = format!("shortlink_domains {{\n{LINES}\n{table}\n}}\n");
    fs::write(nginx.file("domains.conf"), text).expect("domains.conf");
}

/// Turns HTTPS on, as a user does with the first certificate; nginx must be reloaded.
pub(super) fn turn_on_tls(nginx: &Nginx) {
    nginx.edit("public.conf", "# include tls.conf;", "include tls.conf;");
}

/// Makes a certificate for names that ends in so many days, under the first of them. One that is
/// there is replaced, as those who renew do it: nginx since 1.27.4 takes a file of the same inode
/// and the same second for the one it has read.
pub(super) fn make_certificate(live: &Path, names: &[&str], days: u32) {
    let directory = live.join(names[0].trim_start_matches("*."));
    fs::create_dir_all(&directory).expect("a directory");
    let alternatives: Vec<String> = names.iter().map(|name| format!("DNS:{name}")).collect();
    let made = Command::new("openssl")
        .args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes".split(' '))
        .args(["-keyout", "privkey.pem.new", "-out", "fullchain.pem.new"])
        .args(["-subj", &format!("/CN={}", names[0])])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .args([
            "-addext",
            &format!("subjectAltName={}", alternatives.join(",")),
        ])
        .args(["-days", &days.to_string()])
        .current_dir(&directory)
        .output()
        .expect("openssl");
    assert!(made.status.success(), "{made:?}");
    for file in ["privkey.pem", "fullchain.pem"] {
        let made = directory.join(file).with_extension("pem.new");
        fs::rename(made, directory.join(file)).expect("a certificate");
    }
}

/// Asks over HTTP/2 and TLS, trusting only one certificate; answers status, version and location.
pub(super) fn ask(port: u16, host: &str, path: &str, trusted: &Path) -> Result<String, String> {
    let output = Command::new("curl")
        .args(["-sS", "--http2", "--max-time", "10", "-o", "/dev/null"])
        .args(["-w", "%{http_code} %{http_version} %{redirect_url}"])
        .args(["--resolve", &format!("{host}:{port}:127.0.0.1")])
        .arg("--cacert")
        .arg(trusted)
        .arg(format!("https://{host}:{port}{path}"))
        .output()
        .expect("curl");
    let said = |bytes| String::from_utf8(bytes).expect("text");
    if output.status.success() {
        Ok(said(output.stdout))
    } else {
        Err(said(output.stderr))
    }
}

#[test]
fn each_domain_shows_its_own_certificate() {
    let stack = Stack::start();
    let port = stack.nginx.tls_port;
    let code = stack.link("https://target.example/");
    let path = format!("/{code}");
    let live = stack.nginx.file("live");
    make_certificate(&live, &["a.example"], 90);
    make_certificate(&live, &["*.w.example"], 90);
    make_certificate(&live, &["many.example", "x.example"], 90);
    set_domains(
        &stack.nginx,
        "a.example active;\nb.example serving;\n*.w.example serving;\nmany.example serving;\n\
         x.example serving certificate=many.example;\ngone.example retired certificate=a.example;",
    );
    turn_on_tls(&stack.nginx);
    let tested = stack.nginx.test_configuration();
    let said = String::from_utf8(tested.stderr).expect("text");
    assert!(tested.status.success(), "{said}");
    // The missing one is reported, and the rest works.
    assert!(
        said.contains("[warn]") && said.contains("\"b.example\""),
        "{said}"
    );
    stack.nginx.reload();

    let file = |name: &str| live.join(name).join("fullchain.pem");
    let followed = Ok("302 2 https://target.example/".to_owned());
    for (host, name) in [
        ("a.example", "a.example"),
        ("A.Example", "a.example"),
        ("one.w.example", "w.example"),
        ("many.example", "many.example"),
        ("x.example", "many.example"),
    ] {
        assert_eq!(ask(port, host, &path, &file(name)), followed, "{host}");
    }
    // A domain without a certificate and an unlisted one get no handshake.
    for host in ["b.example", "unlisted.example"] {
        let refused = ask(port, host, &path, &file("a.example")).expect_err(host);
        assert!(refused.contains("alert"), "{host}: {refused}");
    }
    // Plain HTTP is answered as it is.
    let headers = [("Host", "b.example")];
    let plain = shortlink_tests::http::send(stack.nginx.public_port, "GET", &path, &headers);
    assert_eq!(plain.location(), Some("https://target.example/"));

    // A certificate that comes, or is renewed, is there after a reload.
    make_certificate(&live, &["b.example"], 90);
    make_certificate(&live, &["a.example"], 90);
    stack.nginx.reload();
    for host in ["a.example", "b.example"] {
        assert_eq!(ask(port, host, &path, &file(host)), followed, "{host}");
    }

    // One that is there and no good is refused before it does harm.
    fs::write(live.join("b.example/privkey.pem"), "no key").expect("a key");
    let tested = stack.nginx.test_configuration();
    let said = String::from_utf8(tested.stderr).expect("text");
    assert!(
        !tested.status.success() && said.contains("b.example/privkey.pem"),
        "{said}"
    );
    assert!(said.contains("domains.conf:"), "{said}");
    assert_eq!(stack.nginx.complaints(&["[emerg]"]), [""; 0]);
}

fn check(stack: &Stack, more: &[&str]) -> Output {
    let file = stack.nginx.file("domains.conf").display().to_string();
    let words = [&["domains", "check", &file], more].concat();
    stack.sidecar.run(&words)
}

#[test]
fn the_table_is_checked_before_it_is_live() {
    let stack = Stack::start();
    let live = stack.nginx.file("live");
    make_certificate(&live, &["a.example"], 90);
    make_certificate(&live, &["soon.example"], 5);
    make_certificate(&live, &["other.example"], 90);
    set_domains(
        &stack.nginx,
        "a.example active weight=2 port=8443;\nlocalhost serving unknown=https://a.b/;",
    );
    let output = check(&stack, &[]);
    let said = String::from_utf8(output.stdout).expect("text");
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("https://a.example:8443, weight 2"), "{said}");
    assert!(
        said.contains("unknown codes redirect to https://a.b/"),
        "{said}"
    );

    set_domains(
        &stack.nginx,
        "a.example active;\nsoon.example serving unknown=https://a.b/;\nnone.example serving;\n\
         wrong.example retired certificate=other.example page=gone.html;",
    );
    let output = check(&stack, &["--json"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let concerns: Vec<&str> = told["concerns"]
        .as_array()
        .expect("concerns")
        .iter()
        .map(|it| it.as_str().expect("text"))
        .collect();
    for (concern, parts) in concerns.iter().zip([
        ["soon.example:", "in 4 days"],
        ["none.example:", "live/none.example/fullchain.pem"],
        ["wrong.example:", "but for other.example"],
        ["wrong.example:", "gone.html"],
    ]) {
        for part in parts {
            assert!(concern.contains(part), "{part}: {concerns:?}");
        }
    }
    assert_eq!(concerns.len(), 4, "{concerns:?}");
    assert_eq!(told["domains"][0]["visitsLastHour"], json!(0));
    assert_eq!(told["domains"][1]["unknownTarget"], json!("https://a.b/"));
    assert_eq!(told["domains"][3]["state"], json!("retired"));

    // Faults that nginx would refuse, in the same words.
    set_domains(&stack.nginx, "a.example active;\na.example serving;");
    let output = check(&stack, &[]);
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{said}");
    let refused = stack.nginx.test_configuration();
    let by_nginx = String::from_utf8(refused.stderr).expect("text");
    for said in [said, by_nginx] {
        assert!(
            said.contains("domain \"a.example\" is listed twice"),
            "{said}"
        );
        assert!(said.contains("domains.conf:5"), "{said}");
    }
}

#[test]
fn visits_of_each_domain_are_shown() {
    let stack = Stack::start();
    let code = stack.link("https://target.example/");
    let text =
        "shortlink_domains {\na.example active;\n*.w.example serving;\nb.example active;\n}\n";
    fs::write(stack.nginx.file("domains.conf"), text).expect("domains.conf");
    stack.nginx.reload();
    for host in ["a.example", "x.w.example", "y.w.example"] {
        let headers = [("Host", host)];
        let path = format!("/{code}");
        let answer = shortlink_tests::http::send(stack.nginx.public_port, "GET", &path, &headers);
        assert_eq!(answer.status, 302);
    }
    shortlink_tests::wait::until("visits are shown", shortlink_tests::wait::SOON, || {
        let output = check(&stack, &["--json"]);
        let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let visits = |place: usize| told["domains"][place]["visitsLastHour"].as_u64();
        let is_shown = [visits(0), visits(1), visits(2)] == [Some(1), Some(2), Some(0)];
        is_shown && {
            // An active domain has no visits.
            let concern = told["concerns"][0].as_str().expect("a concern");
            assert!(
                concern.starts_with("b.example: active, but without a visit"),
                "{concern}"
            );
            assert_eq!(output.status.code(), Some(2));
            true
        }
    });
}
