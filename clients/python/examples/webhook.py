"""An endpoint of a webhook. Environment: PORT, and SECRETS, the secret of the webhook; while it is rotated, both,
separated by a space."""

import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from ngx_shortlink import WebhookError, verify_webhook

secrets = os.environ["SECRETS"].split()
seen: set[str] = set()


class Endpoint(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            for event in verify_webhook(body, dict(self.headers), secrets):
                # Deliveries are at least once.
                if event["id"] not in seen:
                    print("event", event["type"], event["id"], flush=True)
                seen.add(event["id"])
            self.send_response(204)
        except WebhookError:
            self.send_response(400)
        self.end_headers()


ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8090"))), Endpoint).serve_forever()
