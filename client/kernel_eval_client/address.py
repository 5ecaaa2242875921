"""Where the service is and who asks: by argument, by environment variable, by default."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from kernel_eval_client.errors import CallerError

URL_VARIABLE, KEY_VARIABLE = "KERNEL_EVAL_URL", "KERNEL_EVAL_API_KEY"
DEFAULT_URL = "http://127.0.0.1:8000"


@dataclass(frozen=True)
class Address:
    """A service's URL without a slash at its end, and the API key to show there, if any."""

    url: str
    api_key: str | None = field(default=None, repr=False)

    @classmethod
    def find(cls, url: str | None = None, api_key: str | None = None) -> Address:
        """What is None comes from `KERNEL_EVAL_URL` and `KERNEL_EVAL_API_KEY`; without them, this machine's port 8000.

        A key from the environment goes to the URL it was set for: with another `url` the key has to be given too.
        Raises CallerError for what is no URL.
        """
        known = os.environ.get(URL_VARIABLE, DEFAULT_URL).rstrip("/")
        address = (url or known).rstrip("/")
        if api_key is None and address == known:
            api_key = os.environ.get(KEY_VARIABLE)
        if not address.startswith(("http://", "https://")):
            raise CallerError(f"{address!r} is no URL of a service; it begins with http:// or https://")
        return cls(address, api_key or None)

    @property
    def is_local(self) -> bool:
        """On this machine: no proxy stands in between, whatever the environment says."""
        return urlsplit(self.url).hostname in ("127.0.0.1", "localhost", "::1")

    def headers(self) -> dict[str, str]:
        """Those of every request."""
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
