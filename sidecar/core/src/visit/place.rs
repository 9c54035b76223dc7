//! Locations of clients.

use std::net::IpAddr;

use super::class::networks::Network;
use crate::named;

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

named! {
    /// Source of a place.
    #[derive(Default)]
    pub enum PlaceSource: "source of places" {
        /// Nowhere: no source is configured, or none knows the address.
        #[default]
        None = "none",
        /// A database in MaxMind's format.
        MaxMind = "maxmind",
        /// A database in ip2region's format.
        Ip2Region = "ip2region",
    }
}

impl Place {
    /// The client's network.
    pub fn network(&self) -> Network<'_> {
        Network {
            name: self.isp.as_deref(),
            asn: self.asn,
        }
    }

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
