//! Looking names up without waiting.

use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::slice;

use ngx::ffi::{
    NGX_OK, ngx_int_t, ngx_msec_t, ngx_resolve_name, ngx_resolve_name_done, ngx_resolve_start,
    ngx_resolver_addr_t, ngx_resolver_ctx_t, ngx_resolver_strerror, ngx_resolver_t,
};

use crate::nginx::address::SocketAddress;
use crate::nginx::conf::Conf;
use crate::nginx::pool::lent;

/// A `resolver` of the configuration, which lives as long as the worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resolver(NonNull<ngx_resolver_t>);

impl Conf {
    /// Returns whether there is a `resolver`.
    pub(crate) fn has_resolver(&self) -> bool {
        // SAFETY: the location's configuration is valid, and its resolver null or valid.
        unsafe { (*self.core_location()).resolver.as_ref() }.is_some_and(has_servers)
    }
}

/// Returns whether a `resolver` was configured: nginx makes one without servers where there is no directive.
fn has_servers(resolver: &ngx_resolver_t) -> bool {
    resolver.connections.nelts > 0
}

/// The addresses of a name, without ports, or the reason that there are none.
pub(crate) type Resolved = Result<Vec<SocketAddress>, String>;

/// Called with the number of a search and its result. It must not end searches: nginx goes through all that wait for
/// the name.
pub(crate) type ResolvedHandler = fn(usize, Resolved);

/// A search that is under way, or has ended. It is given up when it is dropped.
pub(crate) struct Search(Rc<Parts>);

struct Parts {
    /// Null once the search has ended.
    context: Cell<*mut ngx_resolver_ctx_t>,
    name: String,
    number: usize,
    handler: ResolvedHandler,
}

impl Resolver {
    /// # Safety
    /// The resolver must be null or valid as long as the worker lives.
    pub(super) unsafe fn of(raw: *mut ngx_resolver_t) -> Option<Self> {
        // SAFETY: as this function's own.
        let resolver = unsafe { raw.as_ref() }?;
        has_servers(resolver).then_some(Self(NonNull::from(resolver)))
    }

    /// Looks a name up, for so many milliseconds at most; `None` when that can't be begun. The handler may be called
    /// before this returns.
    pub(crate) fn search(
        self,
        name: String,
        milliseconds: usize,
        number: usize,
        handler: ResolvedHandler,
    ) -> Option<Search> {
        // SAFETY: the resolver is valid.
        let context = unsafe { ngx_resolve_start(self.0.as_ptr(), ptr::null_mut()) };
        // nginx' own value for "there is no server of names".
        if context.is_null() || context.addr() == usize::MAX {
            return None;
        }
        let parts = Rc::new(Parts {
            context: Cell::new(context),
            name,
            number,
            handler,
        });
        // SAFETY: the context is new. The name and the data live as long as the search: the context has a part in
        // them of its own, which `on_resolved` or `Parts::end` take back.
        let begun = unsafe {
            (*context).name = lent(parts.name.as_bytes());
            (*context).handler = Some(on_resolved);
            (*context).data = Rc::into_raw(Rc::clone(&parts)).cast_mut().cast::<c_void>();
            (*context).timeout = milliseconds as ngx_msec_t;
            ngx_resolve_name(context)
        };
        if begun != NGX_OK as ngx_int_t {
            parts.context.set(ptr::null_mut());
            // SAFETY: nginx has freed the context without calling the handler: its part is taken back here.
            unsafe { Rc::decrement_strong_count(Rc::as_ptr(&parts)) };
            return None;
        }
        Some(Search(parts))
    }
}

impl Drop for Search {
    fn drop(&mut self) {
        let context = self.0.context.replace(ptr::null_mut());
        if !context.is_null() {
            // SAFETY: the search is under way: ending it would have cleared the context. nginx does not call its
            // handler any more, so the context's part is taken back here.
            unsafe {
                ngx_resolve_name_done(context);
                Rc::decrement_strong_count(Rc::as_ptr(&self.0));
            }
        }
    }
}

/// A name's addresses are known, or it has none.
unsafe extern "C" fn on_resolved(context: *mut ngx_resolver_ctx_t) {
    // SAFETY: nginx calls this once, with the context that `search` has filled, whose addresses are valid until it is
    // ended here.
    let (parts, resolved) = unsafe {
        let parts = Rc::from_raw((*context).data.cast_const().cast::<Parts>());
        let resolved = addresses_of(&*context);
        ngx_resolve_name_done(context);
        (parts, resolved)
    };
    parts.context.set(ptr::null_mut());
    (parts.handler)(parts.number, resolved);
}

/// The result of a search.
///
/// # Safety
/// nginx must have ended the search.
unsafe fn addresses_of(context: &ngx_resolver_ctx_t) -> Resolved {
    if context.state != 0 || context.naddrs == 0 {
        // SAFETY: nginx' reasons are static texts.
        let reason = unsafe { CStr::from_ptr(ngx_resolver_strerror(context.state).cast()) };
        return Err(reason.to_string_lossy().into_owned());
    }
    // SAFETY: as this function's own: so many addresses were found.
    let found: &[ngx_resolver_addr_t] =
        unsafe { slice::from_raw_parts(context.addrs, context.naddrs) };
    let copy = |address: &ngx_resolver_addr_t| {
        // SAFETY: nginx' addresses are valid.
        unsafe {
            let raw = address.sockaddr.cast_const().cast();
            SocketAddress::copy(raw, address.socklen as usize, String::new())
        }
    };
    Ok(found.iter().map(copy).collect())
}
