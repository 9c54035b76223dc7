//! A real Chromium without a window, driven through Debian's chromedriver.
//!
//! Faults of a page in itself are found at the end of each look: errors in the console and
//! requests to other hosts.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::http::{self, Connection};
use crate::ports;
use crate::process::Process;
use crate::wait::{SOON, eventually, pass};

/// The longest time for a step of a browser: it starts slowly on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

/// The appearance of a browser.
#[derive(Clone, Copy, Debug)]
pub struct Looks {
    /// The width of the window in pixels.
    pub width: u32,
    /// The browser's language.
    pub language: &'static str,
}

impl Default for Looks {
    fn default() -> Self {
        Self {
            width: 1280,
            language: "en",
        }
    }
}

impl Looks {
    /// A phone.
    pub fn phone(language: &'static str) -> Self {
        Self {
            width: 360,
            language,
        }
    }
}

/// A browser with one window.
#[derive(Debug)]
pub struct Browser {
    port: u16,
    session: String,
    origin: String,
    _driver: Process,
}

impl Browser {
    /// Starts a browser that looks at a server of loopback; its files go below `directory`.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(directory: &Path, server_port: u16, looks: Looks) -> Self {
        fs::create_dir_all(directory).expect("a directory");
        let port = ports::free();
        let mut command = Command::new("chromedriver");
        command
            .arg(format!("--port={port}"))
            .env("HOME", directory)
            .env("TMPDIR", directory);
        let mut driver = Process::start("chromedriver", &command, &directory.join("driver.log"));
        driver.wait_ready(|| {
            let request = http::request("GET", "/status", &[], b"");
            http::try_send(port, "GET", &request)
                .is_ok_and(|answer| answer.json()["value"]["ready"] == json!(true))
        });
        let profile = directory.join("profile");
        let mut browser = Self {
            port,
            session: String::new(),
            origin: format!("http://127.0.0.1:{server_port}"),
            _driver: driver,
        };
        let capabilities = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            "goog:chromeOptions": {"args": [
                "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                "--disable-background-networking", "--disable-component-update", "--no-first-run",
                "--disable-sync", "--disable-default-apps", "--force-device-scale-factor=1",
                "--blink-settings=imagesEnabled=true",
                format!("--user-data-dir={}", profile.display()),
                format!("--lang={}", looks.language),
                format!("--accept-lang={}", looks.language),
            ]},
        }}});
        let begun = browser.call("POST", "/session", &capabilities);
        browser.session = begun["sessionId"].as_str().expect("a session").to_owned();
        // A window is never as narrow as a phone, but what it emulates can be.
        let size = json!({
            "width": looks.width, "height": 900, "deviceScaleFactor": 1,
            "mobile": looks.width < 600,
        });
        browser.cdp("Emulation.setDeviceMetricsOverride", &size);
        browser.cdp(
            "Emulation.setLocaleOverride",
            &json!({"locale": looks.language}),
        );
        browser
    }

    /// Opens a path of the server.
    pub fn open(&self, path: &str) {
        let url = format!("{}{path}", self.origin);
        self.send("POST", "/url", &json!({"url": url}));
    }

    /// The path and query of the page that is shown.
    pub fn path(&self) -> String {
        let found = self.run("return location.pathname + location.search", &[]);
        found.as_str().expect("a path").to_owned()
    }

    /// Runs a function's body in the page and returns what it returns.
    pub fn run(&self, script: &str, arguments: &[Value]) -> Value {
        let body = json!({"script": script, "args": arguments});
        self.send("POST", "/execute/sync", &body)
    }

    /// Waits for an element.
    ///
    /// # Panics
    /// When it does not come.
    pub fn find(&self, selector: &str) -> Element<'_> {
        let id = look(selector, || self.try_find(selector));
        Element { browser: self, id }
    }

    /// Returns whether there is such an element now.
    pub fn has(&self, selector: &str) -> bool {
        self.try_find(selector).is_some()
    }

    fn try_find(&self, selector: &str) -> Option<String> {
        let body = json!({"using": "css selector", "value": selector});
        let found = self.send("POST", "/elements", &body);
        let element = found.as_array()?.first()?.as_object()?;
        Some(element.values().next()?.as_str()?.to_owned())
    }

    /// Clicks on an element once it is there.
    pub fn click(&self, selector: &str) {
        self.find(selector).act("click", &json!({}));
    }

    /// Waits until an element's text has a part, and returns the text.
    ///
    /// # Panics
    /// When it does not get it.
    pub fn text_with(&self, selector: &str, part: &str) -> String {
        look(&format!("{part:?} in {selector}"), || {
            let script = "return document.querySelector(arguments[0])?.innerText ?? null";
            let text = self.run(script, &[json!(selector)]);
            let text = text.as_str()?.to_owned();
            text.contains(part).then_some(text)
        })
    }

    /// Types into a field in place of what stands there.
    pub fn fill(&self, selector: &str, text: &str) {
        let field = self.find(selector);
        field.act("clear", &json!({}));
        field.act("value", &json!({"text": text}));
    }

    /// Presses keys where an element has the keyboard: letters, or the codes that WebDriver has for
    /// others.
    pub fn press(&self, selector: &str, keys: &str) {
        self.find(selector).act("value", &json!({"text": keys}));
    }

    /// Chooses an option of a field, by its value.
    ///
    /// # Panics
    /// When the field has no such option.
    pub fn choose(&self, selector: &str, value: &str) {
        self.find(selector);
        let script = "const field = document.querySelector(arguments[0]); \
                      field.value = arguments[1]; \
                      field.dispatchEvent(new Event('change', { bubbles: true })); \
                      return field.value";
        let chosen = self.run(script, &[json!(selector), json!(value)]);
        assert_eq!(chosen, json!(value), "{selector}");
    }

    /// Has files that pages give to be kept stand in a directory.
    pub fn keep_downloads_in(&self, directory: &Path) {
        let parameters = json!({"behavior": "allow", "downloadPath": directory});
        self.cdp("Browser.setDownloadBehavior", &parameters);
    }

    /// Sends a command of the developers' protocol.
    pub fn cdp(&self, command: &str, parameters: &Value) -> Value {
        let body = json!({"cmd": command, "params": parameters});
        self.send("POST", "/goog/cdp/execute", &body)
    }

    /// Shows pages as in the dark, or in light.
    pub fn set_dark(&self, is_dark: bool) {
        let value = if is_dark { "dark" } else { "light" };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": value}]});
        self.cdp("Emulation.setEmulatedMedia", &features);
    }

    /// Takes the network away, or brings it back.
    pub fn set_offline(&self, is_offline: bool) {
        self.cdp("Network.enable", &json!({}));
        let conditions = json!({
            "offline": is_offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1,
        });
        self.cdp("Network.emulateNetworkConditions", &conditions);
    }

    /// Checks that the page is no wider than the window.
    ///
    /// # Panics
    /// When it is.
    pub fn assert_fits(&self) {
        let script = "return [document.documentElement.scrollWidth, innerWidth]";
        let widths = self.run(script, &[]);
        assert!(
            widths[0].as_u64() <= widths[1].as_u64(),
            "{} is wider than the window: {widths}",
            self.path()
        );
    }

    /// Checks with axe-core that the page is accessible, in light and in the dark, which differ only in
    /// colors.
    ///
    /// # Panics
    /// When it finds a serious or critical fault.
    pub fn assert_accessible(&self) {
        // The script is run here and not loaded, so that the page's policy need not allow it.
        if self.run("return !window.axe", &[]) == json!(true) {
            self.run(&format!("{};window.axe = axe", *AXE), &[]);
        }
        for (is_dark, options) in [
            (false, json!({})),
            (true, json!({"runOnly": ["color-contrast"]})),
        ] {
            self.set_dark(is_dark);
            let body = json!({
                "script": "const done = arguments[1]; axe.run(document, arguments[0]).then((found) => done(\
                    found.violations.filter((it) => ['serious', 'critical'].includes(it.impact))\
                    .map((it) => [it.id, it.help, it.nodes.map((node) => node.html)])))",
                "args": [options],
            });
            let found = self.send("POST", "/execute/async", &body);
            assert_eq!(found, json!([]), "{} dark: {is_dark}", self.path());
        }
        self.set_dark(false);
    }

    /// Checks that nothing was wrong with what was shown since the last look, but for messages
    /// with one of the texts in `expected`, and that no other host was asked.
    ///
    /// # Panics
    /// When it is not so.
    pub fn assert_sound(&self, expected: &[&str]) {
        let said = self.log("browser");
        let bad = said.iter().filter(|entry| {
            let message = entry["message"].as_str().unwrap_or_default();
            entry["level"] == json!("SEVERE") && !expected.iter().any(|it| message.contains(it))
        });
        assert_eq!(bad.collect::<Vec<_>>(), [&Value::Null; 0]);
        let mut asked = 0;
        for entry in self.log("performance") {
            let text = entry["message"].as_str().unwrap_or_default();
            let event: Value = serde_json::from_str(text).unwrap_or_default();
            let event = &event["message"];
            if event["method"] == json!("Network.requestWillBeSent") {
                let url = event["params"]["request"]["url"].as_str();
                let url = url.unwrap_or_default();
                let is_own = url.starts_with(&self.origin) || !url.starts_with("http");
                assert!(is_own, "{url} was asked");
                asked += 1;
            }
        }
        assert!(asked > 0, "no request was seen");
    }

    /// Writes what is seen into a file.
    ///
    /// # Panics
    /// When it can't.
    pub fn picture(&self, path: &Path) {
        let shot = self.cdp("Page.captureScreenshot", &json!({"format": "png"}));
        let text = shot["data"].as_str().expect("a picture");
        let image = STANDARD.decode(text).expect("base64");
        fs::write(path, image).expect("a file");
    }

    fn log(&self, kind: &str) -> Vec<Value> {
        let entries = self.send("POST", "/se/log", &json!({"type": kind}));
        entries.as_array().cloned().unwrap_or_default()
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        let path = format!("/session/{}{path}", self.session);
        self.call(method, &path, body)
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = body.to_string();
        let headers = [("Content-Type", "application/json")];
        let request = http::request(method, path, &headers, body.as_bytes());
        let answer = Connection::open(self.port).and_then(|mut connection| {
            connection.set_patience(PATIENCE)?;
            connection.send(&request)?;
            connection.receive(method)
        });
        let answer = answer.expect("chromedriver").expect("an answer").json();
        let value = answer["value"].clone();
        assert!(value["error"].is_null(), "{method} {path}: {value}");
        value
    }
}

/// Looks at a page until there is something, seldom enough that looking does not slow the page down.
fn look<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    eventually(what, SOON, || {
        let found = ask();
        if found.is_none() {
            pass(Duration::from_millis(20));
        }
        found
    })
}

/// Waits until a browser has kept a text of whole lines as a file, and returns it.
///
/// # Panics
/// When it does not come.
pub fn downloaded(file: &Path) -> String {
    // The browser makes an empty file of the name first, and puts the whole one in its place.
    let is_whole = |text: &String| text.ends_with('\n');
    eventually(&file.display().to_string(), SOON, || {
        fs::read_to_string(file).ok().filter(is_whole)
    })
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Without this the browser would outlive its driver for a moment.
        let path = format!("/session/{}", self.session);
        let request = http::request("DELETE", &path, &[], b"");
        let _ = http::try_send(self.port, "DELETE", &request);
    }
}

/// An element of the page that is shown.
#[derive(Debug)]
pub struct Element<'b> {
    browser: &'b Browser,
    id: String,
}

impl Element<'_> {
    /// Types into it; the path of a file into a field for files.
    pub fn type_keys(&self, text: &str) {
        self.act("value", &json!({"text": text}));
    }

    fn act(&self, what: &str, body: &Value) {
        let path = format!("/element/{}/{what}", self.id);
        self.browser.send("POST", &path, body);
    }
}

/// axe-core, which `scripts/axe` fetches if it is missing.
static AXE: LazyLock<String> = LazyLock::new(|| {
    let output = Command::new(crate::workspace().join("scripts/axe")).output();
    let output = output.expect("scripts/axe can be run");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "scripts/axe: {said}");
    let path = String::from_utf8(output.stdout).expect("a path");
    fs::read_to_string(path.trim()).expect("axe-core")
});
