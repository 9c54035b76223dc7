"""Verification of webhooks. The vector is that of the Standard Webhooks specification."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest

from ngx_shortlink import WebhookError, verify_webhook

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY = b'{"test": 2432232314}'
HEADERS = {
    "Webhook-Id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}
NOW = 1614265330.0


def signed(body: bytes, secret: str = SECRET, now: float = NOW) -> dict[str, str]:
    text = f"m.{int(now)}.".encode() + body
    mac = base64.b64encode(hmac.digest(base64.b64decode(secret[6:]), text, hashlib.sha256)).decode()
    return {"webhook-id": "m", "webhook-timestamp": str(int(now)), "webhook-signature": f"v1,{mac}"}


def test_the_vector_of_the_specification_passes() -> None:
    body = b'{"type":"webhook.test","id":"e","timestamp":"2030-06-01T12:00:00Z","data":{}}'
    assert verify_webhook(body, signed(body), SECRET, now=NOW) == [json.loads(body)]
    # The vector has no event, so it gets as far as its members.
    with pytest.raises(KeyError, match="type"):
        verify_webhook(BODY, HEADERS, SECRET, now=NOW)


def test_a_batch_is_a_list_of_events() -> None:
    body = json.dumps({"type": "batch", "id": "b", "data": [{"id": "1"}, {"id": "2"}]}).encode()
    assert [it["id"] for it in verify_webhook(body, signed(body), SECRET, now=NOW)] == ["1", "2"]


@pytest.mark.parametrize("tampered", [BODY + b" ", b"", BODY.replace(b"2", b"3")])
def test_another_body_is_refused(tampered: bytes) -> None:
    with pytest.raises(WebhookError, match="no signature"):
        verify_webhook(tampered, HEADERS, SECRET, now=NOW)


@pytest.mark.parametrize(
    "name, value",
    [
        ("webhook-timestamp", "1614265331"),
        ("Webhook-Id", "msg_other"),
        ("webhook-signature", ""),
        ("webhook-signature", "v1a,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
        ("webhook-signature", "v1,not base64 v1,é"),
        ("webhook-timestamp", "soon"),
        ("webhook-timestamp", "-1"),
    ],
)
def test_other_headers_are_refused(name: str, value: str) -> None:
    with pytest.raises(WebhookError):
        verify_webhook(BODY, HEADERS | {name: value}, SECRET, now=NOW)
    with pytest.raises(WebhookError, match="missing"):
        verify_webhook(BODY, {key: it for key, it in HEADERS.items() if key != name}, SECRET, now=NOW)


def test_the_time_has_a_tolerance_in_both_directions() -> None:
    body = b'{"type":"webhook.test","id":"e"}'
    for difference in (-300, 300):
        assert verify_webhook(body, signed(body), SECRET, now=NOW + difference)
    for difference in (-301, 301):
        with pytest.raises(WebhookError, match="differs"):
            verify_webhook(body, signed(body), SECRET, now=NOW + difference)


def test_either_secret_passes_while_it_is_rotated() -> None:
    body = b'{"type":"webhook.test","id":"e"}'
    other = "whsec_" + base64.b64encode(b"another secret").decode()
    both = signed(body, other)["webhook-signature"] + " " + signed(body)["webhook-signature"]
    assert verify_webhook(body, signed(body) | {"webhook-signature": both}, SECRET, now=NOW)
    assert verify_webhook(body, signed(body), [other, SECRET], now=NOW)
    with pytest.raises(WebhookError):
        verify_webhook(body, signed(body), other, now=NOW)


@pytest.mark.parametrize("secrets", [[], "whsec_", "whsec_?"])
def test_a_wrong_configuration_is_no_forgery(secrets: Any) -> None:
    with pytest.raises(ValueError, match="secret") as caught:
        verify_webhook(BODY, HEADERS, secrets, now=NOW)
    assert not isinstance(caught.value, WebhookError)


def test_a_parsed_body_is_refused() -> None:
    with pytest.raises(TypeError, match="bytes"):
        verify_webhook({"test": 1}, HEADERS, SECRET, now=NOW)  # type: ignore[arg-type]
