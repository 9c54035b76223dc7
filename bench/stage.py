"""What every benchmark needs: a Redis full of links, nginx with some configuration, load, and the
CPU time that processes took. Everything runs on loopback and ends with the benchmark."""

import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODULE = Path(
    os.environ.get(
        "SHORTLINK_MODULE", HERE.parent / "target/modules/ngx_http_shortlink_module.so"
    )
)
LUA_MODULES = [
    Path("/usr/lib/nginx/modules/ndk_http_module.so"),
    Path("/usr/lib/nginx/modules/ngx_http_lua_module.so"),
]
CODES = 100_000
ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
TARGET = "https://www.example.com/campaign/spring?recipient={code}&source=sms"

# What a PostgreSQL is given that has a machine's memory and disk.
POSTGRES = [
    "fsync=on",
    "synchronous_commit=on",
    "shared_buffers=1GB",
    "max_wal_size=8GB",
    "checkpoint_timeout=15min",
    "wal_compression=on",
]

CONFIG = """
load_module {module};
{modules}
{user}
worker_processes {workers};
worker_cpu_affinity {affinity};
daemon off;
pid {dir}/nginx.pid;
error_log {dir}/error.log warn;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    server_tokens off;
    keepalive_requests 1000000000;
    client_body_temp_path {dir}/body;
    proxy_temp_path {dir}/proxy;
    fastcgi_temp_path {dir}/fastcgi;
    uwsgi_temp_path {dir}/uwsgi;
    scgi_temp_path {dir}/scgi;
    shortlink_redis {{ server 127.0.0.1:{redis}; budget 1s; {lines} }}
    shortlink_cache {cache};
    shortlink_check {check};
    {http}
    server {{
        listen 127.0.0.1:{port} reuseport;
        {server}
        location / {{ shortlink; }}
    }}
}}
"""


def luhn(body):
    """The check character that shortlink_check luhn asks for."""
    total = 0
    for place, character in enumerate(reversed(body)):
        digit = ALPHABET.index(character)
        if place % 2 == 0:
            digit = 2 * digit // 62 + 2 * digit % 62
        total += digit
    return ALPHABET[-total % 62]


def make_codes(count=CODES, seed=1):
    chooser = random.Random(seed)
    bodies = ("".join(chooser.choices(ALPHABET, k=7)) for _ in range(count))
    return [body + luhn(body) for body in bodies]


def record(code):
    return f"1 302 1 0 {TARGET.format(code=code)}"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def command(*words):
    """A command as Redis reads it."""
    text = f"*{len(words)}\r\n"
    for word in words:
        text += f"${len(word)}\r\n{word}\r\n"
    return text.encode()


def cpu_seconds(pid):
    """CPU time of a process and all its threads, those that have ended included."""
    # The clock of another process, as clock_getcpuclockid(3) names it.
    return time.clock_gettime(~int(pid) << 3 | 2)


def cpu_seconds_of_all(pid):
    """The same of a process and its children, those that have ended included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    ended = (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return ended + cpu_seconds(pid) + sum(cpu_seconds(child) for child in children)


def resident_bytes(pid):
    fields = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    line = next(field for field in fields if field.startswith("Pss:"))
    return int(line.split()[1]) * 1024


def get(port, path):
    """One answer, whole."""
    with socket.create_connection(("127.0.0.1", port), 5) as client:
        client.sendall(f"GET {path} HTTP/1.0\r\nHost: bench\r\n\r\n".encode())
        return client.makefile("rb").read().decode()


class Stage:
    """Servers that were started, and where their files stand."""

    def __init__(self, directory):
        self.directory = directory
        self.processes = []
        self.redis = None
        # That server, or the masters of a cluster.
        self.nodes = []
        self.postgres = None
        self.redis_port = free_port()

    def start(self, what, port, words, log=None, environment=None):
        process = subprocess.Popen(words, stdout=log, stderr=log, env={**os.environ, **(environment or {})})
        self.processes.append(process)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            if process.poll() is not None:
                sys.exit(f"bench: {what} ended with exit code {process.returncode}")
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return process
            except OSError:
                time.sleep(0.02)
        sys.exit(f"bench: {what} does not listen on port {port}")

    def start_server(self, program, environment=None):
        """Starts Redis, or another program with its commands, empty."""
        words = [program, "--port", str(self.redis_port), "--bind", "127.0.0.1"]
        words += ["--save", "", "--dir", self.directory, "--logfile", f"{self.directory}/redis.log"]
        self.redis = self.start(program, self.redis_port, words, environment=environment)
        self.nodes.append(self.redis)

    def start_redis(self, codes):
        """Starts Redis and fills it with a link for each code."""
        self.start_server("redis-server")
        Path(self.directory, "codes.txt").write_text("\n".join(codes) + "\n")
        with self.connect() as redis:
            replies = redis.makefile("rb")
            for start in range(0, len(codes), 1000):
                chunk = codes[start : start + 1000]
                redis.sendall(b"".join(command("SET", f"sl:l:{c}", record(c)) for c in chunk))
                for _ in chunk:
                    if replies.readline() != b"+OK\r\n":
                        sys.exit("bench: Redis did not take a record")

    def stop(self):
        """Ends all servers."""
        for process in reversed(self.processes):
            process.terminate()
            process.wait()

    def start_cluster(self, masters=3):
        """Starts a cluster without replicas in place of one Redis, empty."""
        ports = []
        while len(ports) < masters:
            port = free_port()
            # Nodes talk to each other on another port.
            if port + 10_000 < 65_536 and port not in ports:
                ports.append(port)
        self.redis_port = ports[0]
        for number, port in enumerate(ports):
            directory = Path(self.directory, f"node{number}")
            directory.mkdir()
            words = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(directory)]
            words += ["--cluster-enabled", "yes", "--logfile", f"{directory}/redis.log"]
            self.nodes.append(self.start("redis-server", port, words))
        words = ["redis-cli", "--cluster", "create", *[f"127.0.0.1:{port}" for port in ports], "--cluster-yes"]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)

    def start_postgres(self):
        """Starts a PostgreSQL as an operator has it, durable and with room; returns the URL of its
        database."""
        script, directory = str(HERE.parent / "scripts/test-postgres"), f"{self.directory}/postgres"
        subprocess.run([script, "init", directory], check=True)
        port = free_port()
        words = [script, "run", directory, str(port)]
        for setting in POSTGRES:
            words += ["-c", setting]
        with Path(self.directory, "postgres.log").open("w") as log:
            self.postgres = self.start("postgres", port, words, log)
        while "ready to accept connections" not in Path(self.directory, "postgres.log").read_text():
            time.sleep(0.02)
        return f"postgres://shortlink@127.0.0.1:{port}/postgres"

    def start_clickhouse(self):
        """Starts ClickHouse's engine behind the HTTP interface of the tests; returns the URL of a database."""
        directory, port = f"{self.directory}/clickhouse", free_port()
        words = [str(HERE.parent / "scripts/clickhouse"), directory, str(port)]
        self.clickhouse_port = port
        self.clickhouse = self.start("clickhouse", port, words)
        return f"clickhouse://127.0.0.1:{port}/shortlink"

    def ask_clickhouse(self, statement):
        """What ClickHouse answers, as text."""
        url = f"http://127.0.0.1:{self.clickhouse_port}/?database=shortlink"
        with urllib.request.urlopen(url, statement.encode()) as answer:
            return answer.read().decode().strip()

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.redis_port))

    def ask(self, *words):
        """What Redis answers, as text; for commands with one reply that is a line or a bulk."""
        with self.connect() as redis:
            redis.sendall(command(*words))
            replies = redis.makefile("rb")
            head = replies.readline().decode().strip()
            if head.startswith("$"):
                return replies.read(int(head[1:])).decode()
            return head[1:]

    def start_nginx(
        self,
        name,
        cache,
        workers=1,
        lua=False,
        lines="",
        http="",
        server="",
        check="luhn",
        built=("nginx", MODULE),
    ):
        """Starts an nginx; returns its port and its workers. `built`: the program, and the module for it."""
        directory = Path(self.directory, name)
        # The place of the log that a program opens before it has read its configuration.
        directory.joinpath("logs").mkdir(parents=True)
        port = free_port()
        config = directory / "nginx.conf"
        config.write_text(
            CONFIG.format(
                module=built[1],
                modules="\n".join(f"load_module {file};" for file in LUA_MODULES) if lua else "",
                user="user root;" if os.geteuid() == 0 else "",
                workers=workers,
                affinity="01" if workers == 1 else "01 10",
                dir=directory,
                redis=self.redis_port,
                cache=cache,
                lines=lines,
                http=http,
                server=server,
                check=check,
                port=port,
            )
        )
        master = self.start("nginx", port, [built[0], "-p", str(directory), "-c", str(config)])
        children = Path(f"/proc/{master.pid}/task/{master.pid}/children").read_text().split()
        if len(children) != workers:
            sys.exit(f"bench: expected {workers} workers of nginx, found {children}")
        return port, [int(child) for child in children]

    def load(self, port, path, seconds, connections=64, mode="uniform"):
        """Loads a server with requests for codes; returns how many there were and how long it
        took. `mode`: uniform, zipf, or sequential; with `+close` a connection for each request."""
        words = ["taskset", "-c", str(os.cpu_count() - 1)] if shutil.which("taskset") else []
        words += ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s"]
        words += ["-s", str(HERE / "redirect.lua"), f"http://127.0.0.1:{port}", "--", path, mode]
        environment = dict(os.environ, BENCH_DIR=self.directory)
        output = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
        line = next(line for line in output.stdout.splitlines() if line.startswith("BENCH "))
        requests, microseconds, errors = map(int, line.split()[1:])
        if errors:
            sys.exit(f"bench: {errors} requests to {path} failed")
        return requests, microseconds / 1e6

    def measure(self, port, workers, path, seconds, connections=64, mode="uniform"):
        """Loads a server and says what a request cost."""
        before = sum(map(cpu_seconds, workers)), cpu_seconds(self.redis.pid)
        requests, duration = self.load(port, path, seconds, connections, mode)
        after = sum(map(cpu_seconds, workers)), cpu_seconds(self.redis.pid)
        return {
            "requests_per_s": requests / duration,
            "nginx_us": (after[0] - before[0]) / requests * 1e6,
            "redis_us": (after[1] - before[1]) / requests * 1e6,
        }


@contextmanager
def stage(tools=("nginx", "redis-server", "wrk"), lua=False):
    for tool in tools:
        if not shutil.which(tool):
            sys.exit(f"bench: {tool} is missing: scripts/setup bench installs it")
    for file in (MODULE, *(LUA_MODULES if lua else ())):
        if not file.exists():
            sys.exit(f"bench: {file} is missing: make build, scripts/setup bench")
    with tempfile.TemporaryDirectory(prefix="shortlink-bench-") as directory:
        os.chmod(directory, 0o755)
        built = Stage(directory)
        try:
            yield built
        finally:
            built.stop()
