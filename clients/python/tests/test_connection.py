"""Retries and batches, with a service that fails on demand."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ngx_shortlink import Client, ConnectionFailed, ProblemError
from ngx_shortlink.models import NewLink

Answer = tuple[int, dict[str, str], Any] | None
Received = list[tuple[str, dict[str, str], bytes]]


@pytest.fixture
def serve() -> Iterator[Callable[..., tuple[Client, Received]]]:
    """Starts a service that gives these answers, one for each request; for None it closes the connection."""
    servers = []

    def start(answers: list[Answer] | Callable[[bytes], Answer], **options: Any) -> tuple[Client, Received]:
        received: Received = []
        lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                with lock:
                    received.append((f"{self.command} {self.path}", dict(self.headers), body))
                    answer = answers(body) if callable(answers) else answers.pop(0)
                if answer is None:
                    self.close_connection = True
                    return
                status, headers, content = answer
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                kind = "application/json" if status < 300 else "application/problem+json"
                self.send_response(status)
                for name, value in ({"Content-Type": kind, "Content-Length": str(len(data))} | headers).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)
                # An answer that is shorter than it says breaks off.
                self.close_connection = "Content-Length" in headers

            do_GET = do_POST = do_PATCH = handle_one

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return Client(f"http://127.0.0.1:{server.server_port}/", "slk_test", **options), received

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


LINK = {"shortCode": "Bq7xT2dk", "shortUrl": None, "published": True}
AWAY = {"type": "urn:shortlink:problem:unavailable", "title": "Not available", "status": 503, "detail": "Later."}


def rows(count: int) -> Iterator[NewLink]:
    for number in range(count):
        yield {"longUrl": f"https://example.com/{number}"}


def results(body: bytes, status: int = 201) -> bytes:
    return b"".join(b'{"index":%d,"status":%d}\n' % (index, status) for index in range(body.count(b"\n")))


def test_a_retried_creation_waits_and_keeps_its_key(serve: Any) -> None:
    client, received = serve([(503, {"Retry-After": "1"}, AWAY), None, (201, {}, LINK)])
    begin = time.monotonic()
    assert client.create_link({"longUrl": "https://example.com/"}) == LINK
    assert time.monotonic() - begin > 1.5
    keys = {headers["Idempotency-Key"] for _, headers, _ in received}
    assert len(received) == 3 and len(keys) == 1, received
    assert received[0][1]["X-Api-Key"] == "slk_test"


@pytest.mark.parametrize("answer", [(503, {}, AWAY), None])
def test_an_unsafe_request_is_not_repeated(serve: Any, answer: Answer) -> None:
    client, received = serve([answer])
    with pytest.raises(ProblemError if answer else ConnectionFailed):
        client.create_campaign({"name": "Spring", "longUrl": "https://example.com/"})
    client, received = serve([answer])
    with pytest.raises(ProblemError if answer else ConnectionFailed):
        client.change_link("a", {"note": "b"}, if_match='"1"')
    assert len(received) == 1


def test_a_refused_request_had_no_effect_and_is_repeated(serve: Any) -> None:
    limited = {"type": "urn:shortlink:problem:rate-limited", "title": "Too many", "status": 429, "detail": ""}
    client, received = serve([(429, {"Retry-After": "0"}, limited), (201, {}, {"id": "1", "published": True})])
    assert client.create_campaign({"name": "Spring", "longUrl": "https://example.com/"})["id"] == "1"
    assert len(received) == 2


def test_dedupe_takes_no_key(serve: Any) -> None:
    client, received = serve([None, (200, {}, LINK)])
    client.create_link({"longUrl": "https://example.com/", "dedupe": True})
    assert len(received) == 2 and "Idempotency-Key" not in received[1][1]


def test_problems_are_typed(serve: Any) -> None:
    fault = {"pointer": "/longUrl", "detail": "must begin with http:// or https://"}
    problem = {"type": "urn:shortlink:problem:validation", "title": "Not valid", "status": 422, "errors": [fault]}
    client, _ = serve(
        [(422, {"X-Request-Id": "f00"}, problem), (502, {"Content-Type": "text/html"}, b"<h1>")], retries=0
    )
    with pytest.raises(ProblemError) as caught:
        client.create_link({"longUrl": "ftp://"})
    assert (caught.value.status, caught.value.errors, caught.value.request_id) == (422, [fault], "f00")
    assert str(caught.value) == "422 Not valid: /longUrl must begin with http:// or https://"
    with pytest.raises(ProblemError) as caught:
        client.get_link("a/b?")
    assert (caught.value.type, caught.value.status) == ("about:blank", 502)


def test_the_path_and_the_query_are_encoded(serve: Any) -> None:
    client, received = serve([(200, {}, LINK), (200, {}, {"links": [], "nextCursor": None})])
    client.get_link("a/b?ü")
    client.list_links(tag="a&b", clicked=True, cursor=None)
    assert [it[0] for it in received] == ["GET /v1/links/a%2Fb%3F%C3%BC", "GET /v1/links?tag=a%26b&clicked=true"]


def test_another_server_is_recognised(serve: Any) -> None:
    client, _ = serve([(200, {"Content-Type": "text/html"}, b"<h1>")])
    with pytest.raises(ProblemError, match="instead of JSON"):
        client.get_link("a")


def test_every_row_has_one_result_whatever_breaks_off(serve: Any) -> None:
    failures = iter(["cut", "away", None, "short", None])

    def answer(body: bytes) -> Answer:
        match next(failures, None):
            case "cut":
                return None
            case "away":
                return 200, {}, results(body, 503)
            case "short":
                return 200, {}, results(body)[:99]
        return 200, {}, results(body)

    client, received = serve(answer)
    found = list(client.create_links(rows(12_345), idempotency_key="key"))
    assert [it["index"] for it in found] == list(range(12_345))
    assert {it["status"] for it in found} == {201}
    sent: dict[str, set[bytes]] = {}
    for _, headers, body in received:
        sent.setdefault(headers["Idempotency-Key"], set()).add(body)
    assert sorted(sent) == ["key.0", "key.10000", "key.5000"] and all(len(it) == 1 for it in sent.values())
    assert len({path for path, _, _ in received}) == 1, "one upload"


def test_rows_that_cannot_be_served_are_reported_at_last(serve: Any) -> None:
    client, received = serve(lambda body: (200, {}, results(body, 503)), retries=1)
    assert [it["status"] for it in client.create_links(rows(2))] == [503, 503]
    assert len(received) == 2


def test_rows_are_drawn_only_when_they_are_needed(serve: Any) -> None:
    drawn = 0

    def counted() -> Iterator[NewLink]:
        nonlocal drawn
        for row in rows(1_000_000):
            drawn += 1
            yield row

    client, _ = serve(lambda body: (200, {}, results(body)))
    found = client.create_links(counted())
    next(found)
    assert drawn <= 20_000
    found.close()


def test_an_error_of_the_rows_comes_behind_the_results(serve: Any) -> None:
    def broken() -> Iterator[NewLink]:
        yield from rows(5001)
        raise OSError("no more rows")

    client, _ = serve(lambda body: (200, {}, results(body)))
    found = []
    with pytest.raises(OSError, match="no more rows"):
        for result in client.create_links(broken()):
            found.append(result)
    assert len(found) == 5000


def test_rows_with_dedupe_have_requests_of_their_own(serve: Any) -> None:
    client, received = serve(lambda body: (200, {}, results(body)))
    mixed: list[NewLink] = [{"longUrl": "https://example.com/"}, {"longUrl": "https://example.com/", "dedupe": True}]
    assert len(list(client.create_links(mixed * 2))) == 4
    assert sorted("Idempotency-Key" in headers for _, headers, _ in received) == [False, False, True, True]


def test_an_export_that_breaks_off_is_an_error(serve: Any) -> None:
    client, _ = serve([(200, {"Content-Type": "application/x-ndjson", "Content-Length": "99"}, b'{"at":"1"}\n')])
    found = client.export_visits()
    assert next(found)["at"] == "1"
    with pytest.raises(ConnectionFailed):
        next(found)


def test_pages_and_the_feed_continue_behind_the_last_one(serve: Any) -> None:
    client, received = serve([(200, {}, {"links": [], "nextCursor": it}) for it in ("a", None)])
    assert len(list(client.pages(client.list_links, tag="t"))) == 2
    assert received[1][0] == "GET /v1/links?cursor=a&tag=t"
    client, received = serve([(200, {}, {"visits": [], "nextCursor": it}) for it in ("b", "c")])
    feed = client.follow_visits("a")
    assert [next(feed)["nextCursor"], next(feed)["nextCursor"]] == ["b", "c"]
    assert received[1][0] == "GET /v1/visits?limit=1000&after=b&wait=30"


@pytest.mark.parametrize("url, key", [("127.0.0.1:8081", "k"), ("http://127.0.0.1", ""), ("http://127.0.0.1", "a\nb")])
def test_wrong_arguments_are_refused(url: str, key: str) -> None:
    with pytest.raises(ValueError, match="must"):
        Client(url, key)
