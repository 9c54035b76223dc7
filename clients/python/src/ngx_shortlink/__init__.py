"""Client of ngx-shortlink, which issues short links for SMS."""

from . import models
from ._client import Client
from .errors import ConnectionFailed, ProblemError, ShortlinkError, WebhookError
from .webhooks import Event, verify_webhook

__all__ = [
    "Client",
    "ConnectionFailed",
    "Event",
    "ProblemError",
    "ShortlinkError",
    "WebhookError",
    "models",
    "verify_webhook",
]
