//! A request's headers that are not at hand.

use std::slice;

use ngx::ffi::{ngx_http_request_t, ngx_table_elt_t};

/// Headers that nginx has no pointer to, or not in every build.
#[derive(Default)]
pub(crate) struct Headers<'a> {
    pub(crate) accept_language: Option<&'a [u8]>,
    pub(crate) sec_purpose: Option<&'a [u8]>,
    pub(crate) purpose: Option<&'a [u8]>,
}

impl Headers<'_> {
    /// Looks through a request's headers; of those that come twice the first counts.
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
                    let (place, name): (_, &[u8]) = match header.key.len {
                        7 => (&mut found.purpose, b"purpose"),
                        11 => (&mut found.sec_purpose, b"sec-purpose"),
                        15 => (&mut found.accept_language, b"accept-language"),
                        _ => continue,
                    };
                    if place.is_none()
                        && !header.lowcase_key.is_null()
                        && slice::from_raw_parts(header.lowcase_key, name.len()) == name
                    {
                        *place = Some(header.value.as_bytes());
                    }
                }
            }
        }
        found
    }
}
