"""Uses the service through a client that openapi-python-client generates: creates links, lists them page by page,
handles errors, and streams a batch. Arguments: the address of the internal server, and an API key."""

import json
import sys

from shortlink_client import AuthenticatedClient
from shortlink_client.api.links import create_link, get_link, list_links
from shortlink_client.models import BatchResult, BatchSummary, NewLink, Problem

ROWS = 3000


def connect(address, key):
    return AuthenticatedClient(base_url=address, token=key, prefix="", auth_header_name="X-Api-Key")


def create_and_list(client):
    """Creates links, and finds all of them page by page."""
    made = []
    for row in range(5):
        body = NewLink(long_url=f"https://example.com/python/{row}", tags=["python"])
        answer = create_link.sync_detailed(client=client, body=body)
        assert answer.status_code == 201, answer
        made.append(answer.parsed.short_code)
    listed, pages, cursor = [], 0, {}
    while True:
        page = list_links.sync(client=client, tag="python", limit=2, **cursor)
        listed += [link.short_code for link in page.links]
        pages += 1
        if not page.next_cursor:
            break
        cursor = {"cursor": page.next_cursor}
    assert pages == 3, pages
    assert sorted(listed) == sorted(made), (listed, made)


def handle_errors(client, address):
    """Every error is a problem with a type."""
    wrong = create_link.sync_detailed(client=client, body=NewLink(long_url="nonsense", max_visits=0))
    assert wrong.status_code == 422 and isinstance(wrong.parsed, Problem), wrong
    assert sorted(error.pointer for error in wrong.parsed.errors) == ["/longUrl", "/maxVisits"], wrong
    unknown = get_link.sync("nosuchcode", client=client)
    assert isinstance(unknown, Problem) and unknown.status == 404, unknown
    refused = list_links.sync_detailed(client=connect(address, "slk_wrong"))
    assert refused.status_code == 401 and refused.parsed.title, refused


def rows():
    for row in range(ROWS):
        target = "nonsense" if row == 7 else f"https://example.com/batch/{row}"
        body = NewLink(long_url=target, external_id=f"r-{row}")
        yield (json.dumps(body.to_dict()) + "\n").encode()


def stream_batch(client):
    """Sends rows, and reads results one by one."""
    request = {"params": {"summary": "true"}, "content": rows(), "headers": {"Content-Type": "application/x-ndjson"}}
    codes, failed, summary = set(), [], None
    with client.get_httpx_client().stream("POST", "/v1/links/batch", **request) as answer:
        assert answer.status_code == 200, answer
        for line in answer.iter_lines():
            result = json.loads(line)
            if "summary" in result:
                summary = BatchSummary.from_dict(result).summary
                continue
            result = BatchResult.from_dict(result)
            if result.status == 201:
                codes.add(result.link.short_code)
            else:
                failed.append((result.index, result.external_id, result.problem.errors[0].pointer))
    assert len(codes) == ROWS - 1, len(codes)
    assert failed == [(7, "r-7", "/longUrl")], failed
    assert summary.rows == ROWS, summary


def main():
    address, key = sys.argv[1:]
    client = connect(address, key)
    create_and_list(client)
    handle_errors(client, address)
    stream_batch(client)


main()
