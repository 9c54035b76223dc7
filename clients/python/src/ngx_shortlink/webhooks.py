"""Verification of the messages of webhooks, by the Standard Webhooks specification."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict, cast

from .errors import WebhookError


class Event(TypedDict):
    """An event of a webhook."""

    type: str
    """Its type, such as `link.clicked`; `webhook.test` in a test."""
    id: str
    """Identifies the event: ignore those that you have had."""
    timestamp: str
    """Its time."""
    data: dict[str, Any]
    """Its members."""


def verify_webhook(
    body: bytes,
    headers: Mapping[str, str],
    secrets: str | Iterable[str],
    *,
    tolerance: float = 300.0,
    now: float | None = None,
) -> list[Event]:
    """Returns the events of a message that one of `secrets` has signed, and raises `WebhookError` otherwise.

    `body` is the body as it arrived: a parsed one has lost the bytes that were signed. Pass the old and the new secret
    while you rotate them. The time of the message may differ by `tolerance` seconds from `now`, the time of the clock.
    """
    if not isinstance(body, bytes | bytearray | memoryview):
        raise TypeError(f"the body must be bytes, as they arrived, not {type(body).__name__}")
    lower = {name.lower(): value for name, value in headers.items()}
    try:
        message, timestamp, signatures = (lower[f"webhook-{it}"] for it in ("id", "timestamp", "signature"))
    except KeyError as missing:
        raise WebhookError(f"the header {missing} is missing") from None
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) < 16):
        raise WebhookError(f"the header webhook-timestamp is {timestamp!r}; it must be a number of seconds")
    difference = int(timestamp) - (time.time() if now is None else now)
    if abs(difference) > tolerance:
        raise WebhookError(f"the time of the message differs by {difference:.0f} s; allowed are {tolerance:g} s")
    signed = f"{message}.{timestamp}.".encode() + bytes(body)
    expected = [hmac.digest(_key(it), signed, hashlib.sha256) for it in _listed(secrets)]
    # Every signature is compared with every secret, so that the time shows nothing.
    matches = [hmac.compare_digest(one, other) for one in _decoded(signatures) for other in expected]
    if not any(matches):
        raise WebhookError("no signature in the header webhook-signature is of one of the secrets")
    content = json.loads(bytes(body))
    return cast(list[Event], content["data"] if content["type"] == "batch" else [content])


def _listed(secrets: str | Iterable[str]) -> list[str]:
    listed = [secrets] if isinstance(secrets, str) else list(secrets)
    if not listed:
        raise ValueError("the list of secrets is empty; at least one is needed")
    return listed


def _key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        key = b""
    if not key:
        raise ValueError("the secret of the webhook is not valid: it must be whsec_ and base64")
    return key


def _decoded(signatures: str) -> list[bytes]:
    """The signatures of the version 1; others are ignored."""
    decoded = []
    for signature in signatures.split():
        if signature.startswith("v1,"):
            try:
                decoded.append(base64.b64decode(signature[3:], validate=True))
            except (binascii.Error, ValueError):
                continue
    return decoded
