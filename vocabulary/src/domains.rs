//! The short domains: the table of `domains.conf`, and the part of it that the sidecar gets.
//!
//! Only nginx knows domains. Links and codes do not: a domain is swapped by editing this table and
//! reloading.

mod base;
mod brand;
mod entry;

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

pub use base::{Base, BoundTo, MAX_WEIGHT};
pub use brand::{Brand, announced_brands};
pub use entry::{Domain, DomainState, Retirement};

/// Reason for the refusal of an entry or the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DomainError {
    /// The name is not a host name.
    Name(String),
    /// The name stands in the table already.
    Twice(String),
    /// Nothing stands behind the name.
    NoState(String),
    /// The state is none.
    State(String),
    /// The parameter is none.
    Parameter(String),
    /// The parameter stands there already, or another that it does not go with.
    Conflict(String),
    /// A wildcard can't be put into short URLs.
    ActiveWildcard(String),
    /// No domain is active for all links, so that new ones could not be given a short URL.
    NoneActive,
    /// A line about certificates is not one.
    Certificate(String),
    /// A line about a brand is not one.
    Brand(String),
    /// The brand stands in the table already.
    BrandTwice(String),
    /// No brand above has the name.
    UnknownBrand(String),
}

impl fmt::Display for DomainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(
                f,
                "\"{name}\" is not a domain: give only the host name, or *. and a host name, \
                 without scheme, port or path"
            ),
            Self::Twice(name) => write!(f, "domain \"{name}\" is listed twice"),
            Self::NoState(name) => write!(
                f,
                "domain \"{name}\" has no state: it is one of {}",
                DomainState::NAMES
            ),
            Self::State(state) => write!(
                f,
                "unknown state \"{state}\" of a domain: it is one of {}",
                DomainState::NAMES
            ),
            Self::Parameter(parameter) => write!(
                f,
                "\"{parameter}\" is not a valid parameter of a domain: allowed are scheme=http, scheme=https, \
                 port=1 to port=65535, weight=1 to weight={MAX_WEIGHT}, campaign=<id>, key=<id>, \
                 target=<URL that begins with http:// or https://>, page=<file>, unknown=<URL>, home=<URL>, \
                 brand=<name> and certificate=<name>"
            ),
            Self::Conflict(parameter) => write!(
                f,
                "\"{parameter}\" is one parameter too many: a domain has each parameter once, \
                 either campaign or key, and either target or page"
            ),
            Self::ActiveWildcard(name) => write!(
                f,
                "\"{name}\" can't be active: short URLs need a whole name; wildcards are serving or \
                 retired"
            ),
            Self::NoneActive => f.write_str(
                "no domain is active for all links: new links would have no short URL (a name with \
                 campaign= or key= is only for those)",
            ),
            Self::Certificate(line) => write!(
                f,
                "\"{line}\": give certificate and certificate_key once each, with one path that has a \
                 * where the domain's name stands"
            ),
            Self::Brand(line) => write!(
                f,
                "\"{line}\": give the name of the brand (1 to {} characters, not {}, without = and control \
                 characters), then logo=<file> ({}), imprint=<URL> and site=<URL>, each at most once; a URL \
                 begins with http:// or https://",
                brand::LONGEST_NAME,
                brand::OFF,
                brand::LOGO_TYPES
            ),
            Self::BrandTwice(name) => write!(f, "brand \"{name}\" is listed twice"),
            Self::UnknownBrand(name) => write!(
                f,
                "unknown brand \"{name}\": it is {}, or the name in a line brand above this one",
                brand::OFF
            ),
        }
    }
}

impl core::error::Error for DomainError {}

/// A path that has the name of each domain in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern(String);

impl PathPattern {
    /// The path for a name.
    pub fn of(&self, name: &str) -> String {
        self.0.replace('*', name)
    }
}

/// The table of short domains.
#[derive(Clone, Debug, Default)]
pub struct Domains {
    /// In the order of the table.
    domains: Vec<Domain>,
    /// The places in `domains`, in the order of their names.
    sorted: Vec<usize>,
    has_wildcards: bool,
    bases: String,
    names: String,
    states: String,
    announced_brands: String,
    certificate: Option<PathPattern>,
    certificate_key: Option<PathPattern>,
    /// The first is that of domains that name none.
    brands: Vec<Brand>,
}

impl Domains {
    /// Adds a line of the table: `certificate <path>`, `certificate_key <path>`, `brand <name>` with
    /// parameters, or a name, its state, and parameters. `to_ascii` converts a name in Unicode to the form that browsers
    /// request (UTS #46); it is called for no other.
    ///
    /// # Errors
    /// Fails if the line is invalid; the table is unchanged.
    pub fn add(
        &mut self,
        words: &[&[u8]],
        to_ascii: impl Fn(&str) -> Option<String>,
    ) -> Result<(), DomainError> {
        match words {
            [] => Ok(()),
            [b"certificate", paths @ ..] => pattern(&mut self.certificate, words, paths),
            [b"certificate_key", paths @ ..] => pattern(&mut self.certificate_key, words, paths),
            [b"brand", rest @ ..] => {
                let brand = Brand::read(rest).ok_or_else(|| DomainError::Brand(shown(words)))?;
                if self.brand(brand.name()).is_some() {
                    return Err(DomainError::BrandTwice(brand.name().to_owned()));
                }
                self.brands.push(brand);
                Ok(())
            }
            [name, rest @ ..] if name.is_ascii() => self.add_domain(Domain::read(name, rest)?),
            [name, rest @ ..] => {
                let ascii = in_ascii(name, to_ascii);
                let ascii = ascii.ok_or_else(|| DomainError::Name(entry::text(name)))?;
                self.add_domain(Domain::read(ascii.as_bytes(), rest)?)
            }
        }
    }

    fn add_domain(&mut self, domain: Domain) -> Result<(), DomainError> {
        let found = self
            .sorted
            .binary_search_by(|&place| self.domains[place].name().cmp(domain.name()));
        let place = match found {
            Ok(_) => return Err(DomainError::Twice(domain.name().to_owned())),
            Err(place) => place,
        };
        if let Some(name) = domain.brand()
            && name != brand::OFF
            && self.brand(name).is_none()
        {
            return Err(DomainError::UnknownBrand(name.to_owned()));
        }
        if domain.state() == DomainState::Active {
            if !self.bases.is_empty() {
                self.bases.push(',');
            }
            domain.base().push_to(&mut self.bases);
        }
        if !self.names.is_empty() {
            self.names.push(',');
        }
        self.names.push_str(domain.name());
        self.states.push(domain.state().letter());
        self.has_wildcards |= domain.is_wildcard();
        self.sorted.insert(place, self.domains.len());
        self.domains.push(domain);
        Ok(())
    }

    /// Checks the complete table, and announces the brands of its names: the first brand is also that of names above it.
    ///
    /// # Errors
    /// Fails if no domain is active for all links.
    pub fn finish(&mut self) -> Result<(), DomainError> {
        let brands = self.domains.iter().map(|domain| self.brand_of(domain));
        self.announced_brands = brand::announce(brands);
        let for_all = self
            .domains
            .iter()
            .any(|domain| domain.state() == DomainState::Active && domain.base().bound.is_none());
        if for_all {
            Ok(())
        } else {
            Err(DomainError::NoneActive)
        }
    }

    /// Finds the entry of a host, as nginx normalised it (lower case, without port and final dot):
    /// its own, or that of the longest wildcard that it is below.
    #[inline]
    pub fn find(&self, host: &[u8]) -> Option<&Domain> {
        self.find_entry(|name| name.cmp(host))
            .or_else(|| self.find_wildcard(host))
    }

    fn find_wildcard(&self, host: &[u8]) -> Option<&Domain> {
        if !self.has_wildcards {
            return None;
        }
        let dots = host.iter().enumerate().filter(|(_, byte)| **byte == b'.');
        // A name that begins with a dot has no label that the `*` could stand for.
        dots.filter(|(place, _)| *place > 0).find_map(|(place, _)| {
            let below = host[place..].iter();
            self.find_entry(|name| name.iter().cmp([b'*'].iter().chain(below.clone())))
        })
    }

    fn find_entry(&self, order: impl Fn(&[u8]) -> core::cmp::Ordering) -> Option<&Domain> {
        let place = self
            .sorted
            .binary_search_by(|&place| order(self.domains[place].name().as_bytes()))
            .ok()?;
        Some(&self.domains[self.sorted[place]])
    }

    /// Returns the brand of an entry: the one that its line names, or else the first of the table.
    pub fn brand_of(&self, domain: &Domain) -> Option<&Brand> {
        match domain.brand() {
            Some(name) => self.brand(name),
            None => self.brands.first(),
        }
    }

    /// The brands in the order of the table.
    pub fn brands(&self) -> &[Brand] {
        &self.brands
    }

    fn brand(&self, name: &str) -> Option<&Brand> {
        self.brands.iter().find(|brand| brand.name() == name)
    }

    /// The entries in the order of the table.
    pub fn entries(&self) -> &[Domain] {
        &self.domains
    }

    /// Returns the prefixes of new short URLs, as [`Base::parse_all`] reads them, of all active
    /// domains.
    pub fn bases(&self) -> &str {
        &self.bases
    }

    /// Returns all names, separated by commas.
    pub fn names(&self) -> &str {
        &self.names
    }

    /// The letter of each state ([`DomainState::letter`]), in the order of [`Domains::names`].
    pub fn states(&self) -> &str {
        &self.states
    }

    /// Returns the brand of each of [`Domains::names`], as [`announced_brands`] reads them; empty before
    /// [`Domains::finish`].
    pub fn announced_brands(&self) -> &str {
        &self.announced_brands
    }

    /// Returns the paths of the certificates and their keys, if the table has them.
    ///
    /// # Errors
    /// Fails if it has only one of them.
    pub fn certificates(&self) -> Result<Option<(&PathPattern, &PathPattern)>, DomainError> {
        match (&self.certificate, &self.certificate_key) {
            (None, None) => Ok(None),
            (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
            (Some(_), None) => Err(DomainError::Certificate("certificate".to_owned())),
            (None, Some(_)) => Err(DomainError::Certificate("certificate_key".to_owned())),
        }
    }
}

/// A name in Unicode as browsers ask for it; a wildcard's `*` stands for itself.
fn in_ascii(name: &[u8], to_ascii: impl Fn(&str) -> Option<String>) -> Option<String> {
    let name = core::str::from_utf8(name).ok()?;
    let (wildcard, name) = match name.strip_prefix("*.") {
        Some(name) => ("*.", name),
        None => ("", name),
    };
    Some([wildcard, &to_ascii(name)?].concat())
}

/// A line as it is shown.
fn shown(words: &[&[u8]]) -> String {
    entry::text(&words.join(&b' '))
}

/// Sets a path with a `*` once.
fn pattern(
    slot: &mut Option<PathPattern>,
    words: &[&[u8]],
    paths: &[&[u8]],
) -> Result<(), DomainError> {
    let refused = || DomainError::Certificate(shown(words));
    match paths {
        [path] if slot.is_none() && path.contains(&b'*') => {
            *slot = Some(PathPattern(entry::text(path)));
            Ok(())
        }
        _ => Err(refused()),
    }
}

#[cfg(test)]
mod tests;
