//! Clients: browsers, systems, devices, and the apps they are part of.

use std::fmt;
use std::sync::Arc;

use super::class::{Class, Words};
use crate::named;

/// The most bytes stored of each text of an agent.
pub const MAX_AGENT_TEXT: usize = 64;

/// Client according to its user agent. Names are those of the project uap-core.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agent {
    /// The browser.
    pub browser: Option<Versioned>,
    /// The operating system.
    pub os: Option<Versioned>,
    /// The device.
    pub device: Device,
    /// The app whose built-in browser it is.
    pub app: Option<&'static str>,
    /// The kind of program that public lists name; evidence for the class, and not stored.
    pub listed: Option<Listed>,
    /// Other evidence in the user agent; likewise.
    pub words: Words,
}

/// The kind of a program that is in a public list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its class.
    pub class: Class,
    /// The reason for the class: `listed-…`.
    pub reason: &'static str,
}

/// A name with a version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versioned {
    /// Its name.
    pub name: String,
    /// Its version, numbers separated by dots, as far as the user agent has it.
    pub version: Option<String>,
}

impl fmt::Display for Versioned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        match &self.version {
            Some(version) => write!(f, " {version}"),
            None => Ok(()),
        }
    }
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Kind of device.
    pub kind: DeviceKind,
    /// Manufacturer.
    pub brand: Option<String>,
    /// Manufacturer's name of it.
    pub model: Option<String>,
}

named! {
    /// Kind of device.
    #[derive(Default)]
    pub enum DeviceKind: "kind of device" {
        /// A telephone.
        Phone = "phone",
        /// A tablet.
        Tablet = "tablet",
        /// A computer.
        Desktop = "desktop",
        /// A television or a box beneath one.
        Tv = "tv",
        /// Anything else, or unknown.
        #[default]
        Other = "other",
    }
}

impl DeviceKind {
    /// The kind of device that a user agent speaks of.
    pub fn of(user_agent: &str) -> Self {
        let has = |word: &str| user_agent.contains(word);
        // A television that runs Android is a television, and an iPad may call itself mobile.
        if [
            "SmartTV",
            "SMART-TV",
            "HbbTV",
            "AppleTV",
            "CrKey",
            "BRAVIA",
            "Android TV",
            "AFT",
            "Roku",
        ]
        .into_iter()
        .any(has)
        {
            Self::Tv
        } else if has("iPad") || has("Tablet") {
            Self::Tablet
        } else if has("iPhone") || has("iPod") || has("Windows Phone") {
            Self::Phone
        } else if has("Android") || has("HarmonyOS") {
            // Google asks makers of browsers to send `Mobile` on phones only.
            if has("Mobile") {
                Self::Phone
            } else if has("AppleWebKit/") || has("Gecko/") {
                Self::Tablet
            } else {
                Self::Other
            }
        } else if ["Windows NT", "Macintosh", "X11", "CrOS", "Linux x86_64"]
            .into_iter()
            .any(has)
        {
            Self::Desktop
        } else if has("Mobile") {
            Self::Phone
        } else {
            Self::Other
        }
    }
}

/// Parses user agents.
pub trait Agents: Send + Sync {
    /// Parses a user agent. Never blocks.
    fn agent(&self, user_agent: &str) -> Arc<Agent>;
}

/// Substrings of built-in browsers' user agents, in lower case, and the app's name. The first
/// match wins: an app of the same vendor often contains another's.
const APPS: &[(&str, &str)] = &[
    ("wxwork/", "WeCom"),
    ("micromessenger/", "WeChat"),
    // MQQBrowser/ is QQ's browser, not its app; the app adds ` QQ/`.
    (" qq/", "QQ"),
    ("weibo (", "Weibo"),
    ("__weibo__", "Weibo"),
    ("aliapp(dingtalk", "DingTalk"),
    ("dingtalk/", "DingTalk"),
    ("alipayclient", "Alipay"),
    ("aliapp(tb/", "Taobao"),
    ("aweme", "Douyin"),
    ("musical_ly", "TikTok"),
    ("bytedancewebview", "TikTok"),
    ("trill_", "TikTok"),
    ("xhsdiscover", "Xiaohongshu"),
    ("discover/", "Xiaohongshu"),
    ("baiduboxapp", "Baidu"),
    ("zhihuhybrid", "Zhihu"),
    ("biliapp", "Bilibili"),
    ("lark/", "Lark"),
    ("feishu/", "Lark"),
    ("barcelona ", "Threads"),
    ("instagram ", "Instagram"),
    ("fb_iab/orca", "Messenger"),
    ("fban/messenger", "Messenger"),
    ("messengerforios", "Messenger"),
    ("messengerlite", "Messenger"),
    ("fban/", "Facebook"),
    ("fbav/", "Facebook"),
    ("fb_iab/", "Facebook"),
    ("metaiab facebook", "Facebook"),
    ("metaiab instagram", "Instagram"),
    (" line/", "LINE"),
    ("kakaotalk", "KakaoTalk"),
    ("naver(inapp", "NAVER"),
    ("snapchat", "Snapchat"),
    ("[pinterest/", "Pinterest"),
    ("linkedinapp", "LinkedIn"),
    ("twitter for ", "X"),
    ("twitterandroid", "X"),
    ("telegram-android", "Telegram"),
    ("telegram-ios", "Telegram"),
    ("slack/", "Slack"),
    ("slack_ssb", "Slack"),
    ("discord/", "Discord"),
    ("teams/", "Microsoft Teams"),
    ("teamsmobile", "Microsoft Teams"),
    ("reddit/", "Reddit"),
    ("viber/", "Viber"),
    ("zalo ", "Zalo"),
    (" gsa/", "Google"),
];

/// The app whose built-in browser has this user agent.
pub fn app(user_agent: &str) -> Option<&'static str> {
    let lower = user_agent.to_ascii_lowercase();
    if !lower.starts_with("mozilla/") {
        // The app itself, which fetches something without showing it.
        return None;
    }
    let found = APPS.iter().find(|(word, _)| lower.contains(word));
    found.map(|(_, app)| *app)
}
