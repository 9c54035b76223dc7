//! Reads user agents by the rules of the project uap-core, and recognises programs by public lists.

mod lists;

use std::error::Error;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use lru::LruCache;
use once_cell::sync::OnceCell;
use shortlink_core::visit::agent::{
    Agent, Agents, Device, DeviceKind, MAX_AGENT_TEXT, Versioned, app,
};
use shortlink_core::visit::class::Words;
use shortlink_core::visit::text::cut;
use ua_parser::{Extractor, Regexes};

pub use lists::ListError;
use lists::Lists;

/// The rules; see the folder's `README.md`.
const RULES: &str = include_str!("../../data/uap-core/regexes.json");

/// The most bytes of a user agent that are read. It is what events have at most; replaced bytes
/// can't make it more.
const MAX_USER_AGENT: usize = 512;

/// Reads user agents, and remembers those that came last: most visits come with the same few.
pub struct AgentReader {
    rules: OnceCell<(Extractor<'static>, Lists)>,
    read: Mutex<LruCache<Box<str>, Arc<Agent>>>,
}

/// The rules that came with the program can't be used.
#[derive(Debug, thiserror::Error)]
pub enum AgentRulesError {
    /// They are no rules.
    #[error("the rules for user agents can't be read")]
    Syntax(#[from] serde_json::Error),
    /// They contradict themselves.
    #[error("the rules for user agents can't be compiled")]
    Rules(#[from] ua_parser::Error),
    /// The lists of programs.
    #[error(transparent)]
    Lists(#[from] ListError),
}

impl AgentReader {
    /// Compiles the rules, which takes a while. At most `remembered` user agents are remembered,
    /// and at least one.
    ///
    /// # Errors
    /// Only if the program was built with rules that are none.
    pub fn new(remembered: usize) -> Result<Self, AgentRulesError> {
        let reader = Self::late(remembered);
        reader.rules()?;
        Ok(reader)
    }

    /// Compiles the rules when the first user agent is read: for a process that may never read one.
    pub fn late(remembered: usize) -> Self {
        let remembered = NonZeroUsize::new(remembered).unwrap_or(NonZeroUsize::MIN);
        Self {
            rules: OnceCell::new(),
            read: Mutex::new(LruCache::new(remembered)),
        }
    }

    fn rules(&self) -> Result<&(Extractor<'static>, Lists), AgentRulesError> {
        self.rules.get_or_try_init(|| {
            let rules: Regexes<'static> = serde_json::from_str(RULES)?;
            Ok((rules.try_into()?, Lists::new()?))
        })
    }

    /// Returns the number of cached user agents.
    pub fn remembered(&self) -> usize {
        self.read
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    fn read(&self, user_agent: &str) -> Result<Agent, AgentRulesError> {
        let user_agent = &user_agent[..user_agent.floor_char_boundary(MAX_USER_AGENT)];
        let (rules, lists) = self.rules()?;
        let (browser, os, device) = rules.extract(user_agent);
        let browser = browser.and_then(|browser| {
            let version = [
                browser.major,
                browser.minor,
                browser.patch,
                browser.patch_minor,
            ];
            versioned(&browser.family, version)
        });
        let os = os.and_then(|os| {
            let version = [
                os.major.as_deref(),
                os.minor.as_deref(),
                os.patch.as_deref(),
                os.patch_minor.as_deref(),
            ];
            versioned(&os.os, version)
        });
        let text = |text: Option<&str>| text.and_then(named);
        Ok(Agent {
            browser,
            os,
            device: Device {
                kind: DeviceKind::of(user_agent),
                brand: text(device.as_ref().and_then(|device| device.brand.as_deref())),
                model: text(device.as_ref().and_then(|device| device.model.as_deref())),
            },
            app: app(user_agent),
            listed: lists.find(user_agent),
            words: Words::of(user_agent),
        })
    }
}

impl Agents for AgentReader {
    fn agent(&self, user_agent: &str) -> Arc<Agent> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(agent) = read.get(user_agent) {
            return Arc::clone(agent);
        }
        // One at a time: the rules keep notes for each thread that uses them at the same moment,
        // which is memory, and reading is rare enough.
        let agent = self.read(user_agent).unwrap_or_else(|error| {
            tracing::error!(error = &error as &dyn Error, "user agents can't be read");
            Agent::default()
        });
        let agent = Arc::new(agent);
        read.put(user_agent.into(), Arc::clone(&agent));
        agent
    }
}

fn named(text: &str) -> Option<String> {
    let mut text = text.trim().to_owned();
    cut(&mut text, MAX_AGENT_TEXT);
    (!text.is_empty() && text != "Other").then_some(text)
}

fn versioned(name: &str, version: [Option<&str>; 4]) -> Option<Versioned> {
    let name = named(name)?;
    let parts = version.into_iter().map_while(|part| part);
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    Some(Versioned {
        name,
        version: named(&parts.join(".")),
    })
}

#[cfg(test)]
mod tests;
