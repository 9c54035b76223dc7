//! Events of the module's own: work for the end of a turn of nginx' loop, and timers.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem;

use ngx::ffi::{
    ngx_add_timer, ngx_connection_t, ngx_del_timer, ngx_event_t, ngx_msec_t, ngx_post_event,
    ngx_posted_events,
};

use crate::nginx::log::Log;
use crate::nginx::process::milliseconds;

/// A function that nginx calls with an event; made by [`event_handler`].
#[derive(Clone, Copy)]
pub(crate) struct EventHandler(pub(super) unsafe extern "C" fn(*mut ngx_event_t));

impl EventHandler {
    /// # Safety
    /// The function must be sound for every valid event.
    pub(crate) const unsafe fn new(function: unsafe extern "C" fn(*mut ngx_event_t)) -> Self {
        Self(function)
    }
}

/// The handler of an [`Event`] that calls a function `fn(usize)` with the event's number.
macro_rules! event_handler {
    ($function:path) => {{
        unsafe extern "C" fn call(event: *mut ngx::ffi::ngx_event_t) {
            // SAFETY: nginx calls this with the event.
            $function(unsafe { $crate::nginx::event::number_of(event) });
        }
        // SAFETY: the data of every event is a connection.
        unsafe { $crate::nginx::event::EventHandler::new(call) }
    }};
}
pub(crate) use event_handler;

/// The number that an event was made with.
///
/// # Safety
/// The event must be one of [`Event::new`].
pub(crate) unsafe fn number_of(event: *mut ngx_event_t) -> usize {
    // SAFETY: as this function's own: the event and its connection live as long as the process.
    unsafe { (*(*event).data.cast::<ngx_connection_t>()).data as usize }
}

/// The structures that nginx keeps pointers to while an event is posted or armed. They are never borrowed mutably.
struct Parts {
    event: UnsafeCell<ngx_event_t>,
    /// nginx reads a descriptor through an event's data to log it.
    connection: UnsafeCell<ngx_connection_t>,
}

/// An event that no connection has. It lives as long as the process, since nginx may point to it.
pub(crate) struct Event(&'static Parts);

impl Event {
    /// Makes one with a number for its handler.
    pub(crate) fn new(handler: EventHandler, number: usize, log: Log) -> Self {
        // SAFETY: all zeros is a valid value of these structures: nginx itself makes them so.
        let (mut event, mut connection) = unsafe {
            (
                mem::zeroed::<ngx_event_t>(),
                mem::zeroed::<ngx_connection_t>(),
            )
        };
        connection.fd = -1;
        connection.data = number as *mut c_void;
        event.log = log.as_ptr();
        event.handler = Some(handler.0);
        let parts: &Parts = Box::leak(Box::new(Parts {
            event: UnsafeCell::new(event),
            connection: UnsafeCell::new(connection),
        }));
        // SAFETY: nginx does not have the event yet.
        unsafe { (*parts.event.get()).data = parts.connection.get().cast() };
        Self(parts)
    }

    #[inline]
    fn raw(&self) -> *mut ngx_event_t {
        self.0.event.get()
    }

    /// Has the handler called at the end of this turn of nginx' loop.
    #[inline]
    pub(crate) fn post(&self) {
        // SAFETY: the event lives as long as the process; nginx runs posted events only when no handler runs.
        unsafe { ngx_post_event(self.raw(), &raw mut ngx_posted_events) };
    }

    /// Sets whether a worker that ends need not wait for the timer.
    #[inline]
    pub(crate) fn set_cancelable(&self, is_cancelable: bool) {
        // SAFETY: nginx does not look at the event meanwhile.
        unsafe { (*self.raw()).set_cancelable(u32::from(is_cancelable)) };
    }

    /// Has the handler called no later than at a time of [`milliseconds`]. An earlier timer stays.
    #[inline]
    pub(crate) fn arm(&self, deadline: u64) {
        let wait = deadline.saturating_sub(milliseconds());
        // SAFETY: the event lives as long as the process, and its flag says whether it is in the tree of timers.
        unsafe {
            let event = self.raw();
            if (*event).timer_set() == 0 {
                ngx_add_timer(event, wait as ngx_msec_t);
            } else if ((*event).timer.key as u64) > deadline {
                ngx_del_timer(event);
                ngx_add_timer(event, wait as ngx_msec_t);
            }
        }
    }
}
