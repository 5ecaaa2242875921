"""The query parameters that pages share."""

from __future__ import annotations

from typing import Any

from marshmallow import validate

from api.pages.rendering import OFF, ON
from api.schemas.fields import QuerySchema, Text

HTML: dict[str, Any] = {"content": {"text/html": {"schema": {"type": "string"}}}}
"""The media type of a page, for the OpenAPI document."""
ALSO_A_PAGE: dict[Any, Any] = {200: HTML}
"""For an endpoint that responds with JSON, or with a page to a client that accepts `text/html`."""


def refresh_field(default: str = OFF) -> Text:
    """Whether the page reloads itself; `default` is ON or OFF."""
    description = "Whether the page reloads itself every few seconds."
    return Text(validate=validate.OneOf((ON, OFF)), load_default=default, metadata={"description": description})


class RefreshQuerySchema(QuerySchema):
    refresh = refresh_field()
