"""Prints visits while they are stored, and continues after a restart where it was. Arguments: the file of the position,
and optionally the number of visits after which it ends. Environment: SHORTLINK_URL and SHORTLINK_KEY, an API key with
the scope stats:read."""

import os
import sys
from pathlib import Path

from ngx_shortlink import Client

file, most = (sys.argv[1:] + ["position", "inf"][len(sys.argv) - 1 :])[:2]
position = Path(file)

seen = 0
after = position.read_text() if position.exists() else ""
with Client(os.environ.get("SHORTLINK_URL", "http://127.0.0.1:8081"), os.environ["SHORTLINK_KEY"]) as client:
    for page in client.follow_visits(after):
        for visit in page["visits"]:
            print("visit", visit["id"], visit["shortCode"], visit["class"], flush=True)
        # The position is stored behind the results, and as a whole: after a crash, a page can be repeated.
        written = Path(f"{file}.new")
        written.write_text(page["nextCursor"])
        written.replace(position)
        seen += len(page["visits"])
        if seen >= float(most):
            break
