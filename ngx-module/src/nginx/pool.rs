//! Memory that is freed with a request or a configuration.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::NonNull;

use ngx::ffi::{ngx_pcalloc, ngx_pnalloc, ngx_pool_cleanup_add, ngx_pool_t, ngx_str_t};

/// A pool, for as long as it certainly lives.
#[derive(Clone, Copy)]
pub(crate) struct Pool<'a> {
    raw: NonNull<ngx_pool_t>,
    life: PhantomData<&'a ngx_pool_t>,
}

/// A text in a pool, or a static one: nginx takes it without another copy. It lives as long as the pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolText {
    data: NonNull<u8>,
    len: usize,
}

impl PoolText {
    /// The empty text.
    pub(crate) const EMPTY: Self = Self {
        data: NonNull::dangling(),
        len: 0,
    };

    /// The text.
    ///
    /// # Safety
    /// The pool that it was copied to must live as long as `'a`.
    #[inline]
    pub(crate) unsafe fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: as this function's own; no code writes to the copy.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }

    #[inline]
    pub(super) fn raw(self) -> ngx_str_t {
        ngx_str_t {
            len: self.len,
            data: self.data.as_ptr(),
        }
    }
}

impl<'a> Pool<'a> {
    /// # Safety
    /// The pool must be valid, and live as long as `'a`.
    #[inline]
    pub(super) unsafe fn of(raw: *mut ngx_pool_t) -> Self {
        Self {
            // SAFETY: a valid pool is not null.
            raw: unsafe { NonNull::new_unchecked(raw) },
            life: PhantomData,
        }
    }

    #[inline]
    pub(super) fn as_ptr(self) -> *mut ngx_pool_t {
        self.raw.as_ptr()
    }

    /// Copies a text that comes in pieces; `None` when there is no memory.
    #[inline]
    pub(crate) fn copy(self, pieces: &[&[u8]]) -> Option<PoolText> {
        let len = pieces.iter().map(|piece| piece.len()).sum();
        // SAFETY: the pool is valid, and the allocation has the length of all pieces together.
        unsafe {
            let data = NonNull::new(ngx_pnalloc(self.as_ptr(), len).cast::<u8>())?;
            let mut end = data.as_ptr();
            for piece in pieces {
                end.copy_from_nonoverlapping(piece.as_ptr(), piece.len());
                end = end.add(piece.len());
            }
            Some(PoolText { data, len })
        }
    }

    /// Copies a text and puts a zero behind it, for nginx' functions that open files.
    pub(super) fn copy_with_zero(self, text: &[u8]) -> Option<ngx_str_t> {
        let text = PoolText {
            len: text.len(),
            ..self.copy(&[text, b"\0"])?
        };
        Some(text.raw())
    }

    /// Memory of zeros, as nginx' structures begin; `None` when there is none.
    ///
    /// # Safety
    /// All zeros must be a valid value of `T`, which must need no larger alignment than a pointer.
    pub(super) unsafe fn zeroed<T>(self) -> Option<NonNull<T>> {
        // SAFETY: the pool is valid.
        NonNull::new(unsafe { ngx_pcalloc(self.as_ptr(), size_of::<T>()) }.cast())
    }

    /// Places a value, which is dropped with the pool; `None` when there is no memory.
    pub(super) fn place<T: 'static>(self, value: T) -> Option<NonNull<T>> {
        const { assert!(align_of::<T>() <= align_of::<*const ()>()) };
        // SAFETY: the pool is valid. The data that nginx allocates with the cleanup has the size that is asked
        // for and the alignment of a pointer, which suffices.
        unsafe {
            let cleanup = ngx_pool_cleanup_add(self.as_ptr(), size_of::<T>()).as_mut()?;
            let place = NonNull::new(cleanup.data.cast::<T>())?;
            place.write(value);
            cleanup.handler = Some(drop_placed::<T>);
            Some(place)
        }
    }
}

/// Called by nginx when a pool is destroyed.
pub(super) unsafe extern "C" fn drop_placed<T>(data: *mut c_void) {
    // SAFETY: `Pool::place` has written a value of this type there, and nginx calls this once.
    unsafe { data.cast::<T>().drop_in_place() };
}

/// A static text as nginx holds it: it reads the text and never writes to it.
pub(super) const fn static_text(text: &'static str) -> ngx_str_t {
    ngx_str_t {
        len: text.len(),
        data: text.as_ptr().cast_mut(),
    }
}

/// A text for a call that neither keeps nor changes it.
pub(super) fn lent(text: &[u8]) -> ngx_str_t {
    ngx_str_t {
        len: text.len(),
        data: text.as_ptr().cast_mut(),
    }
}
