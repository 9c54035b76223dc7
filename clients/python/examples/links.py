"""Creates, changes, lists and revokes a link. Environment: SHORTLINK_URL, the address of the internal server, and
SHORTLINK_KEY, an API key with the scopes links:read and links:write."""

import os

from ngx_shortlink import Client, ProblemError

with Client(os.environ.get("SHORTLINK_URL", "http://127.0.0.1:8081"), os.environ["SHORTLINK_KEY"]) as client:
    link = client.create_link({"longUrl": "https://www.example.com/spring", "tags": ["python"]})
    print("created", link["shortCode"])
    client.change_link(link["shortCode"], {"note": "Spring"})

    for page in client.pages(client.list_links, tag="python", limit=100):
        for listed in page["links"]:
            print("listed", listed["shortCode"], listed["note"])
    client.revoke_link(link["shortCode"])

    try:
        client.create_link({"longUrl": "mailto:a@example.com", "maxVisits": 0})
    except ProblemError as error:
        for fault in error.errors:
            print("refused", fault["pointer"], fault["detail"])
