//! A brand of the table: what pages for visitors show of the owner of a domain.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::entry::text;
use crate::target::is_servable;

/// The most characters of a brand's name.
pub(super) const LONGEST_NAME: usize = 80;

/// The parameter `brand=` of a domain without a brand.
pub(super) const OFF: &str = "off";

/// The extensions of the files that can be a logo.
pub(super) const LOGO_TYPES: &str = ".svg .png .webp .jpg .gif";

/// A brand: its name, and what pages show with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Brand {
    name: String,
    logo: Option<String>,
    imprint: Option<String>,
    site: Option<String>,
}

impl Brand {
    /// Reads the words behind `brand`; `None` if they are not a name and parameters.
    pub(super) fn read(words: &[&[u8]]) -> Option<Self> {
        let (name, parameters) = words.split_first()?;
        let mut brand = Self {
            name: read_name(name)?,
            logo: None,
            imprint: None,
            site: None,
        };
        for parameter in parameters {
            let (slot, value) = if let Some(value) = parameter.strip_prefix(b"logo=") {
                (&mut brand.logo, Some(value).filter(|it| is_image(it)))
            } else if let Some(value) = parameter.strip_prefix(b"imprint=") {
                (&mut brand.imprint, Some(value).filter(|it| is_servable(it)))
            } else {
                let value = parameter.strip_prefix(b"site=")?;
                (&mut brand.site, Some(value).filter(|it| is_servable(it)))
            };
            if slot.replace(text(value?)).is_some() {
                return None;
            }
        }
        Some(brand)
    }

    /// The name, in any language.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the file of the logo.
    pub fn logo(&self) -> Option<&str> {
        self.logo.as_deref()
    }

    /// Returns the URL of the imprint, which is the legal notice of the owner.
    pub fn imprint(&self) -> Option<&str> {
        self.imprint.as_deref()
    }

    /// Returns the URL of the owner's website.
    pub fn site(&self) -> Option<&str> {
        self.site.as_deref()
    }
}

/// The announced name of no brand, where the name before has one.
const NONE: &str = "-";

/// The brands that nginx announces, one for each name in the same order, as [`announced_brands`] reads them: names with all
/// bytes but letters, digits and a few marks as `%` and two hexadecimal digits.
pub(super) fn announce<'a>(brands: impl Iterator<Item = Option<&'a Brand>>) -> String {
    let mut text = String::new();
    let mut last = None;
    for (place, brand) in brands.enumerate() {
        if place > 0 {
            text.push(',');
        }
        if brand == last {
            continue;
        }
        last = brand;
        match brand.map(Brand::name) {
            None => text.push_str(NONE),
            // It would be no brand.
            Some(NONE) => text.push_str("%2d"),
            Some(name) => push_escaped(name, &mut text),
        }
    }
    text
}

fn push_escaped(name: &str, text: &mut String) {
    for byte in name.bytes() {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' => text.push(byte.into()),
            _ => text.push_str(&format!("%{byte:02x}")),
        }
    }
}

/// Reads the brands that nginx announces, one for each name in the same order. An entry that is empty repeats the one
/// before it; `None` is no brand, or one that is not readable.
pub fn announced_brands(text: &str) -> impl Iterator<Item = Option<String>> {
    let mut last = None;
    text.split(',').map(move |entry| {
        match entry {
            "" => {}
            NONE => last = None,
            name => last = percent_decoded(name),
        }
        last.clone()
    })
}

/// A text with its escapes decoded; `None` if one of them is incomplete, or the text is not UTF-8.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut parts = text.split('%');
    bytes.extend(parts.next()?.bytes());
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend(part.get(2..)?.bytes());
    }
    String::from_utf8(bytes).ok()
}

/// A text that pages can show in one line. A `=` is that of a parameter before which the name is missing.
fn read_name(name: &[u8]) -> Option<String> {
    let name = core::str::from_utf8(name).ok()?;
    let is_shown = |it: char| !it.is_control() && it != '=' && !is_direction(it);
    let is_name = (1..=LONGEST_NAME).contains(&name.chars().count())
        && name.trim() == name
        && name != OFF
        && name.chars().all(is_shown);
    is_name.then(|| name.into())
}

/// Marks of the direction of text: one without its end would turn around what pages show behind it.
fn is_direction(it: char) -> bool {
    matches!(it, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns whether the name of a file is that of an image.
fn is_image(path: &[u8]) -> bool {
    let path = text(path).to_ascii_lowercase();
    LOGO_TYPES.split(' ').any(|kind| path.ends_with(kind))
}
