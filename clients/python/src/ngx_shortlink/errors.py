"""The errors of calls."""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from .models import FieldError, Problem


class ShortlinkError(Exception):
    """A call that failed."""


class ConnectionFailed(ShortlinkError):
    """The service did not answer, or its answer broke off. A change may have been made."""


class ProblemError(ShortlinkError):
    """The service refused a request, with a problem (RFC 9457).

    Let programs depend on `type` only, such as `urn:shortlink:problem:taken`: the texts are for people. `type` is
    `about:blank` if the answer came from nginx or a proxy, which have no problems.
    """

    def __init__(self, status: int, problem: Problem | dict[str, Any], headers: Mapping[str, str]) -> None:
        self.status = status
        """Status of HTTP."""
        self.type: str = problem.get("type", "about:blank")
        """Identifier of the problem."""
        self.title: str = problem.get("title", f"HTTP status {status}")
        """Title of all problems of this type."""
        self.detail: str = problem.get("detail", "")
        """Description of this one."""
        self.errors: list[FieldError] = problem.get("errors", [])
        """All faults of the body: each has the `pointer` to a member, and a `detail` with the allowed values."""
        self.problem = problem
        """The problem as the service sent it."""
        self.request_id = headers.get("X-Request-Id")
        """Identifier of the request in the logs of the service."""
        self.retry_after = _seconds(headers.get("Retry-After"))
        """Seconds after which the request can be repeated, if the service named them."""
        faults = [f"{it['pointer'] or 'body'} {it['detail']}" for it in self.errors]
        super().__init__(f"{status} {self.title}: {'; '.join(faults) or self.detail}".removesuffix(": "))


class WebhookError(ValueError):
    """A message that no webhook of the service has signed, or one that is too old. Answer it with 400."""


def _seconds(text: str | None) -> float | None:
    """The seconds of `Retry-After`, which is a number or a time."""
    if text is None:
        return None
    try:
        return max(0.0, float(text) if text.isdigit() else parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return None
