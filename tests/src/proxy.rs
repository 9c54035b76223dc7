//! A TCP proxy between two servers, whose connection can be cut, silenced, slowed down and sliced.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::libc::linger;
use nix::sys::socket::{setsockopt, sockopt};

use crate::wait::pass;

/// The interval at which an idle direction of a connection looks at the proxy's mode.
const TICK: Duration = Duration::from_millis(40);

/// The bytes that may wait in a slowed direction, before the sender has to wait.
const MOST_WAITING: usize = 1 << 20;

/// The way in which a proxy passes on bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// At once.
    #[default]
    Open,
    /// Not at all: connections are reset, new ones too.
    Cut,
    /// Not now: connections stay and are accepted, and their bytes wait.
    Silent,
    /// So much later, in each direction.
    Slow(Duration),
    /// At most so many bytes at a time.
    Slices(usize),
}

#[derive(Debug)]
struct State {
    mode: Mutex<Mode>,
    backend: AtomicU16,
    /// Raised to reset all connections.
    cuts: AtomicU64,
    is_over: AtomicBool,
}

impl State {
    fn mode(&self) -> Mode {
        *self.mode.lock().expect("no holder panics")
    }
}

/// A proxy on a port of loopback. Its connections end with it.
#[derive(Debug)]
pub struct Proxy {
    /// The port that it listens on.
    pub port: u16,
    state: Arc<State>,
}

impl Proxy {
    /// Starts a proxy to a port of loopback.
    ///
    /// # Panics
    /// When no port can be had.
    pub fn to(backend: u16) -> Self {
        let port = crate::ports::free();
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("a free port");
        let state = Arc::new(State {
            mode: Mutex::default(),
            backend: AtomicU16::new(backend),
            cuts: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming() {
                if shared.is_over.load(Ordering::SeqCst) {
                    return;
                }
                if let Ok(client) = client {
                    // An error is that of one connection, which is closed.
                    let _ = join(client, &shared);
                }
            }
        });
        Self { port, state }
    }

    /// Sets the way in which bytes are passed on; [`Mode::Cut`] also resets all connections.
    ///
    /// # Panics
    /// Never: no holder of the lock panics.
    pub fn set(&self, mode: Mode) {
        *self.state.mode.lock().expect("no holder panics") = mode;
        if mode == Mode::Cut {
            self.reset();
        }
    }

    /// Resets all connections; new ones go to another port of loopback, as those to a virtual
    /// address do after a failover.
    pub fn switch(&self, backend: u16) {
        self.state.backend.store(backend, Ordering::SeqCst);
        self.reset();
    }

    /// Resets all connections.
    pub fn reset(&self) {
        self.state.cuts.fetch_add(1, Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::SeqCst);
        self.reset();
        // Wakes the listener.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// Connects a client to the backend, or resets its connection.
fn join(client: TcpStream, state: &Arc<State>) -> io::Result<()> {
    reset_on_close(&client)?;
    if state.mode() == Mode::Cut {
        return Ok(());
    }
    let birth = state.cuts.load(Ordering::SeqCst);
    let server = TcpStream::connect(("127.0.0.1", state.backend.load(Ordering::SeqCst)))?;
    reset_on_close(&server)?;
    for (from, to) in [(client.try_clone()?, server.try_clone()?), (server, client)] {
        for stream in [&from, &to] {
            stream.set_nodelay(true)?;
            stream.set_write_timeout(Some(TICK))?;
        }
        let state = Arc::clone(state);
        thread::spawn(move || {
            let mut direction = Direction {
                from,
                to,
                waiting: VecDeque::new(),
                birth,
                state,
            };
            if direction.run().is_ok() {
                return;
            }
            // The other direction notices it, and the last of them to end resets both sides.
            for stream in [&direction.from, &direction.to] {
                let _ = stream.shutdown(std::net::Shutdown::Read);
            }
        });
    }
    Ok(())
}

/// Has the kernel send a reset, and not an orderly end, when a stream is closed.
fn reset_on_close(stream: &TcpStream) -> io::Result<()> {
    let linger = linger {
        l_onoff: 1,
        l_linger: 0,
    };
    Ok(setsockopt(stream, sockopt::Linger, &linger)?)
}

struct Direction {
    from: TcpStream,
    to: TcpStream,
    /// Bytes with the moments at which they are due, of a slow direction.
    waiting: VecDeque<(Instant, Vec<u8>)>,
    birth: u64,
    state: Arc<State>,
}

impl Direction {
    /// Passes bytes on until the sender has no more.
    fn run(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; 1 << 16];
        loop {
            self.check()?;
            if self.state.mode() == Mode::Silent {
                pass(TICK / 4);
                continue;
            }
            while let Some((due, _)) = self.waiting.front()
                && *due <= Instant::now()
            {
                let (_, bytes) = self.waiting.pop_front().expect("the front");
                self.write(&bytes)?;
            }
            let pause = match self.waiting.front() {
                Some((due, _)) => due.saturating_duration_since(Instant::now()),
                None => TICK,
            };
            let waiting: usize = self.waiting.iter().map(|(_, bytes)| bytes.len()).sum();
            if waiting > MOST_WAITING {
                pass(pause);
                continue;
            }
            let pause = pause.clamp(Duration::from_millis(1), TICK);
            self.from.set_read_timeout(Some(pause))?;
            match self.from.read(&mut buffer) {
                Ok(0) => {
                    while let Some((_, bytes)) = self.waiting.pop_front() {
                        self.write(&bytes)?;
                    }
                    return self.to.shutdown(std::net::Shutdown::Write);
                }
                Ok(count) => match self.state.mode() {
                    Mode::Slow(delay) => {
                        let due = Instant::now() + delay;
                        self.waiting.push_back((due, buffer[..count].to_vec()));
                    }
                    // Not before earlier bytes.
                    _ if !self.waiting.is_empty() => {
                        let due = Instant::now();
                        self.waiting.push_back((due, buffer[..count].to_vec()));
                    }
                    _ => self.write(&buffer[..count])?,
                },
                Err(error) if is_time_out(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns an error once the connection is to be reset.
    fn check(&self) -> io::Result<()> {
        if self.state.cuts.load(Ordering::SeqCst) == self.birth {
            Ok(())
        } else {
            Err(ErrorKind::ConnectionReset.into())
        }
    }

    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.check()?;
            let most = match self.state.mode() {
                Mode::Slices(most) => most.min(bytes.len()),
                Mode::Silent => {
                    pass(TICK / 4);
                    continue;
                }
                _ => bytes.len(),
            };
            match self.to.write(&bytes[..most]) {
                Ok(count) => bytes = &bytes[count..],
                // The receiver hangs.
                Err(error) if is_time_out(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn is_time_out(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
