//! Databases in ip2region's format, xdb, of versions 2 and 3.
//!
//! ```text
//! header(256)   version(2) policy(2) made(4) first entry(4) last entry(4) IP version(2) …
//! index(512 K)  for each of the first two bytes of an address: first(4) end(4) of its entries
//! regions       texts, `中国|广东省|深圳市|电信|CN`
//! entries       first address, last address, length of the region(2), its place(4)
//! ```
//!
//! Numbers are little endian, and so are IPv4 addresses; IPv6 addresses are big endian. Version 2
//! knows only IPv4; version 3 has a file for each version of IP.

use std::net::IpAddr;
use std::path::Path;

use shortlink_core::visit::place::{MAX_PLACE_TEXT, Place, PlaceSource};
use shortlink_core::visit::text::kept;

use super::watched::FileFault;

const HEADER: usize = 256;
const INDEX: usize = 256 * 256 * 8;

/// A database.
pub(super) struct Xdb {
    bytes: Vec<u8>,
    /// The length of addresses in bytes.
    width: usize,
}

impl Xdb {
    /// Reads a database into memory.
    pub(super) fn open(path: &Path) -> Result<Self, FileFault> {
        Self::new(std::fs::read(path)?).map_err(FileFault::Xdb)
    }

    fn new(bytes: Vec<u8>) -> Result<Self, &'static str> {
        if bytes.len() < HEADER + INDEX {
            return Err("it is too short");
        }
        let mut xdb = Self { bytes, width: 4 };
        xdb.width = match (xdb.short(0), xdb.short(16)) {
            (Some(2), _) | (Some(3), Some(4)) => 4,
            (Some(3), Some(6)) => 16,
            (Some(3), _) => return Err("it is for no version of IP"),
            _ => return Err("it is of an unknown version"),
        };
        // Entries stand last: a file that was not written to its end has not got them all.
        let last = xdb
            .long(12)
            .and_then(|last| last.checked_add(xdb.entry_length()));
        if last.is_none_or(|end| end > xdb.bytes.len()) {
            return Err("its end is missing");
        }
        Ok(xdb)
    }

    fn entry_length(&self) -> usize {
        2 * self.width + 6
    }

    fn short(&self, place: usize) -> Option<u16> {
        let bytes = self.bytes.get(place..)?.first_chunk()?;
        Some(u16::from_le_bytes(*bytes))
    }

    fn long(&self, place: usize) -> Option<usize> {
        let bytes = self.bytes.get(place..)?.first_chunk()?;
        usize::try_from(u32::from_le_bytes(*bytes)).ok()
    }

    fn address(&self, place: usize) -> Option<u128> {
        if self.width == 4 {
            return self.long(place).map(|address| address as u128);
        }
        let bytes = self.bytes.get(place..)?.first_chunk()?;
        Some(u128::from_be_bytes(*bytes))
    }

    /// The region of an address, as it stands in the database.
    fn region(&self, address: IpAddr) -> Option<&[u8]> {
        let (sought, bucket) = match (address, self.width) {
            (IpAddr::V4(address), 4) => (address.to_bits().into(), address.to_bits() >> 16),
            (IpAddr::V6(address), 16) => (address.to_bits(), (address.to_bits() >> 112) as u32),
            _ => return None,
        };
        let place = HEADER + usize::try_from(bucket).ok()? * 8;
        let (first, end) = (self.long(place)?, self.long(place + 4)?);
        let length = self.entry_length();
        // Writers differ in whether the end is that of the last entry or its beginning. One entry
        // too many does no harm: entries are in order throughout.
        let (mut low, mut high) = (0, end.checked_sub(first)? / length + 1);
        while low < high {
            let middle = usize::midpoint(low, high);
            let entry = first + middle * length;
            let range = self.address(entry).zip(self.address(entry + self.width));
            match range {
                Some((from, _)) if sought < from => high = middle,
                Some((_, to)) if sought > to => low = middle + 1,
                Some(_) => {
                    let size = self.short(entry + 2 * self.width)?;
                    let text = self.long(entry + 2 * self.width + 2)?;
                    return self.bytes.get(text..text.checked_add(size.into())?);
                }
                None => high = middle,
            }
        }
        None
    }

    /// Looks up the place of an address.
    pub(super) fn place(&self, address: IpAddr) -> Place {
        self.region(address).map(parsed).unwrap_or_default()
    }
}

/// Reads a region. There are two forms: `country|province|city|ISP|code` (the code may be missing),
/// and that of older databases, `country|area|province|city|ISP`, where the area is not used.
fn parsed(region: &[u8]) -> Place {
    let parts: Vec<&[u8]> = region.split(|&byte| byte == b'|').collect();
    let part = |place: usize| parts.get(place).and_then(|part| named(part));
    let code = part(4).filter(|code| is_country_code(code));
    let is_old = parts.len() >= 5 && code.is_none() && parts[1] == b"0";
    let shift = usize::from(is_old);
    let country_name = part(0);
    let mut place = Place {
        country: code.or_else(|| country_name.as_deref().and_then(country_code)),
        country_name,
        province: part(1 + shift),
        city: part(2 + shift),
        isp: part(3 + shift),
        ..Place::default()
    };
    if place.depth() > 0 {
        place.source = PlaceSource::Ip2Region;
    }
    place
}

fn named(part: &[u8]) -> Option<String> {
    let text = kept(part.trim_ascii(), MAX_PLACE_TEXT);
    // Placeholders for unassigned addresses and private networks.
    let is_none = matches!(
        &*text,
        "" | "0" | "Reserved" | "\u{5185}\u{7f51}IP" | "\u{4fdd}\u{7559}"
    );
    (!is_none).then_some(text)
}

fn is_country_code(text: &str) -> bool {
    text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_uppercase())
}

/// The code of a country that an older database has the Chinese name of: those that most visitors
/// come from.
fn country_code(name: &str) -> Option<String> {
    const CODES: [(&str, &str); 40] = [
        ("中国", "CN"),
        ("美国", "US"),
        ("日本", "JP"),
        ("韩国", "KR"),
        ("新加坡", "SG"),
        ("马来西亚", "MY"),
        ("泰国", "TH"),
        ("越南", "VN"),
        ("菲律宾", "PH"),
        ("印度尼西亚", "ID"),
        ("印度", "IN"),
        ("巴基斯坦", "PK"),
        ("孟加拉", "BD"),
        ("澳大利亚", "AU"),
        ("新西兰", "NZ"),
        ("加拿大", "CA"),
        ("墨西哥", "MX"),
        ("巴西", "BR"),
        ("阿根廷", "AR"),
        ("智利", "CL"),
        ("哥伦比亚", "CO"),
        ("英国", "GB"),
        ("德国", "DE"),
        ("法国", "FR"),
        ("意大利", "IT"),
        ("西班牙", "ES"),
        ("葡萄牙", "PT"),
        ("荷兰", "NL"),
        ("比利时", "BE"),
        ("瑞士", "CH"),
        ("奥地利", "AT"),
        ("瑞典", "SE"),
        ("波兰", "PL"),
        ("乌克兰", "UA"),
        ("俄罗斯", "RU"),
        ("土耳其", "TR"),
        ("阿联酋", "AE"),
        ("沙特阿拉伯", "SA"),
        ("埃及", "EG"),
        ("南非", "ZA"),
    ];
    let found = CODES.iter().find(|(known, _)| *known == name);
    found.map(|(_, code)| (*code).to_owned())
}

#[cfg(test)]
pub(super) mod tests;
