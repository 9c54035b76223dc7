//! Where clients are.

use std::net::IpAddr;

/// The most bytes kept of each text of a place.
pub const MAX_PLACE_TEXT: usize = 128;

/// Where a client is, as far as it is known. Names are as the source has them, in its language.
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
    /// Who connects the client to the Internet.
    pub isp: Option<String>,
    /// The number of the autonomous system that the address belongs to.
    pub asn: Option<u32>,
    /// Where the country, province and city come from.
    pub source: PlaceSource,
}

/// Where a place comes from.
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
    /// How much is known: more for a city than for a province, more for it than for a country.
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

/// Knows where addresses are.
pub trait Places: Send + Sync {
    /// Where an address is: [`Place::default`] when that is not known. Never waits for anything.
    fn place(&self, address: IpAddr) -> Place;
}
