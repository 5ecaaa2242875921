"""The pictures in docs/images, in two steps, because a machine with a GPU has seldom a browser.

`python -m tests.pictures save URL JOB FILE [NAME…]` keeps the pages of a running service and one of its jobs, which has
a name and is of a batch; `python -m tests.pictures draw FILE [NAME…]` draws them with a Chromium. Without names each
keeps or draws all that it can. API_KEY is shown where the service wants one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path
from urllib.parse import quote

import httpx

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
PARTS = re.compile(r"""(?:href|src)=["'](/[^"'#]*\.(?:css|js|png|svg|ico))["']""")
HOST = "http://service"


def places(client: httpx.Client, job_id: str) -> dict[str, str]:
    """What the paths of the views name: the job, its batch and name, and the newest other job against its reference."""
    job = client.get(f"/job/{job_id}").json()
    same = client.get("/jobs", params={"reference": job["summary"]["reference"], "limit": 2}).json()["jobs"]
    other = next((each["job_id"] for each in same if each["job_id"] != job_id), job_id)
    return {"job": job_id, "batch": str(job["batch_id"]), "name": quote(job.get("name") or ""), "other": other}


def save(url: str, job_id: str, file: str, *names: str) -> None:
    """Keeps the pages of these views, or of all, and what the pages load, by path."""
    headers = {"Authorization": f"Bearer {os.environ['API_KEY']}"} if "API_KEY" in os.environ else {}
    with httpx.Client(base_url=url, headers=headers) as client:
        named = places(client, job_id)
        paths = {name: path.format(**named) for name, path, *_ in VIEWS if not names or name in names}
        kept: dict[str, tuple[str, str]] = {}
        waiting = {*paths.values(), "/openapi.json"}
        while waiting:
            path = waiting.pop()
            reply = client.get(path, headers={"Accept": "text/html"}).raise_for_status()
            kept[path] = (reply.headers["Content-Type"], reply.text)
            waiting |= set(PARTS.findall(reply.text)) - set(kept)
    Path(file).write_text(json.dumps({"paths": paths, "kept": kept}))


def draw(file: str, *names: str) -> None:
    """Draws the saved pages, or those of them with these names."""
    from playwright.sync_api import Route, sync_playwright  # Not where pages are only saved.

    saved = json.loads(Path(file).read_text())
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

    def reply(route: Route) -> None:
        path = route.request.url.removeprefix(HOST)
        if path not in saved["kept"]:
            return route.abort()
        content_type, body = saved["kept"][path]
        return route.fulfill(content_type=content_type, body=body)

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, _, width, height, scale in VIEWS:
            if name not in (names or saved["paths"]):
                continue
            page = browser.new_page(
                viewport={"width": width, "height": height},
                device_scale_factor=scale,
                color_scheme="dark" if "dark" in name else "light",
            )
            page.route("**/*", reply)
            path = saved["paths"][name]
            page.goto(HOST + path)
            if path in DRAWN:
                page.wait_for_selector(DRAWN[path])
            page.screenshot(path=IMAGES / name)
            page.close()
        browser.close()


if __name__ == "__main__":
    {"save": save, "draw": draw}[sys.argv[1]](*sys.argv[2:])
