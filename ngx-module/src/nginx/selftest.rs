//! Refuses to run in an nginx whose structures are not those that the module was built with.
//!
//! [`layout`](crate::layout) compares the bindings with the headers at hand. The process that loads the module may come
//! from other headers: nginx compares versions and a signature of build options, and a patch changes neither.
//! OpenResty's nginx has one bit more in `ngx_event_t` than nginx of the same version.
//!
//! So functions of the running nginx act on structures of the module's own, and the effect shows where nginx finds and
//! writes each field. Whole structures are compared, so a field that the module does not use shows as well when it has
//! moved those that it does. The structures lie between margins of zeros: a read or write at another place stays within
//! memory of this test. The checks take microseconds and run each time a configuration is read. Each relies on the
//! fields that those before it have proved.

use std::ffi::c_void;
use std::mem::{self, MaybeUninit, offset_of};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use ngx::ffi::*;

use crate::nginx::conf::Conf;
use crate::nginx::identity::address;

/// Bytes around a structure.
const MARGIN: usize = 4096;

/// A structure between margins.
#[repr(C, align(16))]
struct Padded<T> {
    before: [u8; MARGIN],
    value: MaybeUninit<T>,
    after: [u8; MARGIN],
}

impl<T> Padded<T> {
    /// Zeros. `T` is a structure of nginx, of which zeros are a value: it consists of numbers, nullable pointers and
    /// optional functions.
    fn zeroed() -> Box<Self> {
        // In place, since a move need not keep the bytes between two fields.
        // SAFETY: zeros are a value of arrays of bytes and of what may be uninitialized.
        unsafe { Box::<Self>::new_zeroed().assume_init() }
    }

    fn ptr(&mut self) -> *mut T {
        self.value.as_mut_ptr()
    }

    /// Everything, margins included.
    fn bytes(&mut self) -> &mut [u8] {
        let size = size_of::<Self>();
        // SAFETY: every byte was initialized, those of `value` with zeros; all values of `u8` are valid there, since
        // `value` is only accessed through pointers, as nginx does.
        unsafe { std::slice::from_raw_parts_mut(ptr::from_mut(self).cast(), size) }
    }

    /// Every byte of the structure and its margins, for a comparison.
    fn image(&mut self) -> Vec<u8> {
        self.bytes().to_vec()
    }
}

/// The number of calls by nginx of the functions below since [`reset`], and the first argument of the last call.
static CALLS: AtomicUsize = AtomicUsize::new(0);
static ARGUMENT: AtomicUsize = AtomicUsize::new(0);
/// The bits of the buffer that the last filter was given: 1 for `last_buf`, 2 for `last_in_chain`.
static BUFFER: AtomicUsize = AtomicUsize::new(0);

fn record(argument: *const c_void) {
    CALLS.fetch_add(1, Ordering::Relaxed);
    ARGUMENT.store(argument.addr(), Ordering::Relaxed);
}

fn reset() {
    CALLS.store(0, Ordering::Relaxed);
    ARGUMENT.store(0, Ordering::Relaxed);
}

/// Returns whether there was one call, with this argument.
fn was_called_with<T>(argument: *const T) -> bool {
    CALLS.load(Ordering::Relaxed) == 1 && ARGUMENT.load(Ordering::Relaxed) == argument.addr()
}

extern "C" fn on_event(event: *mut ngx_event_t) {
    record(event.cast());
}

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

unsafe extern "C" fn on_peer(peer: *mut ngx_peer_connection_t, data: *mut c_void) -> ngx_int_t {
    record(if data.is_null() {
        ptr::null()
    } else {
        peer.cast()
    });
    NGX_BUSY as ngx_int_t
}

/// The fields of one structure that nginx finds elsewhere.
type Differs = &'static str;

fn ensure(is_so: bool, differs: Differs) -> Result<(), Differs> {
    if is_so { Ok(()) } else { Err(differs) }
}

/// Asks the running nginx.
///
/// # Errors
/// The fields that it has elsewhere.
/// To be called in the phase `preconfiguration`.
pub(crate) fn verify(conf: &mut Conf) -> Result<(), Differs> {
    connections()?;
    idle_connections()?;
    timers()?;
    posted_events(conf)?;
    configuration(conf)?;
    offsets_in_requests(conf)?;
    peers()?;
    headers_sent()?;
    ends_sent()?;
    bodies()?;
    expectations()?;
    posted_requests()?;
    variables()
}

/// `ngx_get_connection()` clears a connection and its events, then sets some of their fields.
fn connections() -> Result<(), Differs> {
    const FD: ngx_socket_t = 5;
    let (mut cycle, mut log) = (
        Padded::<ngx_cycle_t>::zeroed(),
        Padded::<ngx_log_t>::zeroed(),
    );
    let mut connection = Padded::<ngx_connection_t>::zeroed();
    let mut events = [
        Padded::<ngx_event_t>::zeroed(),
        Padded::<ngx_event_t>::zeroed(),
    ];
    // Any word that nginx takes for a pointer leads here.
    let mut elsewhere = Padded::<[usize; 64]>::zeroed();
    let word = elsewhere.ptr().addr().to_ne_bytes();
    for bytes in connection.bytes().chunks_exact_mut(word.len()) {
        bytes.copy_from_slice(&word);
    }
    for event in &mut events {
        event.bytes().fill(0xff);
    }
    let (place, log) = (connection.ptr(), log.ptr());
    let [read, write] = events.each_mut().map(|event| event.ptr());
    // SAFETY: the structures outlive the call, and nginx' own cycle is back after it. Configurations are read by the
    // only thread, in which nothing else runs meanwhile. The log writes nothing: its level is 0.
    let found = unsafe {
        (*place).data = ptr::null_mut();
        (*place).read = read;
        (*place).write = write;
        (*cycle.ptr()).free_connections = place;
        (*cycle.ptr()).free_connection_n = 1;
        (*cycle.ptr()).log = log;
        let own = ptr::replace(&raw mut ngx_cycle, cycle.ptr());
        let found = ngx_get_connection(FD, log);
        ngx_cycle = own;
        found
    };
    ensure(found == place, "ngx_cycle_t (free_connections)")?;

    let mut expected = Padded::<ngx_connection_t>::zeroed();
    let size = size_of::<ngx_connection_t>();
    for (at, byte) in expected.bytes().iter_mut().enumerate() {
        let is_margin = !(MARGIN..MARGIN + size).contains(&at);
        *byte = if is_margin { word[at % word.len()] } else { 0 };
    }
    // SAFETY: the structure was just made.
    unsafe {
        (*expected.ptr()).read = read;
        (*expected.ptr()).write = write;
        (*expected.ptr()).fd = FD;
        (*expected.ptr()).log = log;
    }
    ensure(
        connection.image() == expected.image(),
        "ngx_connection_t (its size, read, write, fd, log)",
    )?;
    for (index, event) in events.iter_mut().enumerate() {
        let mut expected = Padded::<ngx_event_t>::zeroed();
        expected.before.fill(0xff);
        expected.after.fill(0xff);
        let differs = "ngx_event_t (its size, data, index, write)";
        // SAFETY: the structure was just made.
        unsafe {
            (*expected.ptr()).data = place.cast();
            (*expected.ptr()).index = NGX_INVALID_INDEX as ngx_uint_t;
            (*expected.ptr()).set_write(index as u32);
        }
        ensure(event.image() == expected.image(), differs)?;
    }
    Ok(())
}

/// `ngx_close_idle_connections()` closes those that are idle.
fn idle_connections() -> Result<(), Differs> {
    let mut cycle = Padded::<ngx_cycle_t>::zeroed();
    let mut event = Padded::<ngx_event_t>::zeroed();
    let mut connections = Padded::<[ngx_connection_t; 2]>::zeroed();
    let first = connections.ptr().cast::<ngx_connection_t>();
    reset();
    // SAFETY: the structures outlive the call, which reads nothing else.
    let (expected, found) = unsafe {
        (*event.ptr()).handler = Some(on_event);
        (*cycle.ptr()).connections = first;
        (*cycle.ptr()).connection_n = 2;
        for index in 0..2 {
            (*first.add(index)).fd = 5;
            (*first.add(index)).read = event.ptr();
        }
        (*first).set_idle(1);
        (*first).set_close(1);
        let expected = connections.image();
        (*first).set_close(0);
        ngx_close_idle_connections(cycle.ptr());
        (expected, connections.image())
    };
    ensure(
        was_called_with(event.ptr()) && expected == found,
        "ngx_connection_t (idle, close), ngx_event_t (handler)",
    )
}

/// Timers in a tree of their own: which of them let a worker end, and what an expired one looks like.
fn timers() -> Result<(), Differs> {
    /// Has nginx work on a tree that holds only this timer.
    fn with_timer<R>(event: *mut ngx_event_t, run: impl FnOnce() -> R) -> R {
        // SAFETY: zeros are a tree and its sentinel, to be initialized.
        let (mut tree, mut sentinel): (ngx_rbtree_t, ngx_rbtree_node_t) = unsafe { mem::zeroed() };
        // SAFETY: `run` only calls functions of nginx that look at this tree, nginx' own is back afterwards, and
        // nothing else runs meanwhile: configurations are read by the only thread, outside of the event loop.
        unsafe {
            ngx_rbtree_init(
                &mut tree,
                &mut sentinel,
                Some(ngx_rbtree_insert_timer_value),
            );
            ngx_rbtree_insert(&mut tree, &raw mut (*event).timer);
            let place = &raw mut ngx_event_timer_rbtree;
            let own = ptr::replace(place, tree);
            let result = run();
            *place = own;
            result
        }
    }
    let differs = "ngx_event_t (cancelable, timer)";
    let mut event = Padded::<ngx_event_t>::zeroed();
    // SAFETY: the event is alive; the function reads the tree and its events.
    unsafe {
        (*event.ptr()).set_cancelable(1);
        let answer = with_timer(event.ptr(), || ngx_event_no_timers_left());
        ensure(answer == NGX_OK as ngx_int_t, differs)?;
        (*event.ptr()).set_cancelable(0);
        let answer = with_timer(event.ptr(), || ngx_event_no_timers_left());
        ensure(answer == NGX_AGAIN as ngx_int_t, differs)?;
    }

    let mut log = Padded::<ngx_log_t>::zeroed();
    let mut connection = Padded::<ngx_connection_t>::zeroed();
    let mut event = Padded::<ngx_event_t>::zeroed();
    let mut expected = Padded::<ngx_event_t>::zeroed();
    reset();
    // SAFETY: the structures outlive the call, which runs the handler of the one event that is due.
    unsafe {
        for event in [event.ptr(), expected.ptr()] {
            (*event).handler = Some(on_event);
            (*event).log = log.ptr();
            (*event).data = connection.ptr().cast();
        }
        (*event.ptr()).timer.key = ngx_current_msec;
        (*event.ptr()).set_timer_set(1);
        with_timer(event.ptr(), || ngx_event_expire_timers());
        (*expected.ptr()).set_timedout(1);
        (*expected.ptr()).timer = (*event.ptr()).timer;
    }
    ensure(
        was_called_with(event.ptr()) && event.image() == expected.image(),
        "ngx_event_t (timer, timer_set, timedout, handler)",
    )
}

/// An event in a queue of its own.
fn posted_events(conf: &Conf) -> Result<(), Differs> {
    let cf = conf.raw();
    let (mut event, mut log) = (
        Padded::<ngx_event_t>::zeroed(),
        Padded::<ngx_log_t>::zeroed(),
    );
    let mut queue = ngx_queue_t::default();
    let expected;
    reset();
    // SAFETY: event and queue outlive the call, which empties the queue; nginx uses the cycle's log at most.
    unsafe {
        ngx_queue_init(&mut queue);
        (*event.ptr()).handler = Some(on_event);
        (*event.ptr()).log = log.ptr();
        ngx_post_event(event.ptr(), &mut queue);
        ngx_event_process_posted((*cf).cycle, &mut queue);
        let mut copy = Padded::<ngx_event_t>::zeroed();
        (*copy.ptr()).handler = Some(on_event);
        (*copy.ptr()).log = log.ptr();
        (*copy.ptr()).queue = (*event.ptr()).queue;
        expected = copy.image();
    }
    ensure(
        was_called_with(event.ptr()) && event.image() == expected,
        "ngx_event_t (posted, queue, handler)",
    )
}

/// The cycle's modules and configuration, and a pool.
fn configuration(conf: &Conf) -> Result<(), Differs> {
    let cf = conf.raw();
    // SAFETY: nginx has numbered its modules, and has stored the context of the block `http` before it calls modules.
    unsafe {
        let cycle = (*cf).cycle;
        let own = address();
        let found = *(*cycle).modules.add((*own).index);
        ensure(ptr::eq(found, own), "ngx_cycle_t (modules)")?;
        let context = *(*cycle).conf_ctx.add(ngx_http_module.index);
        ensure(
            ptr::addr_eq(context, (*cf).ctx),
            "ngx_cycle_t (conf_ctx), ngx_conf_t (ctx)",
        )?;
        ensure(
            ptr::eq((*cycle).log, (*cf).log),
            "ngx_cycle_t (log), ngx_conf_t (log)",
        )
    }
}

/// Variables of nginx that are a field of the request have its place in their definition.
fn offsets_in_requests(conf: &Conf) -> Result<(), Differs> {
    let cf = conf.raw();
    const REQUEST: [(&[u8], usize); 6] = [
        (b"uri", offset_of!(ngx_http_request_t, uri)),
        (b"args", offset_of!(ngx_http_request_t, args)),
        (b"limit_rate", offset_of!(ngx_http_request_t, limit_rate)),
        (
            b"http_user_agent",
            offset_of!(ngx_http_request_t, headers_in)
                + offset_of!(ngx_http_headers_in_t, user_agent),
        ),
        (
            b"http_referer",
            offset_of!(ngx_http_request_t, headers_in) + offset_of!(ngx_http_headers_in_t, referer),
        ),
        (
            b"sent_http_cache_control",
            offset_of!(ngx_http_request_t, headers_out)
                + offset_of!(ngx_http_headers_out_t, cache_control),
        ),
    ];
    // SAFETY: nginx' core has added its variables before it calls other modules; the size of an element is checked
    // before the elements are read.
    let keys = unsafe {
        let context = (*cf).ctx.cast::<ngx_http_conf_ctx_t>();
        let main = *(*context).main_conf.add(ngx_http_core_module.ctx_index);
        let keys = (*main.cast::<ngx_http_core_main_conf_t>()).variables_keys;
        ensure(
            !keys.is_null() && keys.is_aligned(),
            "ngx_http_core_main_conf_t (variables_keys)",
        )?;
        let keys = &(*keys).keys;
        ensure(
            keys.size == size_of::<ngx_hash_key_t>() && keys.nelts < 100_000,
            "ngx_http_core_main_conf_t (variables_keys)",
        )?;
        std::slice::from_raw_parts(keys.elts.cast::<ngx_hash_key_t>(), keys.nelts)
    };
    let mut seen = 0;
    for key in keys {
        let known = REQUEST.iter().find(|(name, _)| *name == key.key.as_bytes());
        if let Some((_, offset)) = known {
            // SAFETY: the value of a variable's key is its definition.
            let data = unsafe { (*key.value.cast::<ngx_http_variable_t>()).data };
            let differs = "ngx_http_request_t (uri, args, headers_in, headers_out)";
            ensure(data == *offset, differs)?;
            seen += 1;
        }
    }
    ensure(seen == REQUEST.len(), "ngx_http_variable_t")
}

/// `ngx_event_connect_peer()` asks for an address first.
fn peers() -> Result<(), Differs> {
    let mut peer = Padded::<ngx_peer_connection_t>::zeroed();
    let place = peer.ptr();
    reset();
    // SAFETY: the structure outlives the call, which ends with the answer of `get`.
    let answer = unsafe {
        (*place).get = Some(on_peer);
        (*place).data = place.cast();
        ngx_event_connect_peer(place)
    };
    ensure(
        answer == NGX_BUSY as ngx_int_t && was_called_with(place),
        "ngx_peer_connection_t (get, data)",
    )
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
    fn new() -> Result<Self, Differs> {
        let mut log = Padded::<ngx_log_t>::zeroed();
        // SAFETY: the log lives as long as the pool.
        let pool = unsafe { ngx_create_pool(1024, log.ptr()) };
        ensure(!pool.is_null(), "memory, of which there is none left")?;
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
struct Filters(
    ngx_http_output_header_filter_pt,
    ngx_http_output_body_filter_pt,
);

impl Filters {
    fn replace() -> Self {
        let (headers, bodies) = (
            &raw mut ngx_http_top_header_filter,
            &raw mut ngx_http_top_body_filter,
        );
        // SAFETY: nginx reads both while it sends, and nothing is sent while a configuration is read.
        unsafe {
            Self(
                ptr::replace(headers, Some(on_header)),
                ptr::replace(bodies, Some(on_body)),
            )
        }
    }
}

impl Drop for Filters {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe {
            ngx_http_top_header_filter = self.0;
            ngx_http_top_body_filter = self.1;
        }
    }
}

/// The header of an answer is sent once.
fn headers_sent() -> Result<(), Differs> {
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
    let was_sent_again = CALLS.load(Ordering::Relaxed) != 0;
    ensure(
        first == NGX_OK as ngx_int_t
            && was_sent
            && second == NGX_ERROR as ngx_int_t
            && !was_sent_again,
        "ngx_http_request_t (header_sent)",
    )
}

/// The end of an answer, of a request and of a part of one; its filter fails, which nginx notes.
fn ends_sent() -> Result<(), Differs> {
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
fn bodies() -> Result<(), Differs> {
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
fn expectations() -> Result<(), Differs> {
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
fn posted_requests() -> Result<(), Differs> {
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
        ensure(
            CALLS.load(Ordering::Relaxed) == 0,
            "ngx_connection_t (destroyed)",
        )?;
        (*connection).set_destroyed(0);
        ngx_http_run_posted_requests(connection);
        ensure(
            was_called_with(request) && (*request).posted_requests.is_null(),
            "ngx_http_request_t (write_event_handler, posted_requests)",
        )
    }
}

/// The value of a variable that is known already.
fn variables() -> Result<(), Differs> {
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
