//! A line of the table: a name, its state, and its parameters.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::DomainError;
use super::base::{Base, BoundTo, MAX_WEIGHT};
use crate::campaign::CampaignId;
use crate::number::parse_decimal;
use crate::target::is_servable;

/// State of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DomainState {
    /// Follows links and is put into new short URLs.
    Active,
    /// Follows links.
    Serving,
    /// Was a short domain and answers 410, or what the operator has for that.
    Retired,
}

impl DomainState {
    /// The name of each state, for messages that list what is allowed.
    pub const NAMES: &'static str = "active, serving, retired";

    /// Finds a state by its name.
    pub fn by_name(name: &[u8]) -> Option<Self> {
        match name {
            b"active" => Some(Self::Active),
            b"serving" => Some(Self::Serving),
            b"retired" => Some(Self::Retired),
            _ => None,
        }
    }

    /// The letter that stands for the state where nginx says it of every domain.
    pub fn letter(self) -> char {
        match self {
            Self::Active => 'a',
            Self::Serving => 's',
            Self::Retired => 'r',
        }
    }

    /// Finds a state by its letter.
    pub fn by_letter(letter: char) -> Option<Self> {
        let all = [Self::Active, Self::Serving, Self::Retired];
        all.into_iter().find(|state| state.letter() == letter)
    }

    /// The state's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Serving => "serving",
            Self::Retired => "retired",
        }
    }
}

/// Answer of a retired domain instead of a bare 410.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Retirement {
    /// Redirects all visitors there.
    Target(String),
    /// The file of a page.
    Page(String),
}

/// A short domain. Parameters for one state are allowed in another: then a swap changes one word.
#[derive(Clone, Debug)]
pub struct Domain {
    name: String,
    state: DomainState,
    base: Base,
    retirement: Option<Retirement>,
    unknown: Option<String>,
    home: Option<String>,
    brand: Option<String>,
    certificate: Option<String>,
}

impl Domain {
    /// Reads a name, and a state with parameters.
    pub(super) fn read(name: &[u8], rest: &[&[u8]]) -> Result<Self, DomainError> {
        let lower = text(name).to_ascii_lowercase();
        if !is_name(lower.as_bytes()) {
            return Err(DomainError::Name(text(name)));
        }
        let [state, parameters @ ..] = rest else {
            return Err(DomainError::NoState(lower));
        };
        let state = DomainState::by_name(state).ok_or_else(|| DomainError::State(text(state)))?;
        let said = Said::read(parameters)?;
        let domain = Self {
            state,
            base: said.base(&lower),
            retirement: said.retirement,
            unknown: said.unknown,
            home: said.home,
            brand: said.brand,
            certificate: said.certificate,
            name: lower,
        };
        if domain.is_wildcard() && state == DomainState::Active {
            return Err(DomainError::ActiveWildcard(domain.name));
        }
        Ok(domain)
    }

    /// The host name, in lower case; a wildcard begins with `*.`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its state.
    pub fn state(&self) -> DomainState {
        self.state
    }

    /// Returns the prefix of short URLs while it is active.
    pub fn base(&self) -> &Base {
        &self.base
    }

    /// The prefix of short URLs with a host that it stands for.
    pub fn base_of(&self, host: &[u8]) -> Vec<u8> {
        let (scheme, rest) = self.base.url.split_once(self.name()).unwrap_or_default();
        [scheme.as_bytes(), host, rest.as_bytes()].concat()
    }

    /// Returns its answer when it is retired.
    pub fn retirement(&self) -> Option<&Retirement> {
        self.retirement.as_ref()
    }

    /// Returns where visitors of unknown codes are redirected while it follows links, if the table says so.
    pub fn unknown_target(&self) -> Option<&str> {
        let target = self.unknown.as_deref();
        target.filter(|_| self.state != DomainState::Retired)
    }

    /// Returns where visitors without a code are redirected while it follows links, if the table says so.
    pub fn home_target(&self) -> Option<&str> {
        let target = self.home.as_deref();
        target.filter(|_| self.state != DomainState::Retired)
    }

    /// The name of its brand, if its line has one.
    pub(super) fn brand(&self) -> Option<&str> {
        self.brand.as_deref()
    }

    /// Reports whether it stands for all names below one.
    pub fn is_wildcard(&self) -> bool {
        self.name.starts_with("*.")
    }

    /// The name without `*.`: what is filed by domain is filed under it.
    pub fn base_name(&self) -> &str {
        self.name.strip_prefix("*.").unwrap_or(&self.name)
    }

    /// The name that its certificate is filed under, which the table may say.
    pub fn certificate_name(&self) -> &str {
        self.certificate.as_deref().unwrap_or(self.base_name())
    }

    /// Reports whether the name can have a certificate of the usual kind: addresses and names of
    /// one machine can't.
    pub fn is_public(&self) -> bool {
        let own = self.base_name();
        let last = own.rsplit('.').next().unwrap_or_default();
        own.contains('.') && !own.starts_with('[') && !last.bytes().all(|it| it.is_ascii_digit())
    }
}

/// Values of the parameters.
#[derive(Default)]
struct Said {
    scheme: Option<&'static str>,
    port: Option<u64>,
    weight: Option<u32>,
    bound: Option<BoundTo>,
    retirement: Option<Retirement>,
    unknown: Option<String>,
    home: Option<String>,
    brand: Option<String>,
    certificate: Option<String>,
}

impl Said {
    fn read(parameters: &[&[u8]]) -> Result<Self, DomainError> {
        let mut said = Self::default();
        for parameter in parameters {
            said.take(parameter)?;
        }
        Ok(said)
    }

    fn take(&mut self, parameter: &[u8]) -> Result<(), DomainError> {
        let refused = || DomainError::Parameter(text(parameter));
        let equals = parameter.iter().position(|&byte| byte == b'=');
        let (name, value) = parameter.split_at(equals.ok_or_else(refused)?);
        let value = &value[1..];
        let number = |most| parse_decimal(value).filter(|it| (1..=most).contains(it));
        let is_new = match name {
            b"scheme" => {
                let scheme = match value {
                    b"http" => "http",
                    b"https" => "https",
                    _ => return Err(refused()),
                };
                self.scheme.replace(scheme).is_none()
            }
            b"port" => {
                let port = number(65535).ok_or_else(refused)?;
                self.port.replace(port).is_none()
            }
            b"weight" => {
                let weight = number(MAX_WEIGHT.into()).ok_or_else(refused)?;
                self.weight.replace(weight as u32).is_none()
            }
            b"campaign" => {
                let id = CampaignId::parse(value).ok_or_else(refused)?;
                self.bound.replace(BoundTo::Campaign(id)).is_none()
            }
            b"key" => {
                let key = BoundTo::key(value).ok_or_else(refused)?;
                self.bound.replace(key).is_none()
            }
            b"target" if is_servable(value) => {
                let target = Retirement::Target(text(value));
                self.retirement.replace(target).is_none()
            }
            b"page" if !value.is_empty() => {
                let page = Retirement::Page(text(value));
                self.retirement.replace(page).is_none()
            }
            b"unknown" if is_servable(value) => self.unknown.replace(text(value)).is_none(),
            b"home" if is_servable(value) => self.home.replace(text(value)).is_none(),
            b"brand" if !value.is_empty() => self.brand.replace(text(value)).is_none(),
            b"certificate" if is_name(value) && !value.starts_with(b"*") => {
                self.certificate.replace(text(value)).is_none()
            }
            _ => return Err(refused()),
        };
        if is_new {
            Ok(())
        } else {
            Err(DomainError::Conflict(text(parameter)))
        }
    }

    /// Returns the prefix of the short URLs of a name.
    fn base(&self, name: &str) -> Base {
        let scheme = self.scheme.unwrap_or("https");
        let url = match self.port {
            Some(port) => format!("{scheme}://{name}:{port}"),
            None => format!("{scheme}://{name}"),
        };
        Base {
            url,
            weight: self.weight.unwrap_or(1),
            bound: self.bound.clone(),
        }
    }
}

/// Reports whether a name is a host as nginx normalises it: lower-case letters, digits, hyphens and
/// dots, or an IPv6 address in brackets; or `*.` and such a name.
fn is_name(name: &[u8]) -> bool {
    if let [b'[', address @ .., b']'] = name {
        return !address.is_empty()
            && address
                .iter()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b':' | b'.'));
    }
    let name = name.strip_prefix(b"*.").unwrap_or(name);
    name.len() <= 253
        && name.split(|&byte| byte == b'.').all(|label| {
            (1..=63).contains(&label.len())
                && label
                    .iter()
                    .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'))
                && label[0] != b'-'
                && label[label.len() - 1] != b'-'
        })
}

/// Bytes as they are shown.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
