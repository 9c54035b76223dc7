//! A request.

use std::any::TypeId;
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::slice;

use ngx::ffi::{
    AF_INET, AF_INET6, NGX_HTTP_GET, NGX_HTTP_HEAD, NGX_HTTP_VERSION_10, NGX_HTTP_VERSION_11,
    NGX_HTTP_VERSION_20, ngx_connection_t, ngx_http_block_reading, ngx_http_cleanup_add,
    ngx_http_discard_request_body, ngx_http_finalize_request, ngx_http_named_location,
    ngx_http_request_t, ngx_http_run_posted_requests, ngx_http_test_reading, ngx_int_t,
    ngx_pool_cleanup_add, ngx_pool_cleanup_t, ngx_table_elt_t, sockaddr_in, sockaddr_in6,
};

use crate::nginx::identity::{self, Settings};
use crate::nginx::pool::{Pool, lent};
use crate::nginx::status::Status;

/// HTTP/3 as nginx names it; versions before 1.25 do not have the constant.
const HTTP_VERSION_30: u32 = 3000;

/// A request that nginx has called with.
#[repr(transparent)]
pub(crate) struct Request(UnsafeCell<ngx_http_request_t>);

/// The method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Head,
    Other,
}

/// The version of HTTP that a request came with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Http10,
    Http11,
    Http2,
    Http3,
    Other,
}

/// A function that nginx calls with a request; made by [`request_handler`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestHandler(
    pub(super) unsafe extern "C" fn(*mut ngx_http_request_t) -> ngx_int_t,
);

impl RequestHandler {
    /// # Safety
    /// The function must be sound for every valid request.
    pub(crate) const unsafe fn new(
        function: unsafe extern "C" fn(*mut ngx_http_request_t) -> ngx_int_t,
    ) -> Self {
        Self(function)
    }
}

/// The handler of a location or of a phase that calls a function `fn(&Request) -> Status`.
macro_rules! request_handler {
    ($function:path) => {{
        unsafe extern "C" fn call(
            request: *mut ngx::ffi::ngx_http_request_t,
        ) -> ngx::ffi::ngx_int_t {
            // SAFETY: nginx calls this with a valid request.
            unsafe { $crate::nginx::request::Request::call(request, $function) }
        }
        // SAFETY: the function does with the request what safe code can do.
        unsafe { $crate::nginx::request::RequestHandler::new(call) }
    }};
}
pub(crate) use request_handler;

impl Request {
    /// # Safety
    /// The request must be valid, and live as long as `'r`.
    #[inline]
    pub(super) unsafe fn of<'r>(raw: *mut ngx_http_request_t) -> &'r Self {
        // SAFETY: as this function's own; the type is that of the request, and lets others write to it.
        unsafe { &*raw.cast::<Self>() }
    }

    /// Calls a handler of a location or of a phase.
    ///
    /// # Safety
    /// The request must be valid.
    #[inline]
    pub(crate) unsafe fn call(
        raw: *mut ngx_http_request_t,
        handler: impl FnOnce(&Self) -> Status,
    ) -> ngx_int_t {
        // SAFETY: as this function's own.
        handler(unsafe { Self::of(raw) }).raw()
    }

    #[inline]
    pub(super) fn raw(&self) -> *mut ngx_http_request_t {
        self.0.get()
    }

    #[inline]
    fn connection(&self) -> *mut ngx_connection_t {
        // SAFETY: a request has a connection.
        unsafe { (*self.raw()).connection }
    }

    /// The request's memory.
    #[inline]
    pub(crate) fn pool(&self) -> Pool<'_> {
        // SAFETY: a request has a pool, which lives as long as it.
        unsafe { Pool::of((*self.raw()).pool) }
    }

    /// The module's configuration of the `http` block.
    #[inline]
    pub(crate) fn main_settings<S: Settings>(&self) -> Option<&S::Main> {
        // SAFETY: a request has the configurations of all modules; this module's was made with this type,
        // outlives the request and is changed no more.
        unsafe {
            let place = (*self.raw()).main_conf.add(identity::number());
            (*place).cast::<S::Main>().as_ref()
        }
    }

    /// The module's configuration of the request's location.
    #[inline]
    pub(crate) fn location_settings<S: Settings>(&self) -> Option<&S::Location> {
        // SAFETY: as for `main_settings`.
        unsafe {
            let place = (*self.raw()).loc_conf.add(identity::number());
            (*place).cast::<S::Location>().as_ref()
        }
    }

    /// Returns whether it is a client's and no subrequest.
    #[inline]
    pub(crate) fn is_main(&self) -> bool {
        // SAFETY: the request is valid.
        ptr::eq(self.raw(), unsafe { (*self.raw()).main })
    }

    #[inline]
    pub(crate) fn method(&self) -> Method {
        // SAFETY: the request is valid.
        match unsafe { (*self.raw()).method } as u32 {
            NGX_HTTP_GET => Method::Get,
            NGX_HTTP_HEAD => Method::Head,
            _ => Method::Other,
        }
    }

    pub(crate) fn version(&self) -> Version {
        // SAFETY: the request is valid.
        match unsafe { (*self.raw()).http_version } as u32 {
            NGX_HTTP_VERSION_10 => Version::Http10,
            NGX_HTTP_VERSION_11 => Version::Http11,
            NGX_HTTP_VERSION_20 => Version::Http2,
            HTTP_VERSION_30 => Version::Http3,
            _ => Version::Other,
        }
    }

    /// The path, decoded.
    #[inline]
    pub(crate) fn path(&self) -> &[u8] {
        // SAFETY: the request is valid, and the text lives as long as it.
        unsafe { (*self.raw()).uri.as_bytes() }
    }

    /// Path and query as the client sent them, whatever the path was rewritten to.
    pub(crate) fn unparsed_path(&self) -> &[u8] {
        // SAFETY: as for `path`.
        unsafe { (*self.raw()).unparsed_uri.as_bytes() }
    }

    /// The query, as it was sent.
    #[inline]
    pub(crate) fn query(&self) -> &[u8] {
        // SAFETY: as for `path`.
        unsafe { (*self.raw()).args.as_bytes() }
    }

    /// The host that is asked for, in lower case and without a port.
    pub(crate) fn host(&self) -> &[u8] {
        // SAFETY: as for `path`.
        unsafe { (*self.raw()).headers_in.server.as_bytes() }
    }

    /// `User-Agent`; empty without one.
    pub(crate) fn user_agent(&self) -> &[u8] {
        // SAFETY: the pointer is null or that of a header which lives as long as its request.
        unsafe { value_of((*self.raw()).headers_in.user_agent) }
    }

    /// `Referer`; empty without one.
    pub(crate) fn referrer(&self) -> &[u8] {
        // SAFETY: as for `user_agent`.
        unsafe { value_of((*self.raw()).headers_in.referer) }
    }

    /// The request's headers: the name in lower case, and the value.
    pub(crate) fn headers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        // SAFETY: nginx keeps the headers in a list of arrays, which live as long as the request. A request
        // without headers has an empty array.
        let parts = unsafe {
            let first = &raw const (*self.raw()).headers_in.headers.part;
            std::iter::successors(first.as_ref(), |part| part.next.as_ref())
        };
        let arrays = parts.filter(|part| !part.elts.is_null());
        // SAFETY: as above.
        let headers = arrays.flat_map(|part| unsafe {
            slice::from_raw_parts(part.elts.cast::<ngx_table_elt_t>(), part.nelts)
        });
        let named = headers.filter(|header| !header.lowcase_key.is_null());
        named.map(|header| {
            // SAFETY: the name in lower case is as long as the name.
            let name = unsafe { slice::from_raw_parts(header.lowcase_key, header.key.len) };
            (name, header.value.as_bytes())
        })
    }

    /// The client's address as a text, after nginx' own modules have put the right one in its place.
    pub(crate) fn client(&self) -> &[u8] {
        // SAFETY: the connection of a request is valid, and the text lives as long as it.
        unsafe { (*self.connection()).addr_text.as_bytes() }
    }

    /// The bytes of the client's IP address; `None` for a client of a unix socket.
    pub(crate) fn client_ip(&self) -> Option<&[u8]> {
        // SAFETY: a connection of a client has an address, whose family says what it is.
        unsafe {
            let address = (*self.connection()).sockaddr;
            match u32::from((*address).sa_family) {
                AF_INET => {
                    let v4 = &raw const (*address.cast::<sockaddr_in>()).sin_addr;
                    Some(slice::from_raw_parts(v4.cast::<u8>(), 4))
                }
                AF_INET6 => {
                    let v6 = &raw const (*address.cast::<sockaddr_in6>()).sin6_addr;
                    Some(slice::from_raw_parts(v6.cast::<u8>(), 16))
                }
                _ => None,
            }
        }
    }

    /// Returns whether the client's connection is secured.
    pub(crate) fn is_tls(&self) -> bool {
        // SAFETY: the connection of a request is valid.
        unsafe { !(*self.connection()).ssl.is_null() }
    }

    /// Returns whether the client's connection, or its stream, has failed: nginx terminates the request.
    pub(crate) fn is_broken(&self) -> bool {
        // SAFETY: the connection of a request is valid.
        unsafe { (*self.connection()).error() != 0 }
    }

    /// The status of the answer; 0 before there is one.
    #[inline]
    pub(crate) fn status(&self) -> usize {
        // SAFETY: the request is valid.
        unsafe { (*self.raw()).headers_out.status }
    }

    /// Skips the body.
    ///
    /// # Errors
    /// What the handler is to return.
    #[inline]
    pub(crate) fn discard_body(&self) -> Result<(), Status> {
        // SAFETY: the request is valid.
        match Status::of(unsafe { ngx_http_discard_request_body(self.raw()) }) {
            Status::OK => Ok(()),
            status => Err(status),
        }
    }

    /// Hands the request to a named location; the handler returns the result. This may come back into the module.
    pub(crate) fn hand_to(&self, location: &[u8]) -> Status {
        let mut name = lent(location);
        // SAFETY: the request is valid, and nginx counts its handler as a user of it; it only compares the name.
        Status::of(unsafe { ngx_http_named_location(self.raw(), &mut name) })
    }
}

/// The value of a header that nginx has a pointer to; empty when the pointer is null.
unsafe fn value_of<'a>(header: *const ngx_table_elt_t) -> &'a [u8] {
    // SAFETY: the callers' pointer is null or valid.
    unsafe { header.as_ref() }.map_or(&[], |header| header.value.as_bytes())
}

/// The state of a request: one type, and one value for each request. It is dropped with the request's pool.
pub(crate) trait State: 'static {
    /// nginx terminates the request, which must not be continued any more: it may live on, with bytes that the
    /// client has not taken. Called only after [`Request::watch`].
    fn terminated(&self);

    /// The request ends, with this status.
    fn released(&self, status: usize);
}

/// A state as the request's pool has it.
#[repr(C)]
struct Attached<S> {
    kind: TypeId,
    request: *mut ngx_http_request_t,
    state: S,
}

impl Request {
    /// Ties a state to the request; `None` when there is no memory.
    #[inline]
    pub(crate) fn attach<S: State>(&self, state: S) -> Option<&S> {
        const { assert!(align_of::<Attached<S>>() <= align_of::<*const ()>()) };
        // SAFETY: the request is valid, so its pool and its table of contexts are. The data that nginx allocates
        // with the cleanup has the size that is asked for and the alignment of a pointer, which suffices.
        unsafe {
            let size = size_of::<Attached<S>>();
            let cleanup = ngx_pool_cleanup_add(self.pool().as_ptr(), size).as_mut()?;
            let place = cleanup.data.cast::<Attached<S>>();
            place.write(Attached {
                kind: TypeId::of::<S>(),
                request: self.raw(),
                state,
            });
            cleanup.handler = Some(release::<S>);
            *(*self.raw()).ctx.add(identity::number()) = place.cast();
            Some(&(*place).state)
        }
    }

    /// The state of the request, also after it was handed to a named location.
    #[inline]
    pub(crate) fn attached<S: State>(&self) -> Option<&S> {
        // SAFETY: what stands in the module's place of the table of contexts was put there by `attach`, and begins
        // with its type.
        unsafe {
            let context = *(*self.raw()).ctx.add(identity::number());
            if !context.is_null() && *context.cast::<TypeId>() == TypeId::of::<S>() {
                return Some(&(*context.cast::<Attached<S>>()).state);
            }
        }
        self.attached_to_pool()
    }

    /// A named location clears the table of contexts, but not the pool.
    #[cold]
    fn attached_to_pool<S: State>(&self) -> Option<&S> {
        // SAFETY: the pool's cleanups are a list, and the data of those with our handler was written by `attach`.
        unsafe {
            let mut next = (*self.pool().as_ptr()).cleanup;
            while let Some(ngx_pool_cleanup_t { handler, data, .. }) = next.as_ref() {
                let ours = release::<S> as unsafe extern "C" fn(*mut c_void);
                // Functions with the same code may have one address.
                if handler.is_some_and(|handler| ptr::fn_addr_eq(handler, ours))
                    && *data.cast::<TypeId>() == TypeId::of::<S>()
                {
                    let attached = &*data.cast::<Attached<S>>();
                    // Subrequests share the pool of their main request.
                    if attached.request == self.raw() {
                        return Some(&attached.state);
                    }
                }
                next = (*next).next;
            }
            None
        }
    }

    /// Has nginx say when it terminates the request; `false` when there is no memory, or no state.
    pub(crate) fn watch<S: State>(&self) -> bool {
        let Some(state) = self.attached::<S>() else {
            return false;
        };
        // SAFETY: the request is valid. nginx keeps these cleanups at the main request, whose pool is that of its
        // subrequests too: the state lives as long as they do.
        unsafe {
            let Some(cleanup) = ngx_http_cleanup_add(self.raw(), 0).as_mut() else {
                return false;
            };
            cleanup.handler = Some(terminated::<S>);
            cleanup.data = ptr::from_ref(state).cast_mut().cast();
        }
        true
    }

    /// Has the request wait; the handler returns the result, and [`Token::resume`] continues it.
    pub(crate) fn wait(&self) -> Status {
        // SAFETY: the request and its main request are valid. The handler of reading notices a client that goes
        // away; nginx then terminates the request.
        unsafe {
            (*self.raw()).read_event_handler = Some(ngx_http_test_reading);
            let main = (*self.raw()).main;
            (*main).set_count((*main).count() + 1);
        }
        Status::DONE
    }

    /// The name of the request while it waits.
    #[inline]
    pub(crate) fn token(&self) -> Token {
        // SAFETY: the address of a reference is not null.
        Token(unsafe { NonNull::new_unchecked(self.raw()) })
    }
}

/// Called by nginx when the pool of a request is destroyed.
unsafe extern "C" fn release<S: State>(data: *mut c_void) {
    // SAFETY: `attach` has written the state there, and nginx calls this once. The request's structure lives in the
    // same pool.
    unsafe {
        let attached = data.cast::<Attached<S>>();
        let request = (*attached).request;
        (*attached).state.released((*request).headers_out.status);
        attached.drop_in_place();
    }
}

/// Called by nginx when it terminates or frees a request.
unsafe extern "C" fn terminated<S: State>(data: *mut c_void) {
    // SAFETY: the data is the state that `watch` has found, whose pool still lives.
    unsafe { &*data.cast::<S>() }.terminated();
}

/// Names a request that waits, after the function has returned that nginx had called with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token(NonNull<ngx_http_request_t>);

impl Token {
    /// Takes the request up again.
    ///
    /// # Safety
    /// The request must wait since [`Request::wait`], and neither be terminated nor freed. Until
    /// [`Resumed::finish`], nothing may be called that can end requests.
    pub(crate) unsafe fn resume(self) -> Resumed {
        Resumed(self.0)
    }
}

/// A request that has waited and is answered now.
#[must_use]
pub(crate) struct Resumed(NonNull<ngx_http_request_t>);

impl Resumed {
    pub(crate) fn request(&self) -> &Request {
        // SAFETY: the caller of `Token::resume` has promised that the request lives.
        unsafe { Request::of(self.0.as_ptr()) }
    }

    /// Answers the request and finishes it. This may come back into the module.
    pub(crate) fn finish(self, answer: impl FnOnce(&Request) -> Status) {
        let request = self.0.as_ptr();
        let connection = self.request().connection();
        // SAFETY: as for `request`.
        unsafe { (*request).read_event_handler = Some(ngx_http_block_reading) };
        let status = answer(self.request());
        // SAFETY: as for `request`. The connection outlives the request: nginx keeps the structure of a closed
        // connection, and marks it as destroyed.
        unsafe {
            ngx_http_finalize_request(request, status.raw());
            ngx_http_run_posted_requests(connection);
        }
    }
}
