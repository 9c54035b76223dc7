"""Requests: retries, rows in both directions."""

from __future__ import annotations

import hashlib
import json
import random
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError

from .errors import ConnectionFailed, ProblemError

ROWS = "application/x-ndjson"
# Rows and bytes of one request of a batch. The service processes up to four chunks of a thousand rows at once.
MOST_ROWS = 5000
MOST_BYTES = 8 << 20
# Requests of a batch that are under way at once: one is answered while the next one is sent.
AT_ONCE = 2
# The longest silence of a batch, in seconds: nginx ends it then, too.
SILENCE_OF_ROWS = 300.0
# The shortest and the longest pause before a retry, in seconds, and the longest one that the service can ask for.
FIRST_PAUSE, LONGEST_PAUSE, LONGEST_RETRY_AFTER = 0.5, 15.0, 300.0
UNCERTAIN = frozenset({500, 502, 503, 504})

T = TypeVar("T")
P = TypeVar("P")


@dataclass(frozen=True)
class _Request:
    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None
    silence: float
    is_repeatable: bool


@dataclass(frozen=True)
class _Part:
    """Rows that one request sends."""

    first: int
    lines: list[bytes]
    has_dedupe: bool


class Caller:
    """A connection to the service."""

    def __init__(self, url: str, key: str, *, retries: int = 6, timeout: float = 60.0) -> None:
        """Connects to the internal server at `url`, with the API key `key`.

        A request that fails is repeated up to `retries` times if that is safe. `timeout` is the longest silence of
        the service in seconds, and does not apply to batches.
        """
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"the URL {url!r} must begin with http:// or https://")
        if retries < 0:
            raise ValueError(f"the number of retries is {retries}; it must be 0 or more")
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            raise ValueError("the API key must consist of visible ASCII characters")
        self._url = url.rstrip("/")
        self._key = key
        self._retries = retries
        self._timeout = timeout
        self._pool = urllib3.PoolManager(maxsize=8)

    def close(self) -> None:
        """Closes the connections."""
        self._pool.clear()

    def _request(
        self,
        method: str,
        path: str,
        values: Mapping[str, object],
        query: Mapping[str, object],
        header: Mapping[str, object],
        *,
        accept: str,
        body: bytes | None = None,
        content_type: str = "application/json",
        silence: float | None = None,
        is_repeatable: bool,
    ) -> _Request:
        for name, value in values.items():
            path = path.replace(f"{{{name}}}", quote(str(value), safe=""))
        parameters = {name: _text(value) for name, value in query.items() if value is not None}
        headers = {name: str(value) for name, value in header.items() if value is not None}
        headers |= {"X-Api-Key": self._key, "Accept": accept}
        if body is not None:
            headers["Content-Type"] = content_type
        url = self._url + path + ("?" + urlencode(parameters) if parameters else "")
        return _Request(method, url, headers, body, silence or self._timeout, is_repeatable)

    def _open(self, request: _Request) -> urllib3.BaseHTTPResponse:
        """Sends a request once. A status other than 2xx is an error."""
        timeout = urllib3.Timeout(connect=min(10.0, request.silence), read=request.silence)
        answer = self._pool.request(
            request.method,
            request.url,
            headers=request.headers,
            body=request.body,
            timeout=timeout,
            retries=False,
            redirect=False,
            preload_content=False,
        )
        if 200 <= answer.status < 300:
            return answer
        data = answer.read()
        problem: dict[str, Any] = {}
        if answer.headers.get("Content-Type", "").startswith("application/problem+json"):
            problem = json.loads(data)
        raise ProblemError(answer.status, problem, answer.headers)

    def _retry(self, request: _Request, attempt: Callable[[bool], T]) -> T:
        """Makes attempts until one succeeds. An attempt learns whether it is the last one."""
        number = 0
        while True:
            is_last = number == self._retries
            try:
                return attempt(is_last)
            except (HTTPError, ConnectionFailed) as cause:
                has_effect = not isinstance(cause, NewConnectionError | ConnectTimeoutError)
                if is_last or (has_effect and not request.is_repeatable):
                    if isinstance(cause, ConnectionFailed):
                        raise
                    raise ConnectionFailed(f"{request.method} {request.url}: {cause}") from cause
                retry_after = 0.0
            except ProblemError as problem:
                is_safe = problem.status == 429 or (problem.status in UNCERTAIN and request.is_repeatable)
                retry_after = problem.retry_after or 0.0
                if is_last or not is_safe or retry_after > LONGEST_RETRY_AFTER:
                    raise
            # The random part keeps clients from coming back together.
            backoff = min(LONGEST_PAUSE, FIRST_PAUSE * 2**number)
            time.sleep(retry_after + backoff * random.uniform(0.5, 1))
            number += 1

    def _call(
        self,
        method: str,
        path: str,
        *,
        path_values: Mapping[str, object] | None = None,
        query: Mapping[str, object] | None = None,
        header: Mapping[str, object] | None = None,
        body: Any = None,
        is_json: bool,
        is_repeatable: bool,
    ) -> Any:
        """The answer of an operation."""
        header = dict(header or {})
        if "Idempotency-Key" in header:
            is_repeatable = True
            # A link with `dedupe` can be requested again, and takes no idempotency key.
            if not body.get("dedupe"):
                header["Idempotency-Key"] = header["Idempotency-Key"] or str(uuid.uuid4())
        elif header.get("If-Match") is not None:
            # Repeated after a lost answer, a conditional change would meet its own revision.
            is_repeatable = False
        data = None if body is None else _encoded(body)
        accept = "application/json" if is_json else "*/*"
        request = self._request(
            method, path, path_values or {}, query or {}, header, accept=accept, body=data, is_repeatable=is_repeatable
        )

        def attempt(_is_last: bool) -> Any:
            answer = self._open(request)
            text = answer.read()
            if not is_json:
                return text.decode()
            kind = answer.headers.get("Content-Type", "")
            if not kind.startswith("application/json"):
                message = f"{request.url} answers with {kind or 'no type'} instead of JSON"
                raise ProblemError(answer.status, {"title": message}, answer.headers)
            return json.loads(text)

        return self._retry(request, attempt)

    def _read_rows(
        self,
        method: str,
        path: str,
        *,
        path_values: Mapping[str, object] | None = None,
        query: Mapping[str, object] | None = None,
    ) -> Iterator[Any]:
        """The rows of an answer while they arrive. One that breaks off is an error."""
        request = self._request(method, path, path_values or {}, query or {}, {}, accept=ROWS, is_repeatable=True)
        answer = self._retry(request, lambda _is_last: self._open(request))
        try:
            for line in _lines(answer):
                yield json.loads(line)
        except HTTPError as cause:
            raise ConnectionFailed(f"{request.url} broke off: {cause}") from cause
        finally:
            answer.close()

    def _send_rows(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        header: Mapping[str, object] | None = None,
        rows: Iterable[Any],
        is_keyed: bool,
        has_upload: bool,
    ) -> Iterator[Any]:
        """The results of rows, in their order.

        Each request has a part of the rows and an idempotency key of its own, so that a part whose answer is lost is
        repeated, and a repetition of all rows with the same key creates nothing a second time.
        """
        key = (header or {}).get("Idempotency-Key") or str(uuid.uuid4())
        query = dict(query or {})
        if has_upload and query.get("uploadId") is None:
            # The links of all parts have one upload. Its number has 63 bits.
            number = int.from_bytes(hashlib.sha256(f"upload {key}".encode()).digest()[:8]) >> 1
            query["uploadId"] = f"{number:016x}"

        def send(part: _Part) -> list[Any]:
            header = {"Idempotency-Key": f"{key}.{part.first}"} if is_keyed and not part.has_dedupe else {}
            request = self._request(
                method,
                path,
                {},
                query,
                header,
                accept=ROWS,
                body=b"".join(part.lines),
                content_type=ROWS,
                silence=SILENCE_OF_ROWS,
                is_repeatable=True,
            )
            return self._retry(request, lambda is_last: _results(self._open(request), part, is_last))

        return _in_turn(send, _parts(rows, is_keyed))


def _results(answer: urllib3.BaseHTTPResponse, part: _Part, is_last: bool) -> list[Any]:
    """The results of a part, which is repeated if some are missing or the service failed for some."""
    results = [json.loads(line) for line in _lines(answer)]
    if len(results) < len(part.lines) or any("index" not in it for it in results):
        raise ConnectionFailed(f"{len(part.lines) - len(results)} rows have no result")
    for result in results:
        if result["status"] in UNCERTAIN and not is_last:
            raise ProblemError(result["status"], result.get("problem", {}), answer.headers)
        result["index"] += part.first
    return results


def _parts(rows: Iterable[Any], is_keyed: bool) -> Iterator[_Part]:
    first, size, has_dedupe = 0, 0, False
    lines: list[bytes] = []
    for row in rows:
        line = _encoded(row) + b"\n"
        dedupes = is_keyed and bool(row.get("dedupe"))
        if lines and (len(lines) == MOST_ROWS or size + len(line) > MOST_BYTES or dedupes != has_dedupe):
            yield _Part(first, lines, has_dedupe)
            first, lines, size = first + len(lines), [], 0
        has_dedupe = dedupes
        lines.append(line)
        size += len(line)
    if lines:
        yield _Part(first, lines, has_dedupe)


def _in_turn(send: Callable[[P], list[T]], parts: Iterator[P]) -> Iterator[T]:
    """Sends parts, some at once, and returns their results in order. An error comes behind the results before it."""
    pool = ThreadPoolExecutor(AT_ONCE, "shortlink-rows")
    under_way: deque[Future[list[T]]] = deque()
    failure: Exception | None = None
    try:
        while True:
            while failure is None and len(under_way) < AT_ONCE:
                try:
                    under_way.append(pool.submit(send, next(parts)))
                except StopIteration:
                    break
                except Exception as error:
                    failure = error
            if not under_way:
                break
            yield from under_way.popleft().result()
        if failure is not None:
            raise failure
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _lines(answer: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    rest = b""
    while data := answer.read1(1 << 16):
        *lines, rest = (rest + data).split(b"\n")
        yield from filter(None, lines)
    if rest:
        raise ConnectionFailed("the answer ends within a line")


def _encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
