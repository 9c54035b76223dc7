"""The client."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ParamSpec, TypeVar, cast

from ._operations import Operations
from .models import FeedPage

P = ParamSpec("P")
Page = TypeVar("Page", bound=Mapping[str, Any])


class Client(Operations):
    """A client of the service, for any number of threads.

    Each operation of the API is a method with the name of its `operationId`: `create_link`, `list_links` and so on.
    A method takes the value in the path, then the body, then the parameters of the query by their names.
    """

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def pages(self, operation: Callable[P, Page], *args: P.args, **kwargs: P.kwargs) -> Iterator[Page]:
        """All pages of a list: `client.pages(client.list_links, tag="spring")`."""
        while True:
            page = operation(*args, **kwargs)
            yield page
            if page["nextCursor"] is None:
                return
            kwargs["cursor"] = page["nextCursor"]

    def follow_visits(
        self,
        after: str = "",
        *,
        limit: int = 1000,
        class_: str | None = None,
        code: str | None = None,
        campaign_id: str | None = None,
    ) -> Iterator[FeedPage]:
        """Visits in the order in which they are stored, page by page, without end; waits for those to come.

        `after` is the `nextCursor` of the last page that you have processed: store it together with your results, and
        pass it after a restart. Without it, the pages begin with the oldest visit; `now` begins with those to come.
        Pages without visits come at least every 30 seconds.
        """
        wait = max(0, min(30, int(self._timeout / 2)))
        filters = cast(Any, {"class_": class_, "code": code, "campaign_id": campaign_id})
        while True:
            page = cast(FeedPage, self.list_visits(after=after, wait=wait, limit=limit, **filters))
            yield page
            after = page["nextCursor"]
