//! Addresses of sockets.

use std::ffi::{c_char, c_void};
use std::net::{IpAddr, SocketAddr};
use std::{mem, ptr};

use ngx::ffi::{
    AF_INET, AF_INET6, AF_UNIX, in_addr, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_un,
    socklen_t,
};

/// The most bytes that an address takes.
const LONGEST: usize = 128;

/// An address as the system wants it. It holds no pointers.
#[derive(Clone)]
pub(crate) struct SocketAddress {
    /// Aligned as every kind of address wants it.
    storage: [u64; LONGEST / 8],
    length: socklen_t,
    text: String,
}

impl std::fmt::Debug for SocketAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl SocketAddress {
    /// Copies an address.
    ///
    /// # Safety
    /// `from` must be valid for `length` bytes.
    pub(super) unsafe fn copy(from: *const c_void, length: usize, text: String) -> Self {
        const {
            assert!(
                size_of::<sockaddr_un>() <= LONGEST && align_of::<sockaddr_in6>() <= 8,
                "every kind of address fits"
            );
        }
        let mut storage = [0; LONGEST / 8];
        let length = length.min(LONGEST);
        // SAFETY: the source is valid for so many bytes and the storage has them; they don't overlap.
        unsafe {
            ptr::copy_nonoverlapping(from.cast::<u8>(), storage.as_mut_ptr().cast::<u8>(), length);
        }
        Self {
            storage,
            length: length as socklen_t,
            text,
        }
    }

    /// An IP address and a port.
    pub(crate) fn of_ip(address: SocketAddr) -> Self {
        let text = address.to_string();
        match address.ip() {
            IpAddr::V4(v4) => {
                // SAFETY: all zeros is a valid value of the structure.
                let mut raw: sockaddr_in = unsafe { mem::zeroed() };
                raw.sin_family = AF_INET as _;
                raw.sin_port = address.port().to_be();
                raw.sin_addr = in_addr {
                    s_addr: u32::from_ne_bytes(v4.octets()),
                };
                // SAFETY: the structure is copied whole.
                unsafe { Self::copy((&raw const raw).cast(), size_of_val(&raw), text) }
            }
            IpAddr::V6(v6) => {
                // SAFETY: all zeros is a valid value of the structure.
                let mut raw: sockaddr_in6 = unsafe { mem::zeroed() };
                raw.sin6_family = AF_INET6 as _;
                raw.sin6_port = address.port().to_be();
                raw.sin6_addr.__in6_u.__u6_addr8 = v6.octets();
                // SAFETY: the structure is copied whole.
                unsafe { Self::copy((&raw const raw).cast(), size_of_val(&raw), text) }
            }
        }
    }

    /// A unix socket; `None` when the path is too long for one.
    pub(crate) fn of_path(path: &str) -> Option<Self> {
        // SAFETY: all zeros is a valid value of the structure.
        let mut raw: sockaddr_un = unsafe { mem::zeroed() };
        // The path ends with a zero.
        if path.len() >= raw.sun_path.len() {
            return None;
        }
        raw.sun_family = AF_UNIX as _;
        for (to, from) in raw.sun_path.iter_mut().zip(path.bytes()) {
            *to = from as c_char;
        }
        let text = format!("unix:{path}");
        // SAFETY: the structure is copied whole.
        Some(unsafe { Self::copy((&raw const raw).cast(), size_of_val(&raw), text) })
    }

    /// The address as the system wants it, to be read; valid as long as this value.
    pub(super) fn as_sockaddr(&self) -> (*mut sockaddr, socklen_t) {
        (self.storage.as_ptr().cast_mut().cast(), self.length)
    }

    fn family(&self) -> u32 {
        // SAFETY: every kind of address begins with its family, and the storage is aligned for each.
        unsafe { u32::from((*self.as_sockaddr().0).sa_family) }
    }

    /// Returns whether it is an IP address.
    pub(crate) fn is_ip(&self) -> bool {
        matches!(self.family(), AF_INET | AF_INET6)
    }

    /// The address for messages.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The same with another text and, if it is an IP address, another port.
    pub(crate) fn with(mut self, text: String, port: u16) -> Self {
        let raw = self.storage.as_mut_ptr();
        match self.family() {
            // SAFETY: the storage is as large and aligned as any kind of address, and the family says which it is.
            AF_INET6 => unsafe { (*raw.cast::<sockaddr_in6>()).sin6_port = port.to_be() },
            // SAFETY: as above.
            AF_INET => unsafe { (*raw.cast::<sockaddr_in>()).sin_port = port.to_be() },
            _ => {}
        }
        self.text = text;
        self
    }
}
