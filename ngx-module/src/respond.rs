//! Answers: headers without a body for redirects, nginx' own pages for the rest.

use std::ptr;

use ngx::ffi::{
    NGX_ERROR, NGX_HTTP_NOT_ALLOWED, NGX_HTTP_NOT_FOUND, NGX_HTTP_SERVICE_UNAVAILABLE,
    NGX_HTTP_TOO_MANY_REQUESTS, ngx_http_request_t, ngx_http_send_header, ngx_int_t, ngx_list_push,
    ngx_str_t, ngx_table_elt_t, ngx_uint_t,
};
use resolver::vocabulary::RedirectStatus;

/// 410 Gone, which nginx has a page but no name for.
const GONE: ngx_int_t = 410;

/// Sends a redirect without a body. The result is for `ngx_http_finalize_request`.
///
/// # Safety
/// `request` must be valid and unanswered; `target` must live as long as the request's pool.
pub(crate) unsafe fn redirect(
    request: *mut ngx_http_request_t,
    status: RedirectStatus,
    target: ngx_str_t,
) -> ngx_int_t {
    // SAFETY: as this function's own; the header's texts are static or live with the pool.
    unsafe {
        let Some(location) = add_header(request, "Location", "location", target) else {
            return NGX_ERROR as ngx_int_t;
        };
        (*request).headers_out.location = location;
        if status.is_permanent() {
            may_store(request);
        } else if no_store(request).is_none() {
            return NGX_ERROR as ngx_int_t;
        }
        (*request).headers_out.status = ngx_uint_t::from(status.code());
        (*request).headers_out.content_length_n = 0;
        (*request).set_header_only(1);
        ngx_http_send_header(request)
    }
}

/// Prepares 410. The result of these functions is for `ngx_http_finalize_request`, which adds
/// nginx' page or the configured `error_page`.
///
/// # Safety
/// `request` must be valid and unanswered.
pub(crate) unsafe fn gone(request: *mut ngx_http_request_t) -> ngx_int_t {
    // SAFETY: as this function's own.
    unsafe { no_store(request) }.map_or(NGX_ERROR as ngx_int_t, |()| GONE)
}

/// Prepares 404.
///
/// # Safety
/// As for [`gone`].
pub(crate) unsafe fn not_found(request: *mut ngx_http_request_t) -> ngx_int_t {
    // SAFETY: as this function's own.
    unsafe { no_store(request) }
        .map_or(NGX_ERROR as ngx_int_t, |()| NGX_HTTP_NOT_FOUND as ngx_int_t)
}

/// Prepares 503: it is uncertain whether the link exists.
///
/// # Safety
/// As for [`gone`].
pub(crate) unsafe fn unavailable(request: *mut ngx_http_request_t) -> ngx_int_t {
    // SAFETY: as this function's own.
    let prepared = unsafe {
        no_store(request)
            .and_then(|()| add_header(request, "Retry-After", "retry-after", text("2")))
    };
    prepared.map_or(NGX_ERROR as ngx_int_t, |_| {
        NGX_HTTP_SERVICE_UNAVAILABLE as ngx_int_t
    })
}

/// Prepares 429: the address has asked for too much that does not exist.
///
/// # Safety
/// As for [`gone`].
pub(crate) unsafe fn too_many(request: *mut ngx_http_request_t) -> ngx_int_t {
    // SAFETY: as this function's own.
    let prepared = unsafe {
        no_store(request)
            .and_then(|()| add_header(request, "Retry-After", "retry-after", text("60")))
    };
    prepared.map_or(NGX_ERROR as ngx_int_t, |_| {
        NGX_HTTP_TOO_MANY_REQUESTS as ngx_int_t
    })
}

/// Prepares 405.
///
/// # Safety
/// As for [`gone`].
pub(crate) unsafe fn method_not_allowed(request: *mut ngx_http_request_t) -> ngx_int_t {
    // SAFETY: as this function's own.
    let prepared = unsafe { add_header(request, "Allow", "allow", text("GET, HEAD")) };
    prepared.map_or(NGX_ERROR as ngx_int_t, |_| {
        NGX_HTTP_NOT_ALLOWED as ngx_int_t
    })
}

/// Every answer but a permanent redirect may be another one next time: without this a browser
/// keeps a 404 or 410 for as long as it likes.
unsafe fn no_store(request: *mut ngx_http_request_t) -> Option<()> {
    // SAFETY: as for the callers.
    unsafe {
        // An answer that was prepared before, and became another one by `error_page`, has it.
        let header = match cache_control(request) {
            Some(header) => header,
            None => {
                let value = text("no-store");
                let header = add_header(request, "Cache-Control", "cache-control", value)?;
                tell_cache_control(request, header)?;
                header
            }
        };
        (*header).hash = 1;
        (*header).value = text("no-store");
        Some(())
    }
}

/// Takes back what [`no_store`] has prepared for another answer.
unsafe fn may_store(request: *mut ngx_http_request_t) {
    // SAFETY: as for the callers; a header without a hash is not sent.
    unsafe {
        if let Some(header) = cache_control(request) {
            (*header).hash = 0;
        }
    }
}

/// The answer's `Cache-Control`, if nginx knows of one.
#[cfg(nginx_linked_headers)]
unsafe fn cache_control(request: *mut ngx_http_request_t) -> Option<*mut ngx_table_elt_t> {
    // SAFETY: as for the callers.
    let header = unsafe { (*request).headers_out.cache_control };
    (!header.is_null()).then_some(header)
}

/// Registers a header as the answer's `Cache-Control`, so that `expires` and others change it
/// instead of adding another one.
#[cfg(nginx_linked_headers)]
unsafe fn tell_cache_control(
    request: *mut ngx_http_request_t,
    header: *mut ngx_table_elt_t,
) -> Option<()> {
    // SAFETY: as for the callers.
    unsafe { (*request).headers_out.cache_control = header };
    Some(())
}

/// The answer's `Cache-Control`, if nginx knows of one.
#[cfg(not(nginx_linked_headers))]
unsafe fn cache_control(request: *mut ngx_http_request_t) -> Option<*mut ngx_table_elt_t> {
    // SAFETY: as for the callers; the array is zeroed until it has elements, which are pointers to
    // headers.
    unsafe {
        let known = &(*request).headers_out.cache_control;
        (known.nelts > 0).then(|| *known.elts.cast::<*mut ngx_table_elt_t>())
    }
}

/// Registers a header as the answer's `Cache-Control`, so that `expires` and others change it
/// instead of adding another one.
#[cfg(not(nginx_linked_headers))]
unsafe fn tell_cache_control(
    request: *mut ngx_http_request_t,
    header: *mut ngx_table_elt_t,
) -> Option<()> {
    use ngx::ffi::{ngx_array_t, ngx_palloc};

    // SAFETY: as for the callers. This is what nginx does for an array of one pointer; the array
    // is empty, or the header would have been found.
    unsafe {
        let pool = (*request).pool;
        let size = size_of::<*mut ngx_table_elt_t>();
        let place = ngx_palloc(pool, size).cast::<*mut ngx_table_elt_t>();
        if place.is_null() {
            return None;
        }
        place.write(header);
        (*request).headers_out.cache_control = ngx_array_t {
            elts: place.cast(),
            nelts: 1,
            size,
            nalloc: 1,
            pool,
        };
        Some(())
    }
}

/// Adds a header to the answer; `None` when there is no memory.
unsafe fn add_header(
    request: *mut ngx_http_request_t,
    name: &'static str,
    lower_case_name: &'static str,
    value: ngx_str_t,
) -> Option<*mut ngx_table_elt_t> {
    // SAFETY: the request is valid, so its list of headers is initialized; a pushed element is
    // uninitialized memory of the element's size, and all zeros is a valid element. nginx reads
    // names through these pointers and never writes them.
    unsafe {
        let header = ngx_list_push(&mut (*request).headers_out.headers).cast::<ngx_table_elt_t>();
        if header.is_null() {
            return None;
        }
        // Newer versions have a field more: a link to the next header of the same name.
        ptr::write_bytes(header, 0, 1);
        (*header).hash = 1;
        (*header).key = text(name);
        (*header).lowcase_key = text(lower_case_name).data;
        (*header).value = value;
        Some(header)
    }
}

/// A static text as nginx holds it.
fn text(text: &'static str) -> ngx_str_t {
    ngx_str_t {
        len: text.len(),
        data: text.as_ptr().cast_mut(),
    }
}
