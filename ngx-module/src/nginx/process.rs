//! The process: its time, its end, what it owns, and advice to the system.

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;

use ngx::ffi::{
    ESRCH, MADV_HUGEPAGE, NGX_PROCESS_SINGLE, NGX_PROCESS_WORKER, kill, madvise, ngx_current_msec,
    ngx_exiting, ngx_pid, ngx_process, ngx_quit, ngx_random, ngx_terminate, ngx_time,
    ngx_timeofday, ngx_uint_t,
};

/// A value of the worker's own, which is made when the worker starts and lives as long as it.
pub(crate) struct Local<T> {
    value: UnsafeCell<Option<T>>,
    is_lent: Cell<bool>,
}

// SAFETY: only the thread of the worker runs code of the module, and the master, before workers are made.
unsafe impl<T> Sync for Local<T> {}

impl<T> Local<T> {
    /// None yet.
    pub(crate) const fn new() -> Self {
        Self {
            value: UnsafeCell::new(None),
            is_lent: Cell::new(false),
        }
    }

    /// Puts the value there, unless there is one.
    pub(crate) fn set(&self, value: T) {
        debug_assert!(!self.is_lent.get());
        if !self.is_lent.get() {
            // SAFETY: the value is not lent, so there is no reference to it.
            unsafe { (*self.value.get()).get_or_insert(value) };
        }
    }

    /// Lends the value to `work`; `None` where there is none, or while it is lent: nothing that `work`
    /// calls may come back here.
    #[inline]
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        debug_assert!(!self.is_lent.get(), "a call came back");
        if self.is_lent.replace(true) {
            return None;
        }
        // SAFETY: the flag says that there is no other reference to the value, and stays set until this one
        // is gone.
        let value = unsafe { (*self.value.get()).as_mut() };
        let result = value.map(work);
        self.is_lent.set(false);
        result
    }
}

/// Milliseconds of a clock that never goes back, at the beginning of this turn of nginx' loop.
#[inline]
pub(crate) fn milliseconds() -> u64 {
    // SAFETY: written by nginx in this very thread only, before any event is handled.
    unsafe { ngx_current_msec as u64 }
}

/// Seconds since 1970, at the beginning of this turn of nginx' loop.
#[inline]
pub(crate) fn seconds() -> u64 {
    ngx_time() as u64
}

/// Milliseconds since 1970, at the beginning of this turn of nginx' loop.
pub(crate) fn unix_milliseconds() -> u64 {
    let time = ngx_timeofday();
    time.sec as u64 * 1000 + time.msec as u64
}

/// Returns whether this process answers requests: cache manager, cache loader and the master do not.
pub(crate) fn is_worker() -> bool {
    // SAFETY: written by nginx before workers are made.
    let process = unsafe { ngx_process };
    process == NGX_PROCESS_WORKER as ngx_uint_t || process == NGX_PROCESS_SINGLE as ngx_uint_t
}

/// Returns whether this worker is about to end.
#[inline]
pub(crate) fn is_exiting() -> bool {
    // SAFETY: written by nginx in this very thread, or by its signal handler, and only read here.
    unsafe { ngx_exiting != 0 || ngx_terminate != 0 || ngx_quit != 0 }
}

/// The number of this process.
pub(crate) fn number() -> u32 {
    // SAFETY: written by nginx when the process starts.
    unsafe { ngx_pid as u32 }
}

/// A number that other processes hardly have.
pub(crate) fn seed() -> u64 {
    (ngx_random() as u64) << 32 | u64::from(number())
}

/// Returns whether there is a process of this number.
pub(crate) fn is_alive(process: u32) -> bool {
    // SAFETY: the signal 0 is not sent; it is only looked whether it could be.
    let result = unsafe { kill(process as i32, 0) };
    // Other errors mean that there is one.
    result != -1 || std::io::Error::last_os_error().raw_os_error() != Some(ESRCH as i32)
}

/// Has the processor fetch the memory at an address, and does not wait.
#[inline]
pub(crate) fn prefetch(address: usize) {
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

/// Asks the system to keep memory of this process in large pages, if it has them: what is read all over would
/// with small ones have to find out at nearly every read where its page is.
pub(crate) fn ask_for_large_pages(address: usize, length: usize) {
    /// The size of a large page on most systems; where it is another, nothing is lost.
    const LARGE: usize = 2 << 20;
    if length < LARGE {
        return;
    }
    // The ends lie in large pages as well: what stands beside them is mostly of this process too.
    let begin = address / LARGE * LARGE;
    let end = (address + length).next_multiple_of(LARGE);
    // SAFETY: this is advice: it changes neither what stands there nor who may touch it; the parts of the range that
    // are none of this process are passed over.
    unsafe { madvise(begin as *mut c_void, end - begin, MADV_HUGEPAGE as i32) };
}
