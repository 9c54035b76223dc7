//! A provider of OpenID Connect (`scripts/openid-provider`).

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use crate::http::Response;
use crate::process::Process;
use crate::stack::Stack;
use crate::{http, ports, workspace};

/// A provider, whose users sign in with their names and no password.
#[derive(Debug)]
pub struct OpenIdProvider {
    process: Option<Process>,
    directory: PathBuf,
    console: String,
    /// The port that it listens on, also when it is started again.
    pub port: u16,
}

impl OpenIdProvider {
    /// Starts a provider that knows the console at an address.
    fn start(directory: &Path, console: String) -> Self {
        let mut provider = Self {
            process: None,
            directory: directory.to_owned(),
            console,
            port: ports::free(),
        };
        provider.start_again();
        provider
    }

    /// Starts a provider, and has people sign in to a stack at an issuer of it: itself or the forger.
    ///
    /// # Panics
    /// When it does not start.
    pub fn of(stack: &mut Stack, issuer: impl Fn(&Self) -> String) -> Self {
        let console = format!("http://127.0.0.1:{}", stack.nginx.internal_port);
        let provider = Self::start(stack.directory(), console.clone());
        let secret = stack.directory().join("client-secret");
        fs::write(&secret, "the secret of the client\n").expect("a file");
        let settings = format!(
            "[sign_in]\nissuer = \"{}\"\nclient_id = \"shortlink\"\nclient_secret_file = \"{}\"\n\
             console_url = \"{console}\"\nname = \"Example\"\n\
             roles = [\"staff=viewer\", \"marketing=marketer\", \"admins=admin\"]\n[redis]",
            issuer(&provider),
            secret.display()
        );
        stack.sidecar.edit_config("[redis]", &settings);
        stack.sidecar.stop();
        stack.sidecar.start_again();
        provider
    }

    /// The issuer, on another site than the console: browsers treat the two as strangers.
    pub fn issuer(&self) -> String {
        format!("http://localhost:{}", self.port)
    }

    /// The issuer whose tokens have faults.
    pub fn forger(&self) -> String {
        format!("{}/forged", self.issuer())
    }

    /// Starts it again after [`OpenIdProvider::kill`]: with another key for tokens, and without its users' sessions.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_again(&mut self) {
        let mut command = Command::new(workspace().join("scripts/openid-provider"));
        command.arg(self.port.to_string()).arg(&self.console);
        let log = self.directory.join("openid.log");
        let mut process = Process::start("openid provider", &command, &log);
        process.wait_ready(|| {
            let path = "/.well-known/openid-configuration";
            let request = http::request("GET", path, &[], b"");
            http::try_send(self.port, "GET", &request).is_ok_and(|answer| answer.status == 200)
        });
        self.process = Some(process);
    }

    /// Kills it.
    ///
    /// # Panics
    /// When it does not run.
    pub fn kill(&mut self) {
        self.process.take().expect("a running provider").kill();
    }

    /// Sets the claims of people, by the names with which they sign in.
    pub fn set_people(&self, people: &Value) {
        self.set("people", people.to_string().as_bytes());
    }

    /// Sets the fault of the forger's tokens.
    pub fn set_fault(&self, fault: &str) {
        self.set("fault", fault.as_bytes());
    }

    fn set(&self, what: &str, body: &[u8]) {
        let request = http::request("PUT", &format!("/test/{what}"), &[], body);
        let answer = http::try_send(self.port, "PUT", &request).expect("a provider");
        assert_eq!(answer.status, 200, "{what}");
    }
}

/// A person with a browser without pages: the cookies of a host.
#[derive(Debug)]
pub struct Person {
    /// The cookies.
    pub cookies: HashMap<String, String>,
    address: String,
}

impl Person {
    /// A person with an address of their own.
    #[expect(clippy::new_without_default, reason = "each one has another address")]
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self {
            cookies: HashMap::new(),
            address: format!("192.0.2.{number}"),
        }
    }

    /// Sends a request to a sidecar.
    ///
    /// # Panics
    /// When a cookie of the answer can be read by scripts.
    pub fn send(&mut self, port: u16, method: &str, path: &str) -> Response {
        let cookies = self
            .cookies
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let cookies = cookies.collect::<Vec<_>>().join("; ");
        let headers = [
            ("Cookie", &*cookies),
            ("X-Real-IP", &self.address),
            ("X-Shortlink-Console", "1"),
        ];
        let answer = http::send(port, method, path, &headers);
        for cookie in answer.all("Set-Cookie") {
            assert!(cookie.contains("; HttpOnly; SameSite="), "{cookie}");
            let (name, rest) = cookie.split_once('=').expect("a cookie");
            let value = rest.split(';').next().unwrap_or_default();
            match value {
                "" => self.cookies.remove(name),
                value => self.cookies.insert(name.to_owned(), value.to_owned()),
            };
        }
        answer
    }

    /// Goes to the provider; returns the path to which that leads back.
    ///
    /// # Panics
    /// When it does not lead there.
    pub fn leave_for(&mut self, port: u16, provider: &OpenIdProvider) -> String {
        let started = self.send(port, "GET", "/console/sign-in/start?return=/links");
        assert_eq!(started.status, 303);
        let to = started.location().expect("an address");
        let path = to.strip_prefix(&provider.issuer()).expect("the provider");
        let back = http::get(provider.port, path);
        let back = back.location().expect("an address").to_owned();
        let path = back.find("/console/").expect("a path of the console");
        back[path..].to_owned()
    }

    /// Signs in; returns the reason for which that failed.
    pub fn enter(&mut self, port: u16, provider: &OpenIdProvider) -> Option<String> {
        let back = self.leave_for(port, provider);
        self.return_by(port, &back)
    }

    /// Returns from the provider; returns the reason for which the sign-in failed.
    ///
    /// # Panics
    /// When the sign-in page does not show the reason.
    pub fn return_by(&mut self, port: u16, path: &str) -> Option<String> {
        let returned = self.send(port, "GET", path);
        assert_eq!(returned.status, 303);
        let is_in = self.session(port).is_some();
        let to = if is_in { "/console/links" } else { "/console" };
        assert_eq!(returned.location(), Some(to));
        let fault = self.reason(port);
        assert_eq!(is_in, fault.is_none(), "{fault:?}");
        fault
    }

    /// The reason that the sign-in page shows.
    pub fn reason(&mut self, port: u16) -> Option<String> {
        let ways = self.send(port, "GET", "/console/sign-in/ways").json();
        Some(ways["fault"]["reason"].as_str()?.to_owned())
    }

    /// The session, if there is one.
    pub fn session(&mut self, port: u16) -> Option<Value> {
        let answer = self.send(port, "GET", "/console/session");
        (answer.status == 200).then(|| answer.json())
    }
}
