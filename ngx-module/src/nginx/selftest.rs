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
//!
//! Not covered are the configurations of locations and servers, of TLS and upstreams, and what the module gives to
//! nginx or gets from it while it runs: `ngx_resolver_t` and its results, `ngx_ssl_t`, `ngx_ssl_connection_t`,
//! `ngx_url_t`, `ngx_path_t`, `ngx_shm_zone_t`, `ngx_pool_t`, `ngx_pool_cleanup_t`, `ngx_http_cleanup_t`, `ngx_time_t`,
//! the lists of headers (`ngx_list_t`, `ngx_table_elt_t`), `headers_out` but for `cache_control`, and the phases. For
//! these there is only the comparison with the headers at hand, and nginx' own of versions and options.

pub(crate) mod padded;
pub(crate) mod requests;

use std::ffi::c_void;
use std::mem::{self, offset_of};
use std::ptr;

use ngx::ffi::*;

use crate::nginx::conf::Conf;
use crate::nginx::identity::address;
use crate::nginx::selftest::padded::{
    MARGIN, Padded, Unfit, ensure, record, reset, was_called_with,
};

/// The most modules of an nginx, to find this one among them.
const MOST_MODULES: usize = 1024;

extern "C" fn on_event(event: *mut ngx_event_t) {
    record(event.cast());
}

unsafe extern "C" fn on_peer(peer: *mut ngx_peer_connection_t, data: *mut c_void) -> ngx_int_t {
    record(if data.is_null() {
        ptr::null()
    } else {
        peer.cast()
    });
    NGX_BUSY as ngx_int_t
}

/// Asks the running nginx.
///
/// # Errors
/// The fields that it has elsewhere.
/// To be called in the phase `preconfiguration`.
pub(crate) fn verify(conf: &mut Conf) -> Result<(), Unfit> {
    connections()?;
    idle_connections()?;
    timers()?;
    posted_events(conf)?;
    configuration(conf)?;
    offsets_in_requests(conf)?;
    peers()?;
    requests::verify()
}

/// `ngx_get_connection()` clears a connection and its events, then sets some of their fields.
fn connections() -> Result<(), Unfit> {
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
fn idle_connections() -> Result<(), Unfit> {
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
fn timers() -> Result<(), Unfit> {
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
fn posted_events(conf: &Conf) -> Result<(), Unfit> {
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
fn configuration(conf: &Conf) -> Result<(), Unfit> {
    let cf = conf.raw();
    // SAFETY: nginx has numbered its modules, and has stored the context of the block `http` before it calls modules.
    unsafe {
        let cycle = (*cf).cycle;
        // Its place in the list need not be its number: a filter that is loaded later stands before it.
        let modules = (0..MOST_MODULES).map(|place| *(*cycle).modules.add(place));
        let mut modules = modules.take_while(|module| !module.is_null());
        ensure(
            modules.any(|module| ptr::eq(module, address())),
            "ngx_cycle_t (modules)",
        )?;
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
fn offsets_in_requests(conf: &Conf) -> Result<(), Unfit> {
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
fn peers() -> Result<(), Unfit> {
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
