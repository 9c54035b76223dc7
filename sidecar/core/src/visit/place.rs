//! Locations of clients.

use std::net::IpAddr;

/// The most bytes stored of each text of a place.
pub const MAX_PLACE_TEXT: usize = 128;

/// A client's location, as far as known. Names are in the source's language.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The country's code, two letters of ISO 3166 in upper case.
    pub country: Option<String>,
    /// The country's name.
    pub country_name: Option<String>,
    /// The province, state or region.
    pub province: Option<String>,
    /// The city.
    pub city: Option<String>,
    /// Provider of the client's Internet access.
    pub isp: Option<String>,
    /// The number of the autonomous system that the address belongs to.
    pub asn: Option<u32>,
    /// Source of the country, province and city.
    pub source: PlaceSource,
}

/// Source of a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlaceSource {
    /// Nowhere: no source is configured, or none knows the address.
    #[default]
    None,
    /// A database in MaxMind's format.
    MaxMind,
    /// A database in ip2region's format.
    Ip2Region,
}

impl PlaceSource {
    /// The source's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::MaxMind => "maxmind",
            Self::Ip2Region => "ip2region",
        }
    }

    /// The source with a name.
    pub fn by_name(name: &str) -> Option<Self> {
        let all = [Self::None, Self::MaxMind, Self::Ip2Region];
        all.into_iter().find(|source| source.name() == name)
    }
}

impl Place {
    /// Returns the precision: a city ranks above a province, which ranks above a country.
    pub fn depth(&self) -> u8 {
        if self.city.is_some() {
            3
        } else if self.province.is_some() {
            2
        } else {
            u8::from(self.country.is_some() || self.country_name.is_some())
        }
    }
}

/// Locates addresses.
pub trait Places: Send + Sync {
    /// Looks up an address: [`Place::default`] if its location is unknown. Never blocks.
    fn place(&self, address: IpAddr) -> Place;
}
