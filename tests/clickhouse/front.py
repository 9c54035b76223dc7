"""Speaks ClickHouse's HTTP interface before the engine of the wheel `chdb`, for tests.

    front.py DIRECTORY PORT [watch]

It answers on loopback until it is killed, and stores its data in the directory: killed and started again, it has what
a killed server has. With `watch` it ends when its standard input does, and removes the directory. As far as the tests
need: statements in the body or in `query`, data in the body behind a `query`, settings as parameters, errors with their
code. A file `full` in the directory is a full disk, a file `password` has the password of every user.
"""

import os
import shutil
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

from chdb import session

DIRECTORY = sys.argv[1]
OWN = {"query", "database", "default_format", "user", "password"}
os.makedirs(DIRECTORY, exist_ok=True)
ENGINE = session.Session(os.path.join(DIRECTORY, "data"))
# The engine of the wheel has one session: one statement at a time. Its state stays until a request has another one,
# since a statement that changes it takes as long as a short question.
TURN = threading.Lock()
STATE = {}


class Refusal(Exception):
    """An error of this front, with ClickHouse's code."""


def text(value):
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def prepare(database, settings):
    """Gives the session a database and settings, and their defaults to all others."""
    if STATE.get("USE") != database:
        STATE.pop("USE", None)
        ENGINE.query(f"USE {database}")
        STATE["USE"] = database
    for name in [name for name in STATE if name != "USE" and name not in settings]:
        ENGINE.query(f"SET {name} = DEFAULT")
        del STATE[name]
    for name, value in settings.items():
        if STATE.get(name) != value:
            ENGINE.query(f"SET {name} = {text(value)}")
            STATE[name] = value


def run(parameters, body):
    query = parameters.get("query")
    settings = {name: value for name, value in parameters.items() if name not in OWN}
    statement = query if query is not None else body.decode()
    if query is None or not body:
        body = None
    is_insert = statement.lstrip()[:6].upper() == "INSERT"
    if is_insert and os.path.exists(os.path.join(DIRECTORY, "full")):
        raise Refusal("Code: 243. DB::Exception: Cannot reserve 1.00 MiB, not enough space. (NOT_ENOUGH_SPACE)")
    with TURN:
        prepare(parameters.get("database", "default"), settings)
        if body is None:
            return ENGINE.query(statement, parameters.get("default_format", "TabSeparated")).bytes()
        into, _, data_format = statement.rpartition(" FORMAT ")
        with tempfile.NamedTemporaryFile(dir=DIRECTORY) as data:
            data.write(body)
            data.flush()
            ENGINE.query(f"{into} FROM INFILE {text(data.name)} FORMAT {data_format}")
        return b""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # A header and its body are two writes.
    disable_nagle_algorithm = True
    wbufsize = -1

    def body(self):
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def check_password(self):
        try:
            with open(os.path.join(DIRECTORY, "password"), encoding="utf-8") as file:
                password = file.read()
        except FileNotFoundError:
            return
        if self.headers.get("X-ClickHouse-Key") != password:
            raise Refusal("Code: 516. DB::Exception: Authentication failed. (AUTHENTICATION_FAILED)")

    def do_POST(self):
        body = self.body()
        try:
            self.check_password()
            answer, code = run(dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True)), body), None
        except Exception as error:
            answer = str(error).encode()
            code = str(error).removeprefix("Code: ").split(".")[0]
        self.send_response(200 if code is None else 500)
        if code is not None:
            self.send_header("X-ClickHouse-Exception-Code", code)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"Ok.\n")

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def watch():
    sys.stdin.buffer.read()
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    os._exit(0)


if sys.argv[3:] == ["watch"]:
    threading.Thread(target=watch, daemon=True).start()
ENGINE.query("SELECT 1")
SERVER = Server(("127.0.0.1", int(sys.argv[2])), Handler)
print(SERVER.server_port, flush=True)
SERVER.serve_forever()
