//! A request's headers that are not at hand.

use std::slice;

use ngx::ffi::{ngx_http_request_t, ngx_table_elt_t};

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

impl Headers<'_> {
    /// Looks through a request's headers once; of those that come twice the first counts.
    ///
    /// # Safety
    /// `request` must be valid; what is found lives as long as it.
    pub(crate) unsafe fn of(request: *mut ngx_http_request_t) -> Self {
        let mut found = Self::default();
        // SAFETY: as this function's own: nginx keeps the headers in a list of arrays, whose keys
        // stand in lower case beside them. A request without headers has an empty array.
        unsafe {
            let mut part = &raw const (*request).headers_in.headers.part;
            while let Some(array) = part.as_ref() {
                part = array.next;
                if array.elts.is_null() {
                    continue;
                }
                for header in slice::from_raw_parts(array.elts.cast(), array.nelts) {
                    let header: &ngx_table_elt_t = header;
                    // Most headers have another length than these and are not looked at.
                    if !matches!(header.key.len, 5..=7 | 9 | 11 | 14 | 15)
                        || header.lowcase_key.is_null()
                    {
                        continue;
                    }
                    let name: &[u8] = slice::from_raw_parts(header.lowcase_key, header.key.len);
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
                        *place = Some(header.value.as_bytes());
                    }
                }
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
