"""Creates a link for each row of a large source, with constant memory, and prints one line for each. Repeated with the
same key and rows within 24 hours, it creates nothing a second time. Arguments: the idempotency key, and the number of
rows. Environment: SHORTLINK_URL and SHORTLINK_KEY."""

import os
import sys
from collections.abc import Iterator

from ngx_shortlink import Client
from ngx_shortlink.models import NewLink

idempotency_key, count = (sys.argv[1:] + ["spring", "10000"][len(sys.argv) - 1 :])[:2]


def recipients() -> Iterator[NewLink]:
    """A cursor of a database or the lines of a file, in your program."""
    for row in range(int(count)):
        yield {"longUrl": f"https://www.example.com/spring?m={row}", "externalId": f"m-{row}"}


with Client(os.environ.get("SHORTLINK_URL", "http://127.0.0.1:8081"), os.environ["SHORTLINK_KEY"]) as client:
    for result in client.create_links(recipients(), idempotency_key=idempotency_key):
        if "link" in result:
            print(result["index"], result["externalId"], result["link"]["shortCode"])
        else:
            print(result["index"], result["externalId"], result["problem"]["title"], file=sys.stderr)
