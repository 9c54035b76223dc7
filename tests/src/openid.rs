//! A provider of OpenID Connect (`scripts/openid-provider`).

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::process::Process;
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
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(directory: &Path, console: String) -> Self {
        let mut provider = Self {
            process: None,
            directory: directory.to_owned(),
            console,
            port: ports::free(),
        };
        provider.start_again();
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
