//! Has the processor fetch what a request will need of the cache before the request is handled.
//!
//! A cache of many links does not fit the processor's own caches, so a look-up waits for memory
//! twice: for the place in the index, and then for the entry. Both waits together are longer than
//! everything else that a hit costs. So the index is asked for when the request was read, the
//! entry when its location was found, and meanwhile nginx does what it has to do anyway.
//!
//! Nothing is decided here: a wrong guess costs a look-up nothing but the wait.

use ngx::ffi::{NGX_DECLINED, ngx_http_request_t, ngx_int_t};
use resolver::vocabulary::Code;

use crate::worker;

/// Number of bytes that the processor fetches at once.
const LINE: usize = 64;

/// The phase after a request was read: fetches the place in the index.
pub(crate) unsafe extern "C" fn on_post_read(request: *mut ngx_http_request_t) -> ngx_int_t {
    // SAFETY: nginx calls this with a valid request; nothing of nginx is called.
    unsafe {
        if let Some((b'/', rest)) = (*request).uri.as_bytes().split_first()
            && let Ok(code) = Code::leading(rest)
        {
            worker::with(|worker| {
                if let Some(cache) = worker.edge.cache() {
                    let hash = cache.hash(&code);
                    fetch(cache.search_address(hash));
                    worker.foreseen = Some(hash);
                }
            });
        }
    }
    NGX_DECLINED as ngx_int_t
}

/// The phase after a location was found: fetches the entry.
pub(crate) unsafe extern "C" fn on_rewrite(_request: *mut ngx_http_request_t) -> ngx_int_t {
    // SAFETY: nothing of nginx is called.
    unsafe {
        worker::with(|worker| {
            if let Some(hash) = worker.foreseen.take()
                && let Some(cache) = worker.edge.cache()
                && let Some(address) = cache.entry_address(hash)
            {
                // The fields of a link, and the beginning of its target; most targets end there.
                fetch(address);
                fetch(address + LINE);
            }
        });
    }
    NGX_DECLINED as ngx_int_t
}

/// Has the processor fetch the memory at an address, and does not wait.
#[inline]
fn fetch(address: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: this is advice to the processor; any address may be given.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address));
    }
    // Other processors have no such instruction in stable Rust.
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
