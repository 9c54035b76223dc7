//! Memory that all workers share: their counters, and the misses of each address.
//!
//! It is nginx' own shared memory, made before workers are started and kept over reloads. It holds
//! only atomic numbers, so that no worker ever waits for another one and none leaves anything
//! locked when it is killed.

use std::ffi::c_void;
use std::sync::atomic::AtomicU64;
use std::{fs, io::Read, ptr, slice};

use ngx::ffi::{
    NGX_ERROR, NGX_OK, ngx_conf_t, ngx_int_t, ngx_pagesize, ngx_pid, ngx_shared_memory_add,
    ngx_shm_zone_t, ngx_slab_calloc, ngx_slab_pool_t, ngx_str_t,
};
use ngx::http::HttpModule;
use resolver::counters::{self, Counters, WorkerCounters};
use resolver::limit::{Limits, MissTable};

use crate::Shortlink;

/// Words at the beginning of a zone that are not the user's: the number of words, a secret of two,
/// and the alarm of misses. The user's words begin with a cache line of their own.
const HEADER: usize = 8;

/// The place of the alarm among them.
const ALARM: usize = 3;

/// A zone of shared memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zone(*mut ngx_shm_zone_t);

impl Zone {
    /// Asks nginx for a zone of so many words.
    ///
    /// # Errors
    /// When there is no memory, or the name is taken.
    ///
    /// # Safety
    /// The configuration must be valid; `name` lives as long as the process.
    pub(crate) unsafe fn add(
        cf: *mut ngx_conf_t,
        name: &'static str,
        words: usize,
    ) -> Result<Self, String> {
        // SAFETY: as this function's own; nginx reads the name and keeps the text's address.
        unsafe {
            let mut text = ngx_str_t {
                len: name.len(),
                data: name.as_ptr().cast_mut(),
            };
            // nginx' allocator needs pages of its own, one for every hundred or so.
            let bytes = (HEADER + words) * size_of::<u64>();
            let size = bytes + bytes / 32 + 16 * ngx_pagesize;
            let tag = ptr::from_ref(Shortlink::module())
                .cast_mut()
                .cast::<c_void>();
            let zone = ngx_shared_memory_add(cf, &mut text, size, tag);
            if zone.is_null() {
                return Err(format!("there is no memory for the zone \"{name}\""));
            }
            (*zone).init = Some(init);
            // Read by `init` when the memory is new, then replaced by where the words lie.
            (*zone).data = words as *mut c_void;
            Ok(Self(zone))
        }
    }

    /// The words of the zone, and a secret that is the same for all workers.
    ///
    /// # Safety
    /// nginx must have made the zone; it must be kept as long as the process lives.
    unsafe fn words(self) -> (&'static [AtomicU64], [u8; 16]) {
        // SAFETY: `init` has put the address of that many zeroed words there, the first of which
        // says how many there are. Workers only use them as atomics.
        unsafe {
            let first = (*self.0).data.cast::<u64>();
            let count = *first;
            let mut secret = [0; 16];
            secret[..8].copy_from_slice(&(*first.add(1)).to_le_bytes());
            secret[8..].copy_from_slice(&(*first.add(2)).to_le_bytes());
            let words = slice::from_raw_parts(first.add(HEADER).cast(), count as usize);
            (words, secret)
        }
    }

    /// Returns the workers' counters.
    ///
    /// # Safety
    /// As for [`Zone::words`].
    pub(crate) unsafe fn counters(self) -> Option<Counters<'static>> {
        // SAFETY: as this function's own.
        let (words, _) = unsafe { self.words() };
        Counters::new(words)
    }

    /// A place for this worker to count in.
    ///
    /// # Safety
    /// As for [`Zone::words`].
    pub(crate) unsafe fn claim_counters(self) -> Option<WorkerCounters<'static>> {
        // SAFETY: as this function's own; the number is the process' own.
        unsafe { Some(self.counters()?.claim(ngx_pid as u32, is_alive)) }
    }

    /// Returns the misses of each address.
    ///
    /// # Safety
    /// As for [`Zone::words`].
    pub(crate) unsafe fn misses(self, limits: Limits) -> MissTable<'static> {
        // SAFETY: as this function's own.
        unsafe {
            let (words, secret) = self.words();
            MissTable::new(words, self.alarm(), secret, limits)
        }
    }

    /// Returns the time until which an address may be limited.
    ///
    /// # Safety
    /// As for [`Zone::words`].
    #[inline]
    pub(crate) unsafe fn alarm(self) -> &'static AtomicU64 {
        // SAFETY: the zone begins with zeroed words, of which workers use this one only as an
        // atomic.
        unsafe { &*(*self.0).data.cast::<AtomicU64>().add(ALARM) }
    }
}

/// Number of words that the counters take.
pub(crate) const COUNTER_WORDS: usize = counters::WORDS;

/// Returns whether there is a process of this number.
pub(crate) fn is_alive(process: u32) -> bool {
    // SAFETY: the signal 0 is not sent; it is only looked whether it could be. Errors other than
    // that there is none mean that there is one.
    let there_is_none = unsafe {
        ngx::ffi::kill(process as i32, 0) == -1
            && *ngx::ffi::__errno_location() == ngx::ffi::ESRCH as i32
    };
    !there_is_none
}

/// Called by nginx when it has made a zone; `old` is what the same zone held before a reload.
unsafe extern "C" fn init(zone: *mut ngx_shm_zone_t, old: *mut c_void) -> ngx_int_t {
    // SAFETY: nginx calls this with the zone that `add` has asked for, whose memory begins with
    // nginx' allocator; no other code uses it yet.
    unsafe {
        if !old.is_null() {
            (*zone).data = old;
            return NGX_OK as ngx_int_t;
        }
        let count = (*zone).data as usize;
        let pool = (*zone).shm.addr.cast::<ngx_slab_pool_t>();
        // More than a page, so that it begins with one.
        let bytes = ((HEADER + count) * size_of::<u64>()).max(ngx_pagesize);
        let first = ngx_slab_calloc(pool, bytes).cast::<u64>();
        let Some(secret) = secret().filter(|_| !first.is_null()) else {
            return NGX_ERROR as ngx_int_t;
        };
        *first = count as u64;
        *first.add(1) = secret[0];
        *first.add(2) = secret[1];
        (*zone).data = first.cast();
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
