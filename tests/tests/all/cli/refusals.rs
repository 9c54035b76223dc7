//! The sources of the server and of the key, and the messages when something is wrong.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use shortlink_tests::nginx::NginxOptions;
use shortlink_tests::ports;
use shortlink_tests::stack::{Stack, StackOptions, directory};

use super::{User, path, said};

#[test]
fn options_outrank_the_environment_and_that_the_file() {
    let stack = Stack::shared();
    let user = User::new(stack);
    let code = stack.link("https://www.example.com/");
    let folder = user.home.join(".config/shortlink");
    fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("client.toml");
    let text = |server: &str, key: &str| format!("server = {server:?}\nkey = {key:?}\n");
    let write = |text: &str, mode: u32| {
        fs::write(&file, text).expect("a file");
        fs::set_permissions(&file, Permissions::from_mode(mode)).expect("its mode");
    };
    let bare = |arguments: &[&str]| {
        let mut command = user.command(arguments);
        command
            .env_remove("SHORTLINK_SERVER")
            .env_remove("SHORTLINK_KEY");
        command
    };
    let get = ["links", "get", &code];

    write(&text(&user.server, &user.key), 0o600);
    let found = said(&mut bare(&get));
    assert_eq!(found.code, Some(0), "{}", found.error);
    // The environment outranks what is wrong in the file, and an option that.
    write(&text("http://127.0.0.1:1", "wrong"), 0o600);
    assert_eq!(said(&mut bare(&get)).code, Some(1));
    assert_eq!(said(&mut user.command(&get)).code, Some(0));
    let key = user.file("key", &format!("{}\n", user.key));
    fs::set_permissions(&key, Permissions::from_mode(0o600)).expect("its mode");
    let options = ["--server", &user.server, "--key-file", path(&key)];
    let mut command = bare(&[&options[..], &get].concat()[4..]);
    command.args(options).env("SHORTLINK_KEY", "wrong");
    let found = said(&mut command);
    assert_eq!(found.code, Some(0), "{}", found.error);
    assert_eq!(found.error, "");
    // A key that others may read is refused in this file, and only reported elsewhere.
    fs::set_permissions(&key, Permissions::from_mode(0o644)).expect("its mode");
    let open = said(user.command(&get).args(options));
    assert_eq!(open.code, Some(0));
    assert!(open.error.contains("chmod 600"), "{}", open.error);
    write(&text(&user.server, &user.key), 0o644);
    let refused = said(&mut bare(&get));
    assert_eq!(refused.code, Some(2));
    assert!(refused.error.contains("chmod 600"), "{}", refused.error);
    assert!(!refused.error.contains(&user.key), "{}", refused.error);
    fs::remove_file(&file).expect("removed");
    let none = said(bare(&get).args(["--server", &user.server]));
    assert_eq!(none.code, Some(2));
    assert!(none.error.contains("there is no API key"), "{}", none.error);
}

#[test]
fn what_is_refused_is_told_with_field_and_reason() {
    let stack = Stack::shared();
    let mut user = User::new(stack);
    let code = stack.link("https://www.example.com/");
    for (arguments, exit, parts) in [
        (
            &["links", "create", "nonsense"][..],
            1,
            &["(422)", "/longUrl: "][..],
        ),
        (
            &[
                "links",
                "create",
                "https://a.example.com/",
                "--status",
                "303",
            ],
            2,
            &["303", "301, 302, 307, 308"],
        ),
        (&["links", "get", "0000000000000000"], 1, &["(404)"]),
        (
            &["links", "list", "--state", "dead"],
            1,
            &["(400)", "state"],
        ),
        (&["stats", "all", "--by", "weather"], 1, &["(400)", "by"]),
        (&["links", "get", "a/b"], 2, &["a code has only"]),
        (&["links", "change", &code], 2, &["required"]),
        (
            &["links", "change", &code, "--valid-until", "soon"],
            2,
            &["2030-12-31"],
        ),
        (&["links", "create"], 2, &["URL"]),
        (&["links", "export", "--out", "links.txt"], 2, &["--format"]),
        (
            &["links", "list", "--server", "localhost"],
            2,
            &["give a URL"],
        ),
        (
            &["links", "list", "--key-file", "none"],
            2,
            &["none can't be read"],
        ),
    ] {
        let said = user.run(arguments);
        assert_eq!(said.code, Some(exit), "{arguments:?}: {}", said.error);
        assert_eq!(said.out, "", "{arguments:?}");
        for part in parts {
            assert!(said.error.contains(part), "{arguments:?}: {}", said.error);
        }
    }
    let taken = user.json(&[
        "links",
        "create",
        "https://a.example.com/",
        "--slug",
        "spring",
    ]);
    assert_eq!(taken["shortCode"], "spring");
    let again = user.run(&[
        "links",
        "create",
        "https://a.example.com/",
        "--slug",
        "spring",
    ]);
    assert_eq!(again.code, Some(1));
    assert!(
        again.error.contains("/customSlug: is taken"),
        "{}",
        again.error
    );

    // A key that allows other things, one that is none, and no service at all.
    user.key = stack.sidecar.make_key(&["stats:read"]);
    let said = user.run(&["links", "list"]);
    assert_eq!(said.code, Some(1));
    assert!(
        said.error.contains("(403)") && said.error.contains("links:read"),
        "{}",
        said.error
    );
    user.key = "wrong".to_owned();
    let said = user.run(&["links", "list"]);
    assert_eq!(said.code, Some(1));
    assert!(said.error.contains("(401)"), "{}", said.error);
    assert!(said.error.contains("SHORTLINK_KEY"), "{}", said.error);
    user.key = "two words".to_owned();
    assert_eq!(user.run(&["links", "list"]).code, Some(2));
    user.key.clone_from(&stack.sidecar.key);
    user.server = format!("http://127.0.0.1:{}", ports::free());
    let said = user.run(&["links", "list"]);
    assert_eq!(said.code, Some(1));
    let away = format!("{} cannot be reached: start the service", user.server);
    assert!(said.error.contains(&away), "{}", said.error);
    // Another server.
    user.server = format!("http://127.0.0.1:{}", stack.nginx.public_port);
    let said = user.run(&["links", "list"]);
    assert_eq!(said.code, Some(1));
    assert!(
        said.error.contains("is it the internal server?"),
        "{}",
        said.error
    );
}

#[test]
fn a_key_that_is_asked_too_much_of_is_waited_for() {
    let stack = Stack::shared();
    let mut user = User::new(stack);
    let code = stack.link("https://www.example.com/");
    let key = [
        "keys",
        "create",
        "--name",
        "slow",
        "--scope",
        "links:read",
        "--rate-limit",
        "1",
    ];
    user.key = stack.sidecar.run_ok(&key).trim().to_owned();
    // The second and third are refused at first.
    for _ in 0..3 {
        user.ok(&["links", "get", &code]);
    }
}

#[test]
fn https_is_spoken_with_the_systems_certificates() {
    let directory = directory();
    let made = Command::new("openssl")
        .current_dir(directory.path())
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
        ])
        .args([
            "-keyout",
            "key.pem",
            "-out",
            "cert.pem",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
        ])
        .args(["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .output()
        .expect("openssl");
    assert!(made.status.success());
    let file = |name: &str| directory.path().join(name).display().to_string();
    let tls = format!(
        "server_name _;\n    ssl_certificate {};\n    ssl_certificate_key {};",
        file("cert.pem"),
        file("key.pem")
    );
    let port = ports::free();
    let listen = format!("listen 127.0.0.1:{port} ssl;\n    {tls}\n    client_max_body_size 1m;");
    let stack = Stack::with(&StackOptions {
        nginx: NginxOptions {
            replace: vec![(
                "client_max_body_size 1m;",
                listen.replace("server_name _;\n", ""),
            )],
            ..NginxOptions::default()
        },
        ..StackOptions::default()
    });
    let mut user = User::new(&stack);
    user.server = format!("https://127.0.0.1:{port}");
    let create = ["links", "create", "https://www.example.com/"];
    let made = said(user.command(&create).env("SSL_CERT_FILE", file("cert.pem")));
    assert_eq!(made.code, Some(0), "{}", made.error);
    // An unknown server gets no request.
    let refused = user.run(&create);
    assert_eq!(refused.code, Some(1));
    assert!(refused.error.contains("certificate"), "{}", refused.error);
}
