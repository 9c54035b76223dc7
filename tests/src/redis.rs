//! A real redis-server.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::process::Process;
use crate::wait::{SOON, pass, until};

/// A redis-server with an append-only file, as `make run` starts it.
#[derive(Debug)]
pub struct Redis {
    process: Option<Process>,
    directory: PathBuf,
    arguments: Vec<String>,
    /// The port that it listens on, also when it is started again.
    pub port: u16,
    tally: Mutex<Option<Tally>>,
}

/// Counts the reads and writes of records of links and campaigns: the generation of the data set is read and
/// written all the time.
#[derive(Debug)]
struct Tally {
    thread: JoinHandle<()>,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    reads: u64,
    writes: u64,
    echoes: u64,
}

impl Tally {
    fn start(port: u16) -> Self {
        let stream = send_command(port, &["MONITOR"]).expect("a Redis");
        stream.get_ref().set_read_timeout(None).expect("a socket");
        let mut lines = stream.lines();
        assert_eq!(lines.next().expect("an answer").expect("an answer"), "+OK");
        let seen = Arc::new(Mutex::new(Seen::default()));
        let shared = Arc::clone(&seen);
        let thread = thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let mut seen = shared.lock().expect("no panic");
                let is_of_record = line.contains("\"sl:l:") || line.contains("\"sl:c:");
                let command = line.split('"').nth(1).unwrap_or_default();
                match command.to_ascii_uppercase().as_str() {
                    "ECHO" => seen.echoes += 1,
                    "GET" if is_of_record => seen.reads += 1,
                    "SET" if is_of_record => seen.writes += 1,
                    _ => {}
                }
            }
        });
        Self { thread, seen }
    }
}

/// The program of the server: that of `SHORTLINK_REDIS_SERVER`, such as a valkey-server, or Debian's.
pub fn server() -> Command {
    let program = std::env::var_os("SHORTLINK_REDIS_SERVER");
    Command::new(program.unwrap_or_else(|| "redis-server".into()))
}

/// Makes a certificate for `redis.test` and 127.0.0.1, `redis.crt` with its key `redis.key`, signed by `ca.crt`.
///
/// # Panics
/// When openssl does not make it.
pub fn make_certificates(directory: &Path) {
    let script = "openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 2 \
                  -subj /CN=test-ca && \
                  openssl req -newkey rsa:2048 -nodes -keyout redis.key -out redis.csr \
                  -subj /CN=redis.test && \
                  printf 'subjectAltName=DNS:redis.test,IP:127.0.0.1\nbasicConstraints=CA:FALSE' > ext && \
                  openssl x509 -req -in redis.csr -CA ca.crt -CAkey ca.key -CAcreateserial \
                  -out redis.crt -days 2 -extfile ext";
    let output = Command::new("sh")
        .args(["-c", script])
        .current_dir(directory)
        .output()
        .expect("openssl");
    assert!(output.status.success(), "{output:?}");
}

/// The arguments of a server that has TLS on another port with the certificates of a directory, and demands one of its
/// clients too.
pub fn secured(certificates: &Path, port: u16) -> Vec<String> {
    let file = |name: &str| certificates.join(name).display().to_string();
    [
        ("--tls-port", port.to_string()),
        ("--tls-cert-file", file("redis.crt")),
        ("--tls-key-file", file("redis.key")),
        ("--tls-ca-cert-file", file("ca.crt")),
    ]
    .into_iter()
    .flat_map(|(name, value)| [name.to_owned(), value])
    .collect()
}

impl Redis {
    /// Starts a server whose files stand in `directory`.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(directory: &Path, port: u16) -> Self {
        Self::start_with(directory, port, &[])
    }

    /// Starts a server with more arguments.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_with(directory: &Path, port: u16, arguments: &[&str]) -> Self {
        std::fs::create_dir_all(directory).expect("a directory");
        let mut redis = Self {
            process: None,
            directory: directory.to_owned(),
            arguments: arguments.iter().map(|&word| word.to_owned()).collect(),
            port,
            tally: Mutex::default(),
        };
        redis.start_again();
        redis
    }

    /// Starts the server again after [`Redis::kill`], with the data that it kept.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_again(&mut self) {
        self.process = Some(self.launch(&[]));
        self.wait_until_loaded();
    }

    /// Starts the server again, with so long a pause after each command that it loads, and does
    /// not wait for it: until then it answers "LOADING".
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start_loading(&mut self, pause: Duration) {
        let micros = pause.as_micros().to_string();
        self.process = Some(self.launch(&["--key-load-delay", &micros]));
    }

    /// Waits until the server has loaded its data.
    ///
    /// # Panics
    /// When it does not run, or does not become ready.
    pub fn wait_until_loaded(&mut self) {
        let port = self.port;
        let process = self.process.as_mut().expect("a running Redis");
        process.wait_ready(|| try_command(port, &["PING"]).is_ok_and(|reply| reply == "PONG"));
    }

    fn launch(&self, more: &[&str]) -> Process {
        let mut command = server();
        command.args([
            "--bind",
            "127.0.0.1",
            "--port",
            &self.port.to_string(),
            "--save",
            "",
        ]);
        // A killed server must have lost nothing. With `everysec` it may have: as long as the disk is
        // busy with the last second, Redis confirms what it has not even given to the kernel.
        command
            .args(["--appendonly", "yes", "--appendfsync", "no", "--dir"])
            .arg(&self.directory);
        command
            .arg("--unixsocket")
            .arg(self.socket())
            .args(["--unixsocketperm", "777"]);
        command.args(&self.arguments).args(more);
        let log = self.directory.join("redis.log");
        Process::start("redis-server", &command, &log)
    }

    /// The unix socket that it listens on too.
    pub fn socket(&self) -> PathBuf {
        self.directory.join("redis.sock")
    }

    /// Kills the server; its data stays.
    ///
    /// # Panics
    /// When it does not run.
    pub fn kill(&mut self) {
        self.process.take().expect("a running Redis").kill();
    }

    /// Kills the server and loses its data.
    ///
    /// # Panics
    /// When it does not run.
    pub fn kill_and_forget(&mut self) {
        self.kill();
        let files = self.directory.join("appendonlydir");
        std::fs::remove_dir_all(files).expect("an append-only file");
    }

    /// Kills the server; its last writes are lost, as after a crash of the machine, since Redis
    /// flushes them to the disk only once a second.
    ///
    /// # Panics
    /// When it does not run, or has written nothing.
    pub fn kill_and_lose_last(&mut self, bytes: u64) {
        self.kill();
        let files = std::fs::read_dir(self.directory.join("appendonlydir")).expect("its files");
        let log = files
            .map(|file| file.expect("a file").path())
            .find(|path| path.to_string_lossy().ends_with(".incr.aof"))
            .expect("an append-only file");
        let log = std::fs::File::options().write(true).open(log);
        let log = log.expect("an append-only file");
        let length = log.metadata().expect("its length").len();
        log.set_len(length.saturating_sub(bytes)).expect("a file");
    }

    /// Copies its data, as a backup does.
    ///
    /// # Panics
    /// When they can't be copied.
    pub fn save(&self) {
        let copied = Command::new("cp")
            .args(["-r", "--no-target-directory"])
            .arg(self.directory.join("appendonlydir"))
            .arg(self.directory.join("saved"))
            .status();
        assert!(copied.expect("cp").success(), "the data can't be copied");
    }

    /// Kills the server; its data is that of [`Redis::save`] from now on.
    ///
    /// # Panics
    /// When it does not run, or its data were not saved.
    pub fn kill_and_go_back(&mut self) {
        self.kill_and_forget();
        let files = self.directory.join("appendonlydir");
        std::fs::rename(self.directory.join("saved"), files).expect("the saved data");
    }

    /// Makes a replica a master, also when it is started again.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn promote(&mut self) {
        self.command(&["REPLICAOF", "NO", "ONE"]);
        let option = self.arguments.iter().position(|it| it == "--replicaof");
        if let Some(place) = option {
            self.arguments.drain(place..place + 3);
        }
    }

    /// Makes it hang: it keeps its connections and the kernel takes new ones, but nothing is
    /// answered.
    ///
    /// # Panics
    /// When it does not run.
    pub fn hang(&self) {
        self.process
            .as_ref()
            .expect("a running Redis")
            .signal(Signal::SIGSTOP);
    }

    /// Proves the data of this Redis, unless a sidecar does.
    pub fn beats(&self) -> Beats {
        Beats::begin(self.port, "sl:gen".to_owned(), Arc::default())
    }

    /// The negative record of an unknown code in this data set.
    pub fn negative(&self) -> String {
        let value = self.command(&["GET", "sl:gen"]);
        format!("1 404 {}", value.split(' ').next().unwrap_or_default())
    }

    /// Ends [`Redis::hang`].
    ///
    /// # Panics
    /// When it does not run.
    pub fn go_on(&self) {
        self.process
            .as_ref()
            .expect("a running Redis")
            .signal(Signal::SIGCONT);
    }

    /// Writes a link's record.
    pub fn set_record(&self, code: &str, record: &str) {
        self.command(&["SET", &format!("sl:l:{code}"), record]);
    }

    /// Sends a command and returns its reply, flattened to text; lines part the elements.
    ///
    /// # Panics
    /// When Redis does not answer.
    pub fn command(&self, arguments: &[&str]) -> String {
        try_command(self.port, arguments).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
    }

    /// The record of a code; `None` when there is none.
    pub fn record(&self, code: &str) -> Option<String> {
        let key = format!("sl:l:{code}");
        (self.command(&["EXISTS", &key]) == "1").then(|| self.command(&["GET", &key]))
    }

    /// The clock that all servers here share, in seconds since 1970.
    ///
    /// # Panics
    /// When it can't be asked.
    pub fn now(&self) -> u64 {
        let time = self.command(&["TIME"]);
        let second = time.lines().next().and_then(|second| second.parse().ok());
        second.expect("a time")
    }

    /// Number of keys, but for streams of visits and the generation of the data set.
    ///
    /// # Panics
    /// When Redis does not answer.
    pub fn keys(&self) -> usize {
        let number = |arguments: &[&str]| -> usize {
            let reply = self.command(arguments);
            reply.parse().expect("a number")
        };
        let others = number(&["EXISTS", "sl:v:{0}", "sl:gen"]);
        number(&["DBSIZE"]) - others
    }

    /// Number of reads of records of links and campaigns since this or [`Redis::writes`] was called first.
    ///
    /// # Panics
    /// When Redis does not answer.
    pub fn reads(&self) -> u64 {
        self.tally(|seen| seen.reads)
    }

    /// As [`Redis::reads`] for writes.
    ///
    /// # Panics
    /// When Redis does not answer.
    pub fn writes(&self) -> u64 {
        self.tally(|seen| seen.writes)
    }

    fn tally(&self, of: fn(&Seen) -> u64) -> u64 {
        let mut tally = self.tally.lock().expect("no panic");
        if tally
            .as_ref()
            .is_none_or(|tally| tally.thread.is_finished())
        {
            *tally = Some(Tally::start(self.port));
        }
        let seen = &tally.as_ref().expect("a tally").seen;
        let echoes = seen.lock().expect("no panic").echoes;
        self.command(&["ECHO", "now"]);
        until("everything was seen", SOON, || {
            seen.lock().expect("no panic").echoes > echoes
        });
        of(&seen.lock().expect("no panic"))
    }

    /// Number of calls of a command since the server started.
    ///
    /// # Panics
    /// When Redis does not answer.
    pub fn calls(&self, command: &str) -> u64 {
        let prefix = format!("cmdstat_{command}:calls=");
        let stats = self.command(&["INFO", "commandstats"]);
        let calls = stats
            .lines()
            .find_map(|line| line.strip_prefix(&prefix))
            .and_then(|line| line.split(',').next());
        calls.map_or(0, |calls| calls.parse().expect("a number of calls"))
    }

    /// Watches every command that the server is given.
    ///
    /// # Panics
    /// When Redis does not answer.
    pub fn monitor(&self) -> Monitor {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("a connection");
        stream
            .set_read_timeout(Some(Duration::from_millis(50)))
            .expect("a timeout");
        let mut monitor = Monitor {
            stream: BufReader::new(stream),
            seen: String::new(),
        };
        monitor
            .stream
            .get_mut()
            .write_all(b"MONITOR\r\n")
            .expect("a connection");
        monitor.wait_for("OK");
        monitor
    }
}

/// Ends the beats of [`Redis::beats`] when it is dropped.
#[derive(Debug)]
pub struct Beats(Arc<AtomicBool>);

impl Beats {
    /// Lets the key of a generation grow until the beats end.
    pub(crate) fn begin(port: u16, key: String, is_over: Arc<AtomicBool>) -> Self {
        let over = Arc::clone(&is_over);
        thread::spawn(move || {
            let mut last = String::new();
            for beat in 1u64.. {
                // Redis may be away.
                if let Ok(value) = try_command(port, &["GETRANGE", &key, "0", "-1"])
                    && (value == last || value.is_empty())
                {
                    last = format!("1 0 {beat}");
                    let _ = try_command(port, &["SET", &key, &last]);
                }
                pass(Duration::from_millis(200));
                if over.load(Ordering::SeqCst) {
                    return;
                }
            }
        });
        Self(is_over)
    }
}

impl Drop for Beats {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Sees every command that a server is given.
#[derive(Debug)]
pub struct Monitor {
    stream: BufReader<TcpStream>,
    seen: String,
}

impl Monitor {
    /// Waits until a command with this text was seen.
    ///
    /// # Panics
    /// When none is.
    pub fn wait_for(&mut self, text: &str) {
        until(&format!("Redis is asked {text}"), SOON, || {
            let mut line = String::new();
            // A time-out leaves what was read of the line in `line`.
            let _ = self.stream.read_line(&mut line);
            self.seen.push_str(&line);
            self.seen.contains(text)
        });
    }
}

/// Sends a command to whatever server listens on a port of loopback, as [`Redis::command`] does.
///
/// # Errors
/// When it does not answer, or answers with an error.
pub fn try_command(port: u16, arguments: &[&str]) -> io::Result<String> {
    let mut stream = send_command(port, arguments)?;
    read_reply(&mut stream)
}

/// Sends a command and returns the texts of its reply as they are, however they are nested.
///
/// # Errors
/// As [`try_command`].
pub fn try_command_bytes(port: u16, arguments: &[impl AsRef<[u8]>]) -> io::Result<Vec<Vec<u8>>> {
    let mut stream = send_command(port, arguments)?;
    let mut texts = Vec::new();
    read_texts(&mut stream, &mut texts)?;
    Ok(texts)
}

fn send_command(port: u16, arguments: &[impl AsRef<[u8]>]) -> io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(SOON))?;
    let mut stream = BufReader::new(stream);
    let mut request = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        let argument = argument.as_ref();
        request.extend(format!("${}\r\n", argument.len()).as_bytes());
        request.extend(argument);
        request.extend(b"\r\n");
    }
    stream.get_mut().write_all(&request)?;
    Ok(stream)
}

fn read_texts(stream: &mut BufReader<TcpStream>, texts: &mut Vec<Vec<u8>>) -> io::Result<()> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let line = line.trim_end();
    let (kind, rest) = line.split_at(1);
    match kind {
        "+" | ":" => texts.push(rest.as_bytes().to_vec()),
        "$" if rest == "-1" => texts.push(Vec::new()),
        "$" => {
            let length: usize = rest.parse().map_err(io::Error::other)?;
            let mut bytes = vec![0; length + 2];
            stream.read_exact(&mut bytes)?;
            bytes.truncate(length);
            texts.push(bytes);
        }
        "*" => {
            let count: usize = rest.parse().map_err(io::Error::other)?;
            for _ in 0..count {
                read_texts(stream, texts)?;
            }
        }
        "-" => return Err(io::Error::other(rest.to_owned())),
        _ => return Err(io::Error::other(format!("not a reply: {line:?}"))),
    }
    Ok(())
}

fn read_reply(stream: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut texts = Vec::new();
    read_texts(stream, &mut texts)?;
    let texts: Vec<_> = texts
        .iter()
        .map(|text| String::from_utf8_lossy(text))
        .collect();
    Ok(texts.join("\n"))
}
