//! Addresses of sockets: those of the configuration and those that servers report.

use std::ffi::{c_char, c_void};
use std::net::{IpAddr, SocketAddr};
use std::{mem, ptr};

use ngx::ffi::{
    AF_INET, AF_INET6, AF_UNIX, ngx_addr_t, ngx_int_t, ngx_msec_t, ngx_resolve_name,
    ngx_resolve_name_done, ngx_resolve_start, ngx_resolver_ctx_t, ngx_resolver_strerror,
    ngx_resolver_t, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_un, socklen_t,
};
use ngx::ffi::{NGX_OK, in_addr, ngx_str_t};
use resolver::{Address, ConnectionError, NodeId};

use crate::links::lose;
use crate::worker::{self, Worker};

/// The longest look-up of a name, in milliseconds; the connection's own limit is shorter.
const RESOLVE_TIMEOUT: ngx_msec_t = 5000;

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
    unsafe fn copy(from: *const c_void, length: usize, text: String) -> Self {
        const {
            assert!(
                size_of::<sockaddr_un>() <= LONGEST && align_of::<sockaddr_in6>() <= 8,
                "every kind of address fits"
            );
        }
        let mut storage = [0; LONGEST / 8];
        let length = length.min(LONGEST);
        // SAFETY: the source is valid for so many bytes and the storage has them; they don't
        // overlap.
        unsafe {
            ptr::copy_nonoverlapping(from.cast::<u8>(), storage.as_mut_ptr().cast::<u8>(), length);
        }
        Self {
            storage,
            length: length as socklen_t,
            text,
        }
    }

    /// Takes over an address that nginx has found.
    ///
    /// # Safety
    /// What the address points to must be valid.
    pub(crate) unsafe fn of_nginx(address: &ngx_addr_t) -> Self {
        // SAFETY: as this function's own.
        unsafe {
            let text = address.name.to_string();
            Self::copy(address.sockaddr.cast(), address.socklen as usize, text)
        }
    }

    /// An IP address and a port.
    pub(crate) fn of_ip(address: SocketAddr) -> Self {
        let text = address.to_string();
        // SAFETY: all zeros is a valid value of these structures, which are copied whole.
        unsafe {
            match address {
                SocketAddr::V4(v4) => {
                    let mut raw: sockaddr_in = mem::zeroed();
                    raw.sin_family = AF_INET as _;
                    raw.sin_port = v4.port().to_be();
                    raw.sin_addr = in_addr {
                        s_addr: u32::from_ne_bytes(v4.ip().octets()),
                    };
                    Self::copy((&raw const raw).cast(), size_of_val(&raw), text)
                }
                SocketAddr::V6(v6) => {
                    let mut raw: sockaddr_in6 = mem::zeroed();
                    raw.sin6_family = AF_INET6 as _;
                    raw.sin6_port = v6.port().to_be();
                    raw.sin6_addr.__in6_u.__u6_addr8 = v6.ip().octets();
                    Self::copy((&raw const raw).cast(), size_of_val(&raw), text)
                }
            }
        }
    }

    /// A unix socket; `None` when the path is too long for one.
    pub(crate) fn of_path(path: &str) -> Option<Self> {
        // SAFETY: all zeros is a valid value of the structure, which is copied whole.
        unsafe {
            let mut raw: sockaddr_un = mem::zeroed();
            // The path ends with a zero.
            if path.len() >= raw.sun_path.len() {
                return None;
            }
            raw.sun_family = AF_UNIX as _;
            for (to, from) in raw.sun_path.iter_mut().zip(path.bytes()) {
                *to = from as c_char;
            }
            let text = format!("unix:{path}");
            Some(Self::copy((&raw const raw).cast(), size_of_val(&raw), text))
        }
    }

    /// The address as the system wants it; valid as long as this value is not moved.
    pub(crate) fn as_sockaddr(&mut self) -> (*mut sockaddr, socklen_t) {
        (self.storage.as_mut_ptr().cast(), self.length)
    }

    /// The address for messages.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

/// The result of a search for an address.
pub(crate) enum Found {
    /// It is known.
    Now(SocketAddress),
    /// This name must be looked up.
    Name(String),
    /// There is none, for this reason.
    Not(String),
}

/// Names and their addresses.
pub(crate) struct Addresses {
    /// Addresses of the configuration, looked up when nginx has read it.
    configured: Vec<(Address, Vec<SocketAddress>)>,
    /// nginx' `resolver`, which looks names up without waiting; null if there is none.
    resolver: *mut ngx_resolver_t,
    /// Names that are looked up now, for each node.
    under_way: Vec<*mut ngx_resolver_ctx_t>,
    /// Number of times that each node was lost: the addresses of a name are tried in turn.
    attempts: Vec<usize>,
}

impl Addresses {
    /// Begins with the addresses of the configuration.
    ///
    /// # Safety
    /// The resolver must be null or valid as long as the process lives.
    pub(crate) unsafe fn new(
        configured: Vec<(Address, Vec<SocketAddress>)>,
        resolver: *mut ngx_resolver_t,
    ) -> Self {
        Self {
            configured,
            resolver,
            under_way: Vec::new(),
            attempts: Vec::new(),
        }
    }

    /// Finds where a node listens.
    pub(crate) fn find(&mut self, node: NodeId, address: &Address) -> Found {
        let endpoint = match address {
            Address::Unix(path) => {
                return match SocketAddress::of_path(path) {
                    Some(found) => Found::Now(found),
                    None => Found::Not("the path of its socket is too long".to_owned()),
                };
            }
            Address::Tcp(endpoint) => endpoint,
        };
        if let Ok(ip) = endpoint.host.parse::<IpAddr>() {
            let found = SocketAddr::new(ip, endpoint.port);
            return Found::Now(SocketAddress::of_ip(found));
        }
        if !self.resolver.is_null() {
            return Found::Name(endpoint.host.clone());
        }
        self.find_configured(node, address).unwrap_or_else(|| {
            Found::Not(format!(
                "the name {} can't be looked up without a \"resolver\" in the http block",
                endpoint.host
            ))
        })
    }

    fn find_configured(&mut self, node: NodeId, address: &Address) -> Option<Found> {
        let attempt = self.attempts.get(node.index()).copied().unwrap_or(0);
        let known = self.configured.iter().find(|(known, _)| known == address);
        let (_, addresses) = known?;
        let found = addresses.get(attempt % addresses.len().max(1))?;
        Some(Found::Now(found.clone()))
    }

    /// Says that a connection was lost: stops looking its name up, and tries another address of
    /// it next time.
    pub(crate) fn lost(&mut self, node: NodeId) {
        if self.attempts.len() <= node.index() {
            self.attempts.resize(node.index() + 1, 0);
        }
        self.attempts[node.index()] = self.attempts[node.index()].wrapping_add(1);
        let context = self.take(node);
        if !context.is_null() {
            // SAFETY: the context is under way: the code that ends it takes it out.
            unsafe { ngx_resolve_name_done(context) };
        }
    }

    /// Stops looking any name up.
    pub(crate) fn stop(&mut self) {
        for index in 0..self.under_way.len() {
            self.lost(NodeId::new(index));
        }
    }

    fn take(&mut self, node: NodeId) -> *mut ngx_resolver_ctx_t {
        match self.under_way.get_mut(node.index()) {
            Some(place) => mem::replace(place, ptr::null_mut()),
            None => ptr::null_mut(),
        }
    }

    fn put(&mut self, node: NodeId, context: *mut ngx_resolver_ctx_t) {
        if self.under_way.len() <= node.index() {
            self.under_way.resize(node.index() + 1, ptr::null_mut());
        }
        self.under_way[node.index()] = context;
    }
}

/// Looks a node's name up, then connects to it.
///
/// # Safety
/// May finish requests: no reference to the worker's state may be held.
pub(crate) unsafe fn resolve(node: NodeId, name: &str) {
    // SAFETY: the resolver is valid. nginx keeps its own copy of the name once it waits for an
    // answer and does not look at this one again; until then the name lives. The answer may come
    // before the call returns.
    unsafe {
        let started = worker::with(|worker| {
            let context = ngx_resolve_start(worker.addresses.resolver, ptr::null_mut());
            // nginx' own value for "there is no server of names".
            if context.is_null() || context as isize == -1 {
                return None;
            }
            (*context).name = ngx_str_t {
                len: name.len(),
                data: name.as_ptr().cast_mut(),
            };
            (*context).handler = Some(on_resolved);
            (*context).data = node.index() as *mut c_void;
            (*context).timeout = RESOLVE_TIMEOUT;
            worker.addresses.put(node, context);
            Some(context)
        });
        let Some(Some(context)) = started else {
            worker::with(|worker| worker.log_outage(node, "its name can't be looked up"));
            lose(node, &ConnectionError::Lost);
            return;
        };
        if ngx_resolve_name(context) != NGX_OK as ngx_int_t {
            // nginx has freed the context.
            worker::with(|worker| {
                worker.addresses.take(node);
                worker.log_outage(node, "its name can't be looked up");
            });
            lose(node, &ConnectionError::Lost);
        }
    }
}

/// A name's addresses are known, or it has none.
unsafe extern "C" fn on_resolved(context: *mut ngx_resolver_ctx_t) {
    // SAFETY: nginx calls this with the context that `resolve` has filled, whose addresses are
    // valid until it is ended.
    unsafe {
        let node = NodeId::new((*context).data as usize);
        let connects = worker::with(|worker| {
            let attempt = worker.addresses.attempts.get(node.index()).copied();
            worker.addresses.take(node);
            let address = worker.edge.address(node).cloned();
            let found = match (&address, (*context).naddrs) {
                (Some(Address::Tcp(endpoint)), count @ 1..) if (*context).state == 0 => {
                    let index = attempt.unwrap_or(0) % count;
                    let raw = &*(*context).addrs.add(index);
                    let text = format!("{} of {}", index + 1, endpoint.host);
                    let mut found =
                        SocketAddress::copy(raw.sockaddr.cast(), raw.socklen as usize, text);
                    found.set_port(endpoint.port);
                    Some(found)
                }
                _ => None,
            };
            let reason = ngx_resolver_strerror((*context).state);
            let reason = std::ffi::CStr::from_ptr(reason.cast()).to_string_lossy();
            ngx_resolve_name_done(context);
            // The address that nginx found when it read its configuration is better than none.
            let found = found.or_else(|| match worker.addresses.find_configured(node, &address?) {
                Some(Found::Now(found)) => Some(found),
                _ => None,
            });
            match found {
                Some(found) => worker.links.get_or_make(node).connect(found),
                None => {
                    worker.log_outage(node, &format!("its name can't be looked up: {reason}"));
                    false
                }
            }
        });
        if connects == Some(false) {
            lose(node, &ConnectionError::Lost);
        }
        // nginx continues with others that wait for the same name and holds a pointer to the next
        // of them. Driving could end that one, so it is left to the timer.
        worker::with(Worker::schedule);
    }
}

impl SocketAddress {
    /// Sets the port of an IP address.
    fn set_port(&mut self, port: u16) {
        let raw = self.storage.as_mut_ptr();
        // SAFETY: the storage is as large and aligned as any kind of address, and the family
        // says which kind it is; the port stands at the same place in both.
        unsafe {
            let family = (*raw.cast::<sockaddr>()).sa_family;
            if i32::from(family) == AF_INET6 as i32 {
                (*raw.cast::<sockaddr_in6>()).sin6_port = port.to_be();
            } else if i32::from(family) == AF_INET as i32 {
                (*raw.cast::<sockaddr_in>()).sin_port = port.to_be();
            }
        }
    }
}
