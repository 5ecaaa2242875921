"""`python -m tests.pictures URL JOB [NAME…]`: the pictures in docs/images, of a running service and one of its jobs.

API_KEY is shown where the service wants one.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
VIEWS = (("report.png", "/job/{}/report", 1120, 900, 1.5), ("report-phone.png", "/job/{}/report", 390, 844, 2.0),
         ("dashboard.png", "/", 1120, 900, 1.5), ("dashboard-phone.png", "/", 390, 844, 2.0),
         ("docs.png", "/docs", 1120, 900, 1.5))  # fmt: skip
DRAWN = {"/docs": ".opblock"}
"""What is there once the scripts of a page have what they show."""


def main(url: str, job_id: str, *names: str) -> None:
    """Writes them, or those of these names; needs a Chromium on the PATH."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, path, width, height, scale in VIEWS:
            if names and name not in names:
                continue
            given = {
                "viewport": {"width": width, "height": height},
                "device_scale_factor": scale,
                "color_scheme": "light",
            }
            if "API_KEY" in os.environ:
                given["extra_http_headers"] = {"Authorization": f"Bearer {os.environ['API_KEY']}"}
            page = browser.new_page(**given)
            page.goto(url + path.format(job_id))
            if path in DRAWN:
                page.wait_for_selector(DRAWN[path])
            page.screenshot(path=IMAGES / name)
            page.close()
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
