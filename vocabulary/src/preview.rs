//! Previews of links in messengers, and the page from which messengers read them.
//!
//! ```text
//! t11:Summer saled23:Up to 50% off until Mayi27:https://e.com/sale-1200.png
//! ```
//!
//! A preview is a row of sections as those of a [plan](crate::plan): the title, the description and the image, the last
//! two of which can be missing. Readers skip sections that they do not know.

mod agents;

use alloc::string::String;
use alloc::vec::Vec;

use crate::plan::{RawSections, push_section};
use crate::target::is_servable;

pub use agents::{PREVIEW_AGENTS, is_preview_agent};

/// The most characters of a title.
pub const MAX_TITLE_LENGTH: usize = 200;

/// The most characters of a description.
pub const MAX_DESCRIPTION_LENGTH: usize = 500;

/// The most bytes of the URL of an image.
pub const MAX_IMAGE_LENGTH: usize = 2048;

/// A preview, read in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preview<'a> {
    /// The title: 1 to [`MAX_TITLE_LENGTH`] characters, none of which is a control character.
    pub title: &'a str,
    /// The description: 1 to [`MAX_DESCRIPTION_LENGTH`] such characters; empty without one.
    pub description: &'a str,
    /// The URL of the image, as [`is_image`] allows it; empty without one.
    pub image: &'a str,
}

impl<'a> Preview<'a> {
    /// The type of a [page](Preview::page), as `Content-Type` has it.
    pub const PAGE_TYPE: &'static str = "text/html; charset=utf-8";

    /// Reads a preview; `None` if it has no title, or a part that a preview can't have.
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        let mut parts = [None; 3];
        for section in RawSections::of(text) {
            let (letter, part) = section?;
            let Some(place) = LETTERS.iter().position(|&known| known == letter) else {
                continue;
            };
            if parts[place]
                .replace(core::str::from_utf8(part).ok()?)
                .is_some()
            {
                return None;
            }
        }
        let [title, description, image] = parts;
        let preview = Self {
            title: title?,
            description: description.unwrap_or_default(),
            image: image.unwrap_or_default(),
        };
        let is_given = |part: Option<&str>| part != Some("");
        let is_fine = is_text(preview.title, MAX_TITLE_LENGTH)
            && (description.is_none() || is_text(preview.description, MAX_DESCRIPTION_LENGTH))
            && (image.is_none() || is_image(preview.image));
        (is_fine && parts.into_iter().all(is_given)).then_some(preview)
    }

    /// Appends it as [`Preview::parse`] reads it.
    pub fn write(&self, out: &mut Vec<u8>) {
        let parts = [self.title, self.description, self.image];
        for (letter, part) in LETTERS.into_iter().zip(parts) {
            if !part.is_empty() {
                push_section(out, letter, part.as_bytes());
            }
        }
    }

    /// The page that a preview agent gets instead of the redirect: `url` is the short URL that it asked for, empty if that
    /// is unknown, and `target` that of the redirect. The page redirects a person who sees it all the same.
    pub fn page(&self, url: &str, target: &str) -> String {
        let mut page = String::from(
            "<!doctype html>\n<html>\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"robots\" content=\"noindex\">\n<title>",
        );
        push_escaped(&mut page, self.title);
        page.push_str("</title>\n");
        let card = match self.image {
            "" => "summary",
            _ => "summary_large_image",
        };
        for (attribute, name, content) in [
            ("property", "og:type", "website"),
            ("property", "og:url", url),
            ("property", "og:title", self.title),
            ("property", "og:description", self.description),
            ("property", "og:image", self.image),
            ("name", "description", self.description),
            ("name", "twitter:card", card),
        ] {
            if !content.is_empty() {
                page.extend(["<meta ", attribute, "=\"", name, "\" content=\""]);
                push_escaped(&mut page, content);
                page.push_str("\">\n");
            }
        }
        page.push_str("<meta http-equiv=\"refresh\" content=\"0; url=");
        push_escaped(&mut page, target);
        page.push_str("\">\n</head>\n<body>\n<p><a href=\"");
        push_escaped(&mut page, target);
        page.push_str("\">");
        push_escaped(&mut page, self.title);
        page.push_str("</a></p>\n</body>\n</html>\n");
        page
    }
}

/// The letters of the parts, in the order in which they are written.
const LETTERS: [u8; 3] = *b"tdi";

/// Reports whether a text has 1 to `most` characters, none of which is a control character.
pub fn is_text(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.chars().count()) && !text.chars().any(char::is_control)
}

/// Reports whether a URL can be that of an image: `https`, at most [`MAX_IMAGE_LENGTH`] bytes, and fit to be a target.
pub fn is_image(url: &str) -> bool {
    url.len() <= MAX_IMAGE_LENGTH && url.starts_with("https://") && is_servable(url.as_bytes())
}

/// Appends a text so that it means itself in HTML, also in the value of an attribute.
fn push_escaped(page: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '&' => page.push_str("&amp;"),
            '<' => page.push_str("&lt;"),
            '>' => page.push_str("&gt;"),
            '"' => page.push_str("&quot;"),
            '\'' => page.push_str("&#39;"),
            other => page.push(other),
        }
    }
}

#[cfg(test)]
mod tests;
