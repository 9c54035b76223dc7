//! Structures of the self-test, and the calls of its functions by nginx.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes around a structure.
pub(crate) const MARGIN: usize = 4096;

/// A structure between margins.
#[repr(C, align(16))]
pub(crate) struct Padded<T> {
    pub(crate) before: [u8; MARGIN],
    value: MaybeUninit<T>,
    pub(crate) after: [u8; MARGIN],
}

impl<T> Padded<T> {
    /// Zeros. `T` is a structure of nginx, of which zeros are a value: it consists of numbers, nullable pointers and
    /// optional functions.
    pub(crate) fn zeroed() -> Box<Self> {
        // In place, since a move need not keep the bytes between two fields.
        // SAFETY: zeros are a value of arrays of bytes and of what may be uninitialized.
        unsafe { Box::<Self>::new_zeroed().assume_init() }
    }

    pub(crate) fn ptr(&mut self) -> *mut T {
        self.value.as_mut_ptr()
    }

    /// Everything, margins included.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        let size = size_of::<Self>();
        // SAFETY: every byte was initialized, those of `value` with zeros; all values of `u8` are valid there, since
        // `value` is only accessed through pointers, as nginx does.
        unsafe { std::slice::from_raw_parts_mut(ptr::from_mut(self).cast(), size) }
    }

    /// Every byte of the structure and its margins, for a comparison.
    pub(crate) fn image(&mut self) -> Vec<u8> {
        self.bytes().to_vec()
    }
}

/// The number of calls by nginx of the functions of the self-test since [`reset`], and the first argument of the last call.
static CALLS: AtomicUsize = AtomicUsize::new(0);
static ARGUMENT: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn record(argument: *const c_void) {
    CALLS.fetch_add(1, Ordering::Relaxed);
    ARGUMENT.store(argument.addr(), Ordering::Relaxed);
}

pub(crate) fn reset() {
    CALLS.store(0, Ordering::Relaxed);
    ARGUMENT.store(0, Ordering::Relaxed);
}

/// Returns whether there was one call, with this argument.
pub(crate) fn was_called_with<T>(argument: *const T) -> bool {
    CALLS.load(Ordering::Relaxed) == 1 && ARGUMENT.load(Ordering::Relaxed) == argument.addr()
}

/// Returns whether there was no call.
pub(crate) fn was_not_called() -> bool {
    CALLS.load(Ordering::Relaxed) == 0
}

/// The reason to refuse the nginx that runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unfit {
    /// It has these fields of a structure elsewhere.
    Differs(&'static str),
    /// There is no memory for the test.
    NoMemory,
}

/// Checks what shows where nginx has fields; `fields` names them.
///
/// # Errors
/// These fields, unless it is so.
pub(crate) fn ensure(is_so: bool, fields: &'static str) -> Result<(), Unfit> {
    if is_so {
        Ok(())
    } else {
        Err(Unfit::Differs(fields))
    }
}
