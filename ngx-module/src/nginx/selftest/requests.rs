//! The part of the self-test that acts on a request of its own.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use ngx::ffi::*;

use crate::nginx::filter::Chains;
use crate::nginx::selftest::padded::{
    Padded, Unfit, ensure, record, reset, was_called_with, was_not_called,
};

/// The bits of the buffer that the last filter was given: 1 for `last_buf`, 2 for `last_in_chain`.
static BUFFER: AtomicUsize = AtomicUsize::new(0);

extern "C" fn on_request(request: *mut ngx_http_request_t) {
    record(request.cast());
}

extern "C" fn on_header(request: *mut ngx_http_request_t) -> ngx_int_t {
    record(request.cast());
    NGX_OK as ngx_int_t
}

unsafe extern "C" fn on_body(
    request: *mut ngx_http_request_t,
    chain: *mut ngx_chain_t,
) -> ngx_int_t {
    record(request.cast());
    // SAFETY: nginx passes on the chain that it was given, of one buffer, or none.
    let buffer = unsafe { chain.as_ref().and_then(|chain| chain.buf.as_ref()) };
    let bits = buffer.map_or(0, |buffer| {
        buffer.last_buf() + 2 * buffer.last_in_chain() + 4 * buffer.flush()
    });
    BUFFER.store(bits as usize, Ordering::Relaxed);
    NGX_ERROR as ngx_int_t
}

/// Asks the running nginx.
///
/// # Errors
/// The fields that it has elsewhere.
pub(crate) fn verify() -> Result<(), Unfit> {
    headers_sent()?;
    ends_sent()?;
    bodies()?;
    expectations()?;
    posted_requests()?;
    variables()
}

/// A request, its connection with a log that writes nothing, and the memory that they need.
struct Exchange {
    request: Box<Padded<ngx_http_request_t>>,
    connection: Box<Padded<ngx_connection_t>>,
    event: Box<Padded<ngx_event_t>>,
    log: Box<Padded<ngx_log_t>>,
    log_context: Box<Padded<ngx_http_log_ctx_t>>,
    pool: *mut ngx_pool_t,
}

impl Exchange {
    fn new() -> Result<Self, Unfit> {
        let mut log = Padded::<ngx_log_t>::zeroed();
        // SAFETY: the log lives as long as the pool.
        let pool = unsafe { ngx_create_pool(1024, log.ptr()) };
        if pool.is_null() {
            return Err(Unfit::NoMemory);
        }
        let mut it = Self {
            request: Padded::zeroed(),
            connection: Padded::zeroed(),
            event: Padded::zeroed(),
            log,
            log_context: Padded::zeroed(),
            pool,
        };
        let (request, connection) = (it.request.ptr(), it.connection.ptr());
        // SAFETY: all of them live in boxes, as long as `it`.
        unsafe {
            (*it.log.ptr()).data = it.log_context.ptr().cast();
            (*it.event.ptr()).log = it.log.ptr();
            (*connection).log = it.log.ptr();
            (*connection).pool = pool;
            (*connection).data = request.cast();
            (*connection).read = it.event.ptr();
            (*connection).write = it.event.ptr();
            (*request).connection = connection;
            (*request).pool = pool;
            (*request).main = request;
        }
        Ok(it)
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // SAFETY: it was created here, and the request that uses it is not used again.
        unsafe { ngx_destroy_pool(self.pool) };
    }
}

/// Filters of this test instead of nginx' own, which are back when it is dropped. Nothing else runs meanwhile.
struct Filters(Chains);

impl Filters {
    fn replace() -> Self {
        let own = Self(Chains::present());
        // SAFETY: nginx reads both while it sends, and nothing is sent while a configuration is read.
        unsafe {
            ngx_http_top_header_filter = Some(on_header);
            ngx_http_top_body_filter = Some(on_body);
        }
        own
    }
}

impl Drop for Filters {
    fn drop(&mut self) {
        self.0.put_back();
    }
}

/// The header of an answer is sent once.
fn headers_sent() -> Result<(), Unfit> {
    let mut it = Exchange::new()?;
    let request = it.request.ptr();
    let _filters = Filters::replace();
    reset();
    // SAFETY: the structures outlive the calls.
    let first = unsafe { ngx_http_send_header(request) };
    let was_sent = was_called_with(request);
    reset();
    // SAFETY: as above.
    let second = unsafe {
        (*request).set_header_sent(1);
        ngx_http_send_header(request)
    };
    let was_sent_again = !was_not_called();
    ensure(
        first == NGX_OK as ngx_int_t
            && was_sent
            && second == NGX_ERROR as ngx_int_t
            && !was_sent_again,
        "ngx_http_request_t (header_sent)",
    )
}

/// The end of an answer, of a request and of a part of one; its filter fails, which nginx notes.
fn ends_sent() -> Result<(), Unfit> {
    let mut it = Exchange::new()?;
    let (request, connection) = (it.request.ptr(), it.connection.ptr());
    let _filters = Filters::replace();
    let mut expected = Padded::<ngx_connection_t>::zeroed();
    reset();
    // SAFETY: the structures outlive the calls.
    let answer = unsafe {
        ptr::copy_nonoverlapping(connection, expected.ptr(), 1);
        (*expected.ptr()).set_error(1);
        ngx_http_send_special(request, NGX_HTTP_LAST as ngx_uint_t)
    };
    let last = BUFFER.load(Ordering::Relaxed);
    ensure(
        answer == NGX_ERROR as ngx_int_t
            && was_called_with(request)
            && it.connection.image() == expected.image(),
        "ngx_connection_t (error), ngx_http_request_t (connection)",
    )?;
    // SAFETY: as above.
    unsafe {
        (*request).main = ptr::null_mut();
        ngx_http_send_special(request, NGX_HTTP_LAST as ngx_uint_t);
    }
    let last_of_part = BUFFER.load(Ordering::Relaxed);
    ensure(
        (last, last_of_part) == (1, 2),
        "ngx_buf_t (last_buf, last_in_chain), ngx_http_request_t (main)",
    )
}

/// Counts of a request, and what becomes of its body.
fn bodies() -> Result<(), Unfit> {
    let mut it = Exchange::new()?;
    let request = it.request.ptr();
    let mut expected = Padded::<ngx_http_request_t>::zeroed();
    reset();
    // SAFETY: the structures outlive the calls. A request that has a body, or discards it, is passed on at once; where
    // nginx finds neither, the length of its body, -1, says that there is none.
    unsafe {
        (*request).headers_in.content_length_n = -1;
        (*request).request_body = request.cast();
        (*request).set_count(1);
        ptr::copy_nonoverlapping(request, expected.ptr(), 1);
        (*expected.ptr()).set_count(2);
        let answer = ngx_http_read_client_request_body(request, Some(on_request));
        ensure(
            answer == NGX_OK as ngx_int_t
                && was_called_with(request)
                && it.request.image() == expected.image(),
            "ngx_http_request_t (count, request_body)",
        )?;
        (*request).request_body = ptr::null_mut();
        (*request).set_discard_body(1);
        ngx_http_read_client_request_body(request, Some(on_request));
        ensure(
            (*request).request_body.is_null(),
            "ngx_http_request_t (discard_body)",
        )
    }
}

/// A header `Expect` that asks for nothing is only noted.
fn expectations() -> Result<(), Unfit> {
    let mut it = Exchange::new()?;
    let request = it.request.ptr();
    let mut expect = Padded::<ngx_table_elt_t>::zeroed();
    let mut expected = Padded::<ngx_http_request_t>::zeroed();
    // SAFETY: the structures outlive the call.
    unsafe {
        (*request).headers_in.expect = expect.ptr();
        (*request).http_version = NGX_HTTP_VERSION_11 as ngx_uint_t;
        ptr::copy_nonoverlapping(request, expected.ptr(), 1);
        (*expected.ptr()).set_expect_tested(1);
        ngx_http_discard_request_body(request);
        ensure(
            it.request.image() == expected.image(),
            "ngx_http_request_t (expect_tested, http_version)",
        )
    }
}

/// A request that waits to be continued, on a connection that lives or is destroyed.
fn posted_requests() -> Result<(), Unfit> {
    let mut it = Exchange::new()?;
    let (request, connection) = (it.request.ptr(), it.connection.ptr());
    let mut posted = Padded::<ngx_http_posted_request_t>::zeroed();
    // SAFETY: the structures outlive the calls; the handler is that of this test.
    unsafe {
        (*posted.ptr()).request = request;
        (*request).posted_requests = posted.ptr();
        (*request).write_event_handler = Some(on_request);
        reset();
        (*connection).set_destroyed(1);
        ngx_http_run_posted_requests(connection);
        ensure(was_not_called(), "ngx_connection_t (destroyed)")?;
        (*connection).set_destroyed(0);
        ngx_http_run_posted_requests(connection);
        ensure(
            was_called_with(request) && (*request).posted_requests.is_null(),
            "ngx_http_request_t (write_event_handler, posted_requests)",
        )
    }
}

/// The value of a variable that is known already.
fn variables() -> Result<(), Unfit> {
    const INDEX: usize = 3;
    let mut it = Exchange::new()?;
    let request = it.request.ptr();
    let mut core = Padded::<ngx_http_core_main_conf_t>::zeroed();
    let mut values = Padded::<[ngx_variable_value_t; INDEX + 1]>::zeroed();
    // SAFETY: the structures outlive the call, which reads the value and the number of variables.
    unsafe {
        let mut configurations =
            vec![ptr::null_mut::<c_void>(); ngx_http_core_module.ctx_index + 1];
        configurations[ngx_http_core_module.ctx_index] = core.ptr().cast();
        (*core.ptr()).variables.nelts = INDEX + 1;
        (*request).main_conf = configurations.as_mut_ptr();
        (*request).variables = values.ptr().cast();
        let value = values.ptr().cast::<ngx_variable_value_t>().add(INDEX);
        (*value).set_valid(1);
        let found = ngx_http_get_indexed_variable(request, INDEX);
        ensure(
            found == value,
            "ngx_http_request_t (variables, main_conf), ngx_variable_value_t (valid)",
        )
    }
}
