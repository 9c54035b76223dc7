//! Preview agents: the programs of messengers, and of others, that show a link before a person follows it.

use crate::visit::TEXT_LIMITS;

/// Names of preview agents, the narrower before the wider: the program, and its names. `|` separates names, `&` the words
/// of a name: a user agent has all of them, in any case; a word behind `^` begins it.
pub const PREVIEW_AGENTS: &[(&str, &str)] = &[
    // It identifies itself as the bots for which servers render the best preview.
    ("imessage", "twitterbot&facebookexternalhit"),
    // KakaoTalk and LINE call themselves Facebook's as well.
    ("kakaotalk", "kakaotalk-scrap"),
    ("line", "line-poker"),
    // Signal calls itself so too.
    ("whatsapp", "whatsapp/"),
    ("telegram", "telegrambot"),
    ("slack", "slackbot|slack-imgproxy"),
    ("discord", "discordbot"),
    ("wechat", "wechatshareextension|^wechat/&cfnetwork/"),
    ("google-messages", "googlemessages"),
    // Google's messengers fetch with it.
    (
        "google",
        "developers.google.com/+/web/snippet|google-pagerenderer",
    ),
    // Microsoft Teams too.
    ("skype", "skypeuripreview"),
    ("teams", "teams&microsoftpreview"),
    ("microsoft", "microsoftpreview"),
    ("viber", "^viber"),
    ("linkedin", "linkedinbot"),
    ("snapchat", "snap url preview service"),
    ("pinterest", "pinterestbot|^pinterest/"),
    ("reddit", "redditbot"),
    ("tumblr", "^tumblr/"),
    ("vk", "vkshare"),
    ("ok", "odklbot"),
    ("zalo", "zalobot"),
    ("zoom", "zoombot"),
    ("mastodon", "mastodon/"),
    ("bluesky", "bluesky cardyb"),
    ("mattermost", "mattermost-bot"),
    ("rocketchat", "rocket.chat"),
    ("matrix", "synapse (bot"),
    ("lark", "larkurl2meta"),
    ("dingtalk", "dingtalkbot"),
    ("iframely", "iframely/"),
    ("embedly", "embedly"),
    ("notion", "notionembedder"),
    ("trello", "trellobot"),
    ("yahoo", "yahoo link preview"),
    ("bing-preview", "bingpreview/"),
    // Office resolves a link before it opens a browser.
    ("ms-office", "microsoft office|ms-office"),
    (
        "facebook",
        "facebookexternalhit|facebot|facebookcatalog|meta-externalfetcher",
    ),
    ("twitter", "twitterbot"),
];

/// The bytes of a user agent that are read: a visit has no more of them.
const READ: usize = TEXT_LIMITS[3];

/// Reports whether a user agent is that of a preview agent. Nearly all places of one begin no name, which one look at
/// [`BEGINNINGS`] finds.
pub fn is_preview_agent(user_agent: &[u8]) -> bool {
    let agent = user_agent[..user_agent.len().min(READ)].trim_ascii();
    let begins = |pair: &[u8]| {
        let number = number_of(pair[0], pair[1]);
        BEGINNINGS[number / 64] & (1 << (number % 64)) != 0
    };
    let mut places = agent.windows(2).enumerate();
    places.any(|(place, pair)| begins(pair) && names().any(|name| is_named(agent, place, name)))
}

fn names() -> impl Iterator<Item = &'static str> {
    PREVIEW_AGENTS
        .iter()
        .flat_map(|(_, names)| names.split('|'))
}

/// Reports whether a name's first word stands at a place of a user agent, and the others anywhere.
fn is_named(agent: &[u8], place: usize, name: &str) -> bool {
    let mut words = name.split('&').map(str::as_bytes);
    let is_here = words
        .next()
        .is_some_and(|word| match word.strip_prefix(b"^") {
            Some(word) => place == 0 && begins_with(agent, word),
            None => begins_with(&agent[place..], word),
        });
    is_here && words.all(|word| (0..agent.len()).any(|at| begins_with(&agent[at..], word)))
}

/// Reports whether a text begins with a word in lower case, in any case.
fn begins_with(text: &[u8], word: &[u8]) -> bool {
    let begin = text.get(..word.len());
    begin.is_some_and(|begin| begin.eq_ignore_ascii_case(word))
}

/// The first two characters of all names, as bits.
static BEGINNINGS: [u64; 16] = beginnings();

/// The bit of two characters, the same in both cases.
const fn number_of(first: u8, second: u8) -> usize {
    (first as usize & 31) << 5 | (second as usize & 31)
}

const fn beginnings() -> [u64; 16] {
    let mut bits = [0; 16];
    let mut program = 0;
    while program < PREVIEW_AGENTS.len() {
        let names = PREVIEW_AGENTS[program].1.as_bytes();
        let mut place = 0;
        while place < names.len() {
            if place == 0 || names[place - 1] == b'|' {
                let first = place + (names[place] == b'^') as usize;
                let number = number_of(names[first], names[first + 1]);
                bits[number / 64] |= 1 << (number % 64);
            }
            place += 1;
        }
        program += 1;
    }
    bits
}
