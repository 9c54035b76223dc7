//! nginx' log.

use std::ptr::NonNull;

use ngx::ffi::{NGX_LOG_ALERT, NGX_LOG_ERR, NGX_LOG_NOTICE, NGX_LOG_WARN, ngx_log_t, ngx_uint_t};
use ngx::ngx_log_error;

/// The level of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Level {
    Err = NGX_LOG_ERR,
    Warn = NGX_LOG_WARN,
    Notice = NGX_LOG_NOTICE,
}

/// The log of a worker; it lives as long as the worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Log(NonNull<ngx_log_t>);

impl Log {
    /// # Safety
    /// The log must be valid as long as the process lives.
    pub(super) unsafe fn of(raw: NonNull<ngx_log_t>) -> Self {
        Self(raw)
    }

    pub(super) fn as_ptr(self) -> *mut ngx_log_t {
        self.0.as_ptr()
    }

    /// The same, silent for all but alerts. It takes memory for as long as the process lives.
    pub(crate) fn quiet(self) -> Self {
        // SAFETY: the log is valid, and copying one is what nginx does for each connection.
        let mut copy = unsafe { *self.as_ptr() };
        copy.log_level = NGX_LOG_ALERT as usize;
        Self(NonNull::from(Box::leak(Box::new(copy))))
    }

    /// Writes a line.
    pub(crate) fn write(self, level: Level, text: &str) {
        // The macro looks at the level of the log first.
        ngx_log_error!(level as ngx_uint_t, self.as_ptr(), "{text}");
    }
}
