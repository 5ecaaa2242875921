"""`python -m tests.pictures URL JOB [NAME…]`: the pictures in docs/images, of a running service and one of its jobs."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
VIEWS = (("report.png", "/job/{}/report", 1120, 900, 1.5), ("report-phone.png", "/job/{}/report", 390, 844, 2.0),
         ("dashboard.png", "/", 1120, 900, 1.5), ("dashboard-phone.png", "/", 390, 844, 2.0),
         ("docs.png", "/docs", 1120, 900, 1.5))  # fmt: skip


def main(url: str, job_id: str, *names: str) -> None:
    """Writes them, or those of these names; needs a Chromium on the PATH."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, path, width, height, scale in VIEWS:
            if names and name not in names:
                continue
            size = {"width": width, "height": height}
            page = browser.new_page(viewport=size, device_scale_factor=scale, color_scheme="light")
            page.goto(url + path.format(job_id))
            if path == "/docs":  # Drawn by its scripts, when they have the document.
                page.wait_for_selector(".opblock")
            page.screenshot(path=IMAGES / name)
            page.close()
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
