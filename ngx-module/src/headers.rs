//! A request's headers that are not at hand.

use crate::nginx::request::Request;

/// Headers that nginx has no pointer to, or not in every build.
#[derive(Default)]
pub(crate) struct Headers<'a> {
    pub(crate) accept: Option<&'a [u8]>,
    pub(crate) accept_language: Option<&'a [u8]>,
    pub(crate) sec_purpose: Option<&'a [u8]>,
    pub(crate) purpose: Option<&'a [u8]>,
    pub(crate) x_purpose: Option<&'a [u8]>,
    pub(crate) x_moz: Option<&'a [u8]>,
    pub(crate) fetch_site: Option<&'a [u8]>,
    pub(crate) fetch_mode: Option<&'a [u8]>,
    pub(crate) fetch_dest: Option<&'a [u8]>,
    pub(crate) fetch_user: Option<&'a [u8]>,
}

impl<'a> Headers<'a> {
    /// Looks through a request's headers once; of those that come twice the first counts.
    pub(crate) fn of(request: &'a Request) -> Self {
        let mut found = Self::default();
        for (name, value) in request.headers() {
            // Most headers have another length than these and are not looked at.
            if !matches!(name.len(), 5..=7 | 9 | 11 | 14 | 15) {
                continue;
            }
            let place = match name {
                b"x-moz" => &mut found.x_moz,
                b"accept" => &mut found.accept,
                b"purpose" => &mut found.purpose,
                b"x-purpose" => &mut found.x_purpose,
                b"sec-purpose" => &mut found.sec_purpose,
                b"sec-fetch-site" => &mut found.fetch_site,
                b"sec-fetch-mode" => &mut found.fetch_mode,
                b"sec-fetch-dest" => &mut found.fetch_dest,
                b"sec-fetch-user" => &mut found.fetch_user,
                b"accept-language" => &mut found.accept_language,
                _ => continue,
            };
            if place.is_none() {
                *place = Some(value);
            }
        }
        found
    }

    /// The announced use of the answer; empty without one.
    pub(crate) fn announced_purpose(&self) -> &[u8] {
        let first = self.sec_purpose.or(self.purpose);
        first.or(self.x_purpose).or(self.x_moz).unwrap_or_default()
    }
}
