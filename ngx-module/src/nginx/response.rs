//! The answer to a request.

use std::ptr;

use ngx::ffi::{
    NGX_ERROR, NGX_OK, ngx_chain_t, ngx_create_temp_buf, ngx_http_output_filter,
    ngx_http_send_header, ngx_int_t, ngx_list_push, ngx_str_t, ngx_table_elt_t, ngx_uint_t,
};

use crate::nginx::pool::{PoolText, static_text};
use crate::nginx::request::Request;
use crate::nginx::status::Status;

/// The module's `Cache-Control`. Its address distinguishes it from the same text of others.
static NO_STORE: &str = "no-store";

/// Returns whether a header has the value that the module has given it.
///
/// # Safety
/// The header must be in the list of a request.
unsafe fn is_of_module(header: *const ngx_table_elt_t) -> bool {
    // SAFETY: as this function's own.
    ptr::eq(unsafe { (*header).value.data }, NO_STORE.as_ptr())
}

/// A static name of a header, with the same in lower case.
#[derive(Clone, Copy)]
pub(crate) struct HeaderName(&'static str, &'static str);

impl HeaderName {
    pub(crate) const ALLOW: Self = Self("Allow", "allow");
    pub(crate) const RETRY_AFTER: Self = Self("Retry-After", "retry-after");
    const CACHE_CONTROL: Self = Self("Cache-Control", "cache-control");
    const LOCATION: Self = Self("Location", "location");
}

impl Request {
    /// Adds a header; `None` when there is no memory.
    pub(crate) fn add_header(&self, name: HeaderName, value: &'static str) -> Option<()> {
        self.push_header(name, static_text(value)).map(|_| ())
    }

    /// Sets where a redirect leads; `None` when there is no memory.
    ///
    /// # Safety
    /// The text must have been copied to the pool of this request.
    #[inline]
    pub(crate) unsafe fn set_target(&self, target: PoolText) -> Option<()> {
        let header = self.push_header(HeaderName::LOCATION, target.raw())?;
        // SAFETY: the request is valid, and the header in its list.
        unsafe { (*self.raw()).headers_out.location = header };
        Some(())
    }

    /// Forbids to store the answer, also one that was prepared before and became another one by `error_page`, unless
    /// another module has said something else; `None` when there is no memory.
    pub(crate) fn forbid_storing(&self) -> Option<()> {
        let value = static_text(NO_STORE);
        let Some(header) = self.cache_control() else {
            let header = self.push_header(HeaderName::CACHE_CONTROL, value)?;
            return self.register_cache_control(header);
        };
        // SAFETY: the header is in the request's list.
        unsafe {
            if (*header).hash == 0 || is_of_module(header) {
                (*header).hash = 1;
                (*header).value = value;
            }
        }
        Some(())
    }

    /// Takes back what [`Request::forbid_storing`] has prepared for another answer.
    pub(crate) fn allow_storing(&self) {
        if let Some(header) = self.cache_control() {
            // SAFETY: the header is in the request's list; one without a hash is not sent.
            unsafe {
                if is_of_module(header) {
                    (*header).hash = 0;
                }
            }
        }
    }

    /// Leaves out what [`Request::forbid_storing`] has prepared if the answer has another `Cache-Control`.
    pub(super) fn yield_caching(&self) {
        let Some(own) = self.cache_control() else {
            return;
        };
        let is_other = |header: *mut ngx_table_elt_t| {
            // SAFETY: the header is in the request's list.
            let header = unsafe { (!ptr::eq(header, own)).then(|| &*header) };
            header.is_some_and(|header| {
                let name = header.key.as_bytes();
                header.hash != 0
                    && name.eq_ignore_ascii_case(HeaderName::CACHE_CONTROL.0.as_bytes())
            })
        };
        // SAFETY: the header is in the request's list.
        unsafe {
            if is_of_module(own) && self.sent_headers().any(is_other) {
                (*own).hash = 0;
            }
        }
    }

    /// The headers of the answer.
    fn sent_headers(&self) -> impl Iterator<Item = *mut ngx_table_elt_t> {
        // SAFETY: nginx keeps the headers in a list of arrays, which live as long as the request.
        let parts = unsafe {
            let first = &raw const (*self.raw()).headers_out.headers.part;
            std::iter::successors(first.as_ref(), |part| part.next.as_ref())
        };
        parts.flat_map(|part| {
            let first = part.elts.cast::<ngx_table_elt_t>();
            (0..part.nelts).map(move |place| first.wrapping_add(place))
        })
    }

    /// Sends the headers of an answer without a body.
    #[inline]
    pub(crate) fn send_empty(&self, status: u16) -> Status {
        // SAFETY: the request is valid.
        unsafe {
            let request = self.raw();
            (*request).headers_out.status = ngx_uint_t::from(status);
            (*request).headers_out.content_length_n = 0;
            (*request).set_header_only(1);
            Status::of(ngx_http_send_header(request))
        }
    }

    /// Sends a text with 200.
    pub(crate) fn send_text(&self, content_type: &'static str, text: &[u8]) -> Status {
        // SAFETY: the request is valid, and the type static.
        let result = unsafe {
            let request = self.raw();
            (*request).headers_out.status = 200;
            (*request).headers_out.content_length_n = text.len() as i64;
            (*request).headers_out.content_type = static_text(content_type);
            (*request).headers_out.content_type_len = content_type.len();
            ngx_http_send_header(request)
        };
        if result == NGX_ERROR as ngx_int_t || result > NGX_OK as ngx_int_t {
            return Status::of(result);
        }
        // SAFETY: the request is valid.
        match unsafe { (*self.raw()).header_only() } {
            0 => self.send_body(text),
            _ => Status::OK,
        }
    }

    fn send_body(&self, text: &[u8]) -> Status {
        // SAFETY: the request is valid. The buffer has the text's length and lives in the request's pool; nginx
        // copies the links of a chain that it keeps.
        unsafe {
            let buffer = ngx_create_temp_buf(self.pool().as_ptr(), text.len());
            if buffer.is_null() {
                return Status::ERROR;
            }
            let end = (*buffer).last;
            end.copy_from_nonoverlapping(text.as_ptr(), text.len());
            (*buffer).last = end.add(text.len());
            (*buffer).set_last_buf(u32::from(self.is_main()));
            (*buffer).set_last_in_chain(1);
            let mut chain = ngx_chain_t {
                buf: buffer,
                next: ptr::null_mut(),
            };
            Status::of(ngx_http_output_filter(self.raw(), &mut chain))
        }
    }

    /// Adds a header to the list; `None` when there is no memory. The value must live as long as the request.
    #[inline]
    fn push_header(&self, name: HeaderName, value: ngx_str_t) -> Option<*mut ngx_table_elt_t> {
        // SAFETY: the request is valid, so its list of headers is initialized; a pushed element is uninitialized
        // memory of the element's size, and all zeros is a valid element: newer versions have a field more, a
        // link to the next header of the same name. nginx reads names through these pointers and never writes
        // them.
        unsafe {
            let header = ngx_list_push(&raw mut (*self.raw()).headers_out.headers);
            let header = header.cast::<ngx_table_elt_t>().as_mut()?;
            ptr::write_bytes(header, 0, 1);
            header.hash = 1;
            header.key = static_text(name.0);
            header.lowcase_key = static_text(name.1).data;
            header.value = value;
            Some(header)
        }
    }
}

/// From nginx 1.23 on, headers of one name are linked.
#[cfg(nginx_linked_headers)]
impl Request {
    /// The answer's `Cache-Control`, if nginx knows of one.
    #[inline]
    fn cache_control(&self) -> Option<*mut ngx_table_elt_t> {
        // SAFETY: the request is valid.
        let header = unsafe { (*self.raw()).headers_out.cache_control };
        (!header.is_null()).then_some(header)
    }

    /// Registers a header as the answer's `Cache-Control`, so that `expires` and others change it instead of
    /// adding another one.
    #[inline]
    fn register_cache_control(&self, header: *mut ngx_table_elt_t) -> Option<()> {
        // SAFETY: the request is valid.
        unsafe { (*self.raw()).headers_out.cache_control = header };
        Some(())
    }
}

/// Before, they stood in an array.
#[cfg(not(nginx_linked_headers))]
impl Request {
    /// The answer's `Cache-Control`, if nginx knows of one.
    #[inline]
    fn cache_control(&self) -> Option<*mut ngx_table_elt_t> {
        // SAFETY: the request is valid; the array is zeroed until it has elements, which are pointers to headers.
        unsafe {
            let known = &raw const (*self.raw()).headers_out.cache_control;
            ((*known).nelts > 0).then(|| *(*known).elts.cast::<*mut ngx_table_elt_t>())
        }
    }

    /// Registers a header as the answer's `Cache-Control`, so that `expires` and others change it instead of
    /// adding another one.
    #[inline]
    fn register_cache_control(&self, header: *mut ngx_table_elt_t) -> Option<()> {
        // SAFETY: a null pointer is one.
        let place = unsafe { self.pool().zeroed::<*mut ngx_table_elt_t>() }?;
        // SAFETY: this is what nginx does for an array of one pointer; the array is empty, or the header would
        // have been found.
        unsafe {
            place.write(header);
            (*self.raw()).headers_out.cache_control = ngx::ffi::ngx_array_t {
                elts: place.as_ptr().cast(),
                nelts: 1,
                size: size_of::<*mut ngx_table_elt_t>(),
                nalloc: 1,
                pool: self.pool().as_ptr(),
            };
        }
        Some(())
    }
}
