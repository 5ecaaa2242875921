"""The service's URL and the API key: from arguments, environment variables or defaults."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from kernel_eval_client.errors import CallerError

URL_VARIABLE, KEY_VARIABLE = "KERNEL_EVAL_URL", "KERNEL_EVAL_API_KEY"
DEFAULT_URL = "http://127.0.0.1:8000"


@dataclass(frozen=True)
class Address:
    """A service's URL without a final slash, and the API key for it, if any.

    `withheld`: the environment has a key, which belongs to another URL.
    """

    url: str
    api_key: str | None = field(default=None, repr=False)
    withheld: bool = False

    @classmethod
    def find(cls, url: str | None = None, api_key: str | None = None) -> Address:
        """The address from the arguments, else from `KERNEL_EVAL_URL` and `KERNEL_EVAL_API_KEY`, else local port 8000.

        The key in the environment belongs to the URL there: another `url` does not get it and needs an `api_key`.
        Raises CallerError for an invalid URL, and for a key that no header can carry.
        """
        default_url = os.environ.get(URL_VARIABLE, DEFAULT_URL).rstrip("/")
        address = (url or default_url).rstrip("/")
        environment_key = os.environ.get(KEY_VARIABLE) or None
        withheld = api_key is None and environment_key is not None and address != default_url
        if api_key is None and not withheld:
            api_key = environment_key
        if not address.startswith(("http://", "https://")):
            raise CallerError(f"{address!r} is no URL of a service; it begins with http:// or https://")
        if api_key and not (api_key.isascii() and api_key.isprintable()):
            raise CallerError(
                f"the API key holds a line break, or another character that no key has; set {KEY_VARIABLE} again"
            )
        return cls(address, api_key or None, withheld)

    @property
    def is_local(self) -> bool:
        """Whether the service runs on this machine; the client then ignores proxies of the environment."""
        return urlsplit(self.url).hostname in ("127.0.0.1", "localhost", "::1")

    def headers(self) -> dict[str, str]:
        """The headers of every request."""
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
