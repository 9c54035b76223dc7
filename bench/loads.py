"""Loads for a sidecar of the benchmarks: links in single requests and in bulk, and visits."""

import json
import subprocess
import sys
import time
from pathlib import Path

from service import STREAM, TAPS, Service
from stage import HERE

CAMPAIGNS = 10

# Each request brings a target of its own, as each recipient's does.
LOAD = """
local number = 0
local thread_number = 0
function setup(thread) thread:set("id", thread_number); thread_number = thread_number + 1 end
function request()
    number = number + 1
    local body = string.format(
        '{"longUrl":"https://shop.example.com/spring?recipient=%d-%d&source=sms"}', id, number)
    return wrk.format("POST", "/v1/links", wrk.headers, body)
end
function done(summary, latency, requests)
    io.write(string.format('RESULT {"made":%d,"errors":%d,"seconds":%f,"p50":%f,"p99":%f}\\n',
        summary.requests, summary.errors.status + summary.errors.timeout + summary.errors.read,
        summary.duration / 1e6, latency:percentile(50) / 1000, latency:percentile(99) / 1000))
end
"""


class Issuer(Service):
    """A sidecar that makes links."""

    @staticmethod
    def costs(before, after, made):
        names = ("sidecar_us", "redis_us", "postgres_us")
        return {
            name: (end - begin) / max(made, 1) * 1e6
            for name, begin, end in zip(names, before, after)
        }

    def single(self, directory, connections, seconds, more=()):
        script = Path(directory, "load.lua")
        script.write_text(LOAD)
        before = self.cpu()
        done = subprocess.run(
            [
                "wrk", "-t1", f"-c{connections}", f"-d{seconds}", "-s", str(script),
                "-H", f"X-Api-Key: {self.key}", "-H", "Content-Type: application/json",
                *more, f"http://127.0.0.1:{self.port}",
            ],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        after = self.cpu()
        line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))
        result = json.loads(line.removeprefix("RESULT "))
        return {
            "rate": result["made"] / result["seconds"],
            "errors": result["errors"],
            "p50": result["p50"],
            "p99": result["p99"],
        } | self.costs(before, after, result["made"])

    def bulk(
        self,
        rows,
        key=None,
        path="/v1/links/batch",
        made_by=(b'"status":201', b'"published":true'),
        more=(),
    ):
        """Sends a file of rows and reads all results; those that have all of `made_by` count."""
        out = rows.with_suffix(".out")
        more = [*more, "-H", f"Idempotency-Key: {key}"] if key else more
        before, begin = self.cpu(), time.monotonic()
        self.send_rows(rows, out, more, path)
        after, end = self.cpu(), time.monotonic()
        with out.open("rb") as results:
            made = sum(all(part in line for part in made_by) for line in results)
        out.unlink()
        return {"made": made, "rate": made / (end - begin)} | self.costs(before, after, made)


def issue(service, directory, count):
    """Makes links in campaigns; returns their codes in the order in which they were made."""
    rows, out = Path(directory, "rows"), Path(directory, "results")
    codes = []
    for number in range(CAMPAIGNS):
        target = "https://shop.example.com/p?m={member}"
        campaign = service.ask("/v1/campaigns", {"name": f"send {number}", "longUrl": target})["id"]
        with rows.open("w") as file:
            for member in range(count // CAMPAIGNS):
                row = {"campaignId": campaign, "parameters": {"member": str(member)}}
                file.write(json.dumps(row) + "\n")
        service.send_rows(rows, out)
        with out.open() as results:
            codes += [json.loads(line)["link"]["shortCode"] for line in results]
    Path(directory, "codes").write_text("\n".join(codes) + "\n")
    return codes


def build_taps():
    words = ["cargo", "build", "--quiet", "--release", "-p", "shortlink-publisher", "--example", "taps"]
    subprocess.run(words, cwd=HERE.parent, check=True)


def ingest(service, directory, count, days):
    """Has visits of the links of `issue` stored, and returns what that costs once they are all in Redis."""
    before = service.stored()
    url = f"redis://127.0.0.1:{service.built.redis_port}/0"
    words = [str(TAPS), url, STREAM, str(count), str(Path(directory, "codes")), str(days)]
    taps = subprocess.Popen(words)
    begun, first, cpu = None, 0, None
    while True:
        code = taps.poll()
        if code:
            sys.exit(f"bench: {TAPS} ended with exit code {code}")
        there = service.stored() - before
        # What makes the visits takes a core too: what is stored meanwhile does not count.
        if begun is None and code == 0:
            begun, first, cpu = time.monotonic(), there, service.cpu()
        if there == count:
            break
        # The question costs the sidecar as much as some hundred visits.
        time.sleep(0.2)
    seconds, made = time.monotonic() - begun, count - first
    return {"made": made, "rate": made / seconds} | Issuer.costs(cpu, service.cpu(), made)
