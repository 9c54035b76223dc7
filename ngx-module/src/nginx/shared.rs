//! Memory that all workers share.
//!
//! It is nginx' own shared memory, made before workers are started and kept over reloads. It holds only atomic
//! numbers, so that no worker ever waits for another one and none leaves anything locked when it is killed.

use std::cell::Cell;
use std::ffi::c_void;
use std::io::Read;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, slice};

use ngx::ffi::{
    NGX_ERROR, NGX_OK, ngx_int_t, ngx_pagesize, ngx_shared_memory_add, ngx_shm_zone_t,
    ngx_slab_calloc, ngx_slab_pool_t,
};

use crate::nginx::conf::Conf;
use crate::nginx::identity;

/// Words at the beginning of a zone that are not the user's: the number of words, a secret of two, and one that the
/// user has for itself. The user's words begin with a cache line of their own.
const HEADER: usize = 8;

/// The place of the user's own word among them.
const OWN: usize = 3;

/// A zone of shared memory. It lives as long as the configuration that has asked for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zone(NonNull<Parts>);

/// A zone, as the configuration has it.
#[derive(Debug)]
struct Parts {
    count: usize,
    /// Its words; null until nginx has made the memory.
    first: Cell<*const AtomicU64>,
}

impl Conf {
    /// Asks nginx for a zone of so many words.
    ///
    /// # Errors
    /// When there is no memory, or the name is taken.
    pub(crate) fn add_zone(&mut self, name: &str, count: usize) -> Result<Zone, String> {
        let no_memory = || format!("there is no memory for the zone \"{name}\"");
        let parts = self.pool().place(Parts {
            count,
            first: Cell::new(ptr::null()),
        });
        let parts = parts.ok_or_else(no_memory)?;
        let mut text = self
            .pool()
            .copy_with_zero(name.as_bytes())
            .ok_or_else(no_memory)?;
        // SAFETY: the configuration is valid; nginx reads the name and keeps the text's address. Text and data
        // live as long as the configuration, and so as the zone.
        unsafe {
            // nginx' allocator needs pages of its own, one for every hundred or so.
            let bytes = (HEADER + count) * size_of::<u64>();
            let size = bytes + bytes / 32 + 16 * ngx_pagesize;
            let tag = identity::address().cast::<c_void>();
            let zone = ngx_shared_memory_add(self.raw(), &mut text, size, tag);
            let zone = zone.as_mut().ok_or_else(no_memory)?;
            zone.init = Some(init);
            zone.data = parts.as_ptr().cast();
        }
        Ok(Zone(parts))
    }
}

impl Zone {
    #[inline]
    fn first(self) -> *const AtomicU64 {
        // SAFETY: the parts live as long as the configuration.
        unsafe { self.0.as_ref() }.first.get()
    }

    /// The words of the zone; `None` until nginx has made it, which it does before it starts workers.
    pub(crate) fn words(self) -> Option<&'static [AtomicU64]> {
        let first = self.first();
        if first.is_null() {
            return None;
        }
        // SAFETY: `init` has put the address of zeroed words there, the first of which says how many follow. The memory
        // lives as long as the worker.
        unsafe {
            let count = (*first).load(Ordering::Relaxed);
            Some(slice::from_raw_parts(first.add(HEADER), count as usize))
        }
    }

    /// A secret that is the same for all workers; as [`Zone::words`].
    pub(crate) fn secret(self) -> Option<[u8; 16]> {
        let first = self.first();
        if first.is_null() {
            return None;
        }
        let mut secret = [0; 16];
        for (place, bytes) in secret.chunks_exact_mut(8).enumerate() {
            // SAFETY: as for `words`; the secret follows the number of words.
            let word = unsafe { &*first.add(1 + place) }.load(Ordering::Relaxed);
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        Some(secret)
    }

    /// A word for the user's own purpose; as [`Zone::words`].
    #[inline]
    pub(crate) fn own_word(self) -> Option<&'static AtomicU64> {
        let first = self.first();
        // SAFETY: as for `words`.
        (!first.is_null()).then(|| unsafe { &*first.add(OWN) })
    }
}

/// Called by nginx when it has made a zone; `old` is what the same zone had before a reload.
unsafe extern "C" fn init(zone: *mut ngx_shm_zone_t, old: *mut c_void) -> ngx_int_t {
    // SAFETY: nginx calls this with the zone that `add_zone` has asked for, and with the data of the zone of the same
    // size in the configuration before, which still lives.
    let (parts, old) = unsafe { (&*(*zone).data.cast::<Parts>(), old.cast::<Parts>().as_ref()) };
    if let Some(old) = old {
        parts.first.set(old.first.get());
        return NGX_OK as ngx_int_t;
    }
    let Some(secret) = secret() else {
        return NGX_ERROR as ngx_int_t;
    };
    // SAFETY: the zone's memory begins with nginx' allocator, and no other code uses it yet.
    unsafe {
        let pool = (*zone).shm.addr.cast::<ngx_slab_pool_t>();
        // More than a page, so that it begins with one.
        let bytes = ((HEADER + parts.count) * size_of::<u64>()).max(ngx_pagesize);
        let first = ngx_slab_calloc(pool, bytes).cast::<u64>();
        if first.is_null() {
            return NGX_ERROR as ngx_int_t;
        }
        *first = parts.count as u64;
        *first.add(1) = secret[0];
        *first.add(2) = secret[1];
        parts.first.set(first.cast());
    }
    NGX_OK as ngx_int_t
}

/// A secret from the system.
pub(crate) fn secret() -> Option<[u64; 2]> {
    let mut bytes = [0; 16];
    let mut source = fs::File::open("/dev/urandom").ok()?;
    source.read_exact(&mut bytes).ok()?;
    let (first, second) = bytes.split_at(8);
    Some([
        u64::from_le_bytes(first.try_into().ok()?),
        u64::from_le_bytes(second.try_into().ok()?),
    ])
}
