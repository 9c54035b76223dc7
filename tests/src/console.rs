//! The console in a browser, as tests of its pages use it.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::browser::{Browser, Looks, downloaded};
use crate::ports;
use crate::stack::Stack;
use crate::wait::{SOON, until};

/// Copies the text that the page offers; the page confirms it only for a moment.
pub fn copy(browser: &Browser) {
    let script = "return document.querySelector('[data-copy]').innerText.includes('Copied')";
    until("it is copied", SOON, || {
        browser.click("[data-copy]");
        browser.run(script, &[]) == json!(true)
    });
}

/// Waits until a link is created; returns its code.
///
/// # Panics
/// When the page shows none.
pub fn made(browser: &Browser) -> String {
    browser.text_with("[data-made] h2", "Link created");
    let script = "return document.querySelector('[data-made]').dataset.made";
    let code = browser.run(script, &[]);
    code.as_str().expect("a code").to_owned()
}

/// A browser with a signed-in user.
#[derive(Debug)]
pub struct Console {
    /// The browser.
    pub browser: Browser,
    downloads: PathBuf,
}

impl Console {
    /// Signs in with a key.
    ///
    /// # Panics
    /// When that does not work.
    pub fn enter(stack: &Stack, key: &str, looks: Looks) -> Self {
        let directory = stack.directory().join(format!("browser-{}", ports::free()));
        let browser = Browser::start(&directory, stack.nginx.internal_port, looks);
        let downloads = directory.join("downloads");
        fs::create_dir_all(&downloads).expect("a directory");
        browser.keep_downloads_in(&downloads);
        browser.open("/console");
        browser.fill("#key", key);
        browser.click("form button");
        browser.find("[data-leave]");
        Self { browser, downloads }
    }

    /// Opens a page and waits for its heading.
    pub fn open(&self, path: &str, heading: &str) {
        self.browser.open(path);
        self.browser.text_with("h1", heading);
    }

    /// Agrees to what is asked, once the question has a text.
    pub fn agree(&self, text: &str) {
        self.browser.text_with("dialog[open]", text);
        self.browser.assert_accessible();
        self.browser.click("dialog [data-yes]");
        until("the dialog is gone", SOON, || !self.browser.has("dialog"));
    }

    /// Chooses a file in a field.
    pub fn choose(&self, field: &str, file: &Path) {
        let path = file.display().to_string();
        self.browser.find(field).type_keys(&path);
    }

    /// Clicks on what keeps a file, and returns what stands in it.
    ///
    /// # Panics
    /// When it does not come.
    pub fn download(&self, link: &str, name: &str) -> String {
        let file = self.downloads.join(name);
        // An earlier one of this name would be taken for it.
        let _ = fs::remove_file(&file);
        self.browser.click(link);
        downloaded(&file)
    }
}
