"""A sidecar of its own, with its database, for the benchmarks."""

import json
import os
import subprocess
import urllib.request
from pathlib import Path

from stage import HERE, cpu_seconds, cpu_seconds_of_all, free_port

SIDECAR = Path(os.environ.get("SHORTLINK_SIDECAR", HERE.parent / "target/programs/shortlink"))
DATABASE = os.environ.get("BENCH_DATABASE_URL")

# Writes visits into a stream as nginx does.
TAPS = HERE.parent / "target/release/examples/taps"
STREAM = "sl:v:{0}"


class Service:
    """A sidecar with a database of its own."""

    def __init__(self, built, directory, strategy="permuted", on_postgres=False, more=None, program=SIDECAR):
        self.built, self.port, self.program = built, free_port(), program
        database = DATABASE or f"sqlite:{directory}/links.db"
        if on_postgres:
            database = built.start_postgres()
        self.environment = os.environ | {
            "DATABASE_URL": database,
            "SHORTLINK_HTTP__LISTEN": f"127.0.0.1:{self.port}",
            "SHORTLINK_REDIS__URL": f"redis://127.0.0.1:{built.redis_port}/0",
            "SHORTLINK_REDIS__TIMEOUT_MS": "5000",
            "SHORTLINK_CODES__STRATEGY": strategy,
            "SHORTLINK_LOG__LEVEL": "warn",
        } | (more or {})
        self.run("migrate")
        self.key = self.run("keys", "create", "--name", "bench", "--scope", "admin").strip()
        process = built.start("sidecar", self.port, ["env", *self.words(), str(program), "serve"])
        self.pid = process.pid

    def words(self):
        return [f"{name}={value}" for name, value in self.environment.items() if name.startswith(("SHORTLINK_", "DATABASE_URL"))]

    def run(self, *words):
        done = subprocess.run(
            [str(self.program), *words], env=self.environment, check=True, capture_output=True, text=True
        )
        return done.stdout

    def change(self, statements):
        """Has statements run in the database, with the column that the clicks of links have there."""
        url = self.environment["DATABASE_URL"]
        is_sqlite = url.startswith("sqlite:")
        text = "; ".join(statements).format(key="id" if is_sqlite else "code") + ";"
        if is_sqlite:
            words = ["sqlite3", "-cmd", ".timeout 60000", url.removeprefix("sqlite:"), text]
        else:
            words = ["psql", "-qX", "-v", "ON_ERROR_STOP=1", "-c", text + " ANALYZE;", url]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)

    def cpu(self):
        """What the sidecar, Redis and PostgreSQL have taken."""
        postgres = self.built.postgres
        return (
            cpu_seconds(self.pid),
            sum(cpu_seconds(node.pid) for node in self.built.nodes),
            cpu_seconds_of_all(postgres.pid) if postgres else 0,
        )

    def ask(self, path, body=None, method=None):
        """What the API answers, as JSON."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"X-Api-Key": self.key, "Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers, method=method)
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def send_rows(self, rows, out, more=(), path="/v1/links/batch"):
        """Sends a file of rows to be made into links, and writes the results to another."""
        words = ["curl", "-sS", "-X", "POST", "-T", str(rows), "-o", str(out)]
        words += ["-H", f"X-Api-Key: {self.key}", "-H", "Content-Type: application/x-ndjson"]
        words += [*more, f"http://127.0.0.1:{self.port}{path}"]
        subprocess.run(words, check=True)

    def stored(self):
        """How many visits it has stored."""
        headers = {"X-Api-Key": self.key}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/metrics", headers=headers)
        with urllib.request.urlopen(request) as answer:
            lines = answer.read().decode().splitlines()
        name = "shortlink_visits_kept_total "
        return int(float(next(line for line in lines if line.startswith(name)).split()[1]))

    def peak_mib(self):
        """The most memory that it had resident."""
        status = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        line = next(line for line in status if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024


def write_rows(path, count):
    with path.open("w") as rows:
        for number in range(count):
            rows.write(
                f'{{"longUrl":"https://shop.example.com/spring?recipient={number}&source=sms"}}\n'
            )
    return path


def write_messages(path, count):
    """The same links as those of write_rows, each in a text."""
    with path.open("w") as rows:
        for number in range(count):
            rows.write(
                '{"text":"Hi {name}, your offer of the week: https://shop.example.com/spring?recipient={number}&source=sms.",'
                f'"parameters":{{"name":"Ann","number":"{number}"}}}}\n'
            )
    return path
