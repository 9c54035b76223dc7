//! Databases in MaxMind's format: GeoLite2, GeoIP2, DB-IP and others of their shape.

use std::net::IpAddr;
use std::path::Path;

use maxminddb::{PathElement, Reader};
use shortlink_core::visit::place::{MAX_PLACE_TEXT, Place, PlaceSource};
use shortlink_core::visit::text::cut;

use super::watched::FileFault;

/// The language that all such databases have names in.
const EVERYWHERE: &str = "en";

/// A database of places or of networks.
pub(super) struct MaxMind {
    reader: Reader<Vec<u8>>,
}

/// An address' entry.
struct Entry<'a>(maxminddb::LookupResult<'a, Vec<u8>>);

impl MaxMind {
    /// Reads a database into memory.
    pub(super) fn open(path: &Path) -> Result<Self, FileFault> {
        let bytes = std::fs::read(path)?;
        let reader = Reader::from_source(bytes).map_err(FileFault::MaxMind)?;
        Ok(Self { reader })
    }

    fn entry(&self, address: IpAddr) -> Option<Entry<'_>> {
        // An IPv6 address in a database of IPv4 addresses is an error; here it is just unknown.
        let found = self.reader.lookup(address).ok()?;
        found.has_data().then_some(Entry(found))
    }

    /// Looks up the place of an address, with names in `language` where the database has them.
    pub(super) fn place(&self, address: IpAddr, language: &str) -> Place {
        use PathElement::{Index, Key};
        let Some(entry) = self.entry(address) else {
            return Place::default();
        };
        // The shape of MaxMind and DB-IP first, then the flat ones of others.
        let flat = |keys: [&str; 2]| keys.into_iter().find_map(|key| entry.text(&[Key(key)]));
        let country = entry.text(&[Key("country"), Key("iso_code")]);
        let country = country.or_else(|| flat(["country_code", "country"]));
        let country_name = entry.name(&[Key("country")], language);
        let province = entry.name(&[Key("subdivisions"), Index(0)], language);
        let city = entry.name(&[Key("city")], language);
        let mut place = Place {
            country: country.filter(|code| is_country_code(code)),
            country_name: country_name.or_else(|| flat(["country_name", "country_long"])),
            province: province.or_else(|| flat(["region", "state1"])),
            city: city.or_else(|| flat(["city", "city_name"])),
            ..Place::default()
        };
        if let Some(code) = &mut place.country {
            code.make_ascii_uppercase();
        }
        (place.isp, place.asn) = entry.network();
        if place.depth() > 0 {
            place.source = PlaceSource::MaxMind;
        }
        place
    }

    /// Looks up the provider of an address, and the number of its autonomous system.
    pub(super) fn network(&self, address: IpAddr) -> (Option<String>, Option<u32>) {
        let entry = self.entry(address);
        entry.map_or((None, None), |entry| entry.network())
    }
}

fn is_country_code(text: &str) -> bool {
    text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_alphabetic())
}

impl Entry<'_> {
    fn text(&self, path: &[PathElement<'_>]) -> Option<String> {
        // Something of another type at this place is of another shape: as if nothing was there.
        let text: &str = self.0.decode_path(path).ok()??;
        let mut text = text.trim().to_owned();
        if text.contains('\0') {
            text = text.replace('\0', "\u{fffd}");
        }
        cut(&mut text, MAX_PLACE_TEXT);
        (!text.is_empty()).then_some(text)
    }

    fn name(&self, of: &[PathElement<'_>], language: &str) -> Option<String> {
        let named = |language| {
            let names = [PathElement::Key("names"), PathElement::Key(language)];
            self.text(&[of, &names].concat())
        };
        named(language).or_else(|| (language != EVERYWHERE).then(|| named(EVERYWHERE))?)
    }

    fn network(&self) -> (Option<String>, Option<u32>) {
        use PathElement::Key;
        let isp = self.text(&[Key("isp")]);
        let isp = isp.or_else(|| self.text(&[Key("autonomous_system_organization")]));
        let isp = isp.or_else(|| self.text(&[Key("as_name")]));
        let number = self.0.decode_path(&[Key("autonomous_system_number")]);
        // IPinfo has a text such as AS64496.
        let number = number.ok().flatten().or_else(|| {
            let text = self.text(&[Key("asn")])?;
            text.strip_prefix("AS")?.parse().ok()
        });
        (isp, number)
    }
}
