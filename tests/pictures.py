"""`python -m tests.pictures URL JOB [NAME…]`: the pictures in docs/images, of a running service and one of its jobs.

API_KEY is shown where the service wants one.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from urllib.parse import quote

import httpx
from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
VIEWS = (("report.png", "/job/{job}/report", 1120, 900, 1.5), ("report-phone.png", "/job/{job}/report", 390, 844, 2.0),
         ("dashboard.png", "/", 1120, 900, 1.5), ("dashboard-phone.png", "/", 390, 844, 2.0),
         ("jobs.png", "/jobs", 1120, 900, 1.5), ("suite.png", "/suite", 1120, 900, 1.5),
         ("batch.png", "/batch/{batch}", 1120, 900, 1.5), ("history.png", "/kernel?name={name}", 1120, 900, 1.5),
         ("side-by-side.png", "/side-by-side?first={job}&second={other}", 1120, 900, 1.5),
         ("history-dark-phone.png", "/kernel?name={name}", 390, 844, 2.0),
         ("docs.png", "/docs", 1120, 900, 1.5))  # fmt: skip
DRAWN = {"/docs": ".opblock"}
"""What is there once the scripts of a page have what they show."""


def places(url: str, job_id: str, headers: dict[str, str]) -> dict[str, str]:
    """What the paths of the views name: the job, its batch and name, and the newest other job against its reference."""
    with httpx.Client(base_url=url, headers=headers) as client:
        job = client.get(f"/job/{job_id}").json()
        same = client.get("/jobs", params={"reference": job["summary"]["reference"], "limit": 2}).json()["jobs"]
    other = next((each["job_id"] for each in same if each["job_id"] != job_id), job_id)
    return {"job": job_id, "batch": str(job["batch_id"]), "name": quote(job.get("name") or ""), "other": other}


def main(url: str, job_id: str, *names: str) -> None:
    """Writes them, or those of these names; needs a Chromium on the PATH, and a job of a batch that has a name."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    headers = {"Authorization": f"Bearer {os.environ['API_KEY']}"} if "API_KEY" in os.environ else {}
    named = places(url, job_id, headers)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, path, width, height, scale in VIEWS:
            if names and name not in names:
                continue
            scheme = "dark" if "dark" in name else "light"
            given = {
                "viewport": {"width": width, "height": height},
                "device_scale_factor": scale,
                "color_scheme": scheme,
                "extra_http_headers": headers,
            }
            page = browser.new_page(**given)
            page.goto(url + path.format(**named))
            if path in DRAWN:
                page.wait_for_selector(DRAWN[path])
            page.screenshot(path=IMAGES / name)
            page.close()
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
