"""The pages in a real browser: accessible, of this service alone, readable without scripts, on a desk and a phone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest
from apiflask import APIFlask
from flask.testing import FlaskClient
from redis import Redis
from werkzeug.serving import make_server

from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from domain.job import Stage
from domain.listing import Form, NoListing
from domain.result import Status
from tasks.fleet.heartbeat import Heartbeat
from tasks.jobs.job_store import JobStore
from tasks.node.device_info import Device
from tests import device_answers
from tests.api import results
from tests.api.routes.test_batch_page import batch_of
from tests.api.routes.test_jobs import claimed, submit
from tests.api.routes.test_pages import kept
from tests.api.routes.test_report import EVIL
from tests.tasks.artifacts import WHY_NOT, listing

REASON = "pip install --group browser"
sync_api = pytest.importorskip("playwright.sync_api", reason=REASON)
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason=REASON)
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome on the PATH"),
    # Of the browser's own loop, when it is closed.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
DESK, PHONE = 1280, 390


@pytest.fixture(scope="module")
def url(app: APIFlask) -> Iterator[str]:
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        # Without its sandbox: root cannot have it, and only pages of ours are shown.
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def pages(client: FlaskClient, records: JobStore, redis: Redis) -> dict[str, str]:
    """Paths of every kind of page, and a word on each."""
    Heartbeat(redis, "gpu0@node", Device("GPU-1", 0, "NVIDIA H200", "h200"), 4, {}).beat()
    bodies = [
        results.passed(2.0, Flag(FlagCode.UPPER_BOUND, "too short for what a window can resolve")),
        results.passed(1.9, candidate="e" * 64),
        results.evaluated(launches={
            "source": "cupti", "device_time_us": 11.5, "launches": 2.0, "custom_share": 0.75, "kernels_omitted": 0,
            "kernels": [{"name": "k" * 200, "launches": 1.0, "share": 0.05, "origin": "custom"}], "flags": [],
        }, build={
            "kernels": [{"name": "k" * 200, "registers": 255, "local_bytes": 672, "spill_store_bytes": 16,
                         "spill_load_bytes": 8, "shared_bytes": 49152, "occupancy": 0.125, "limited_by": "registers"}],
        }, listings=[listing(f"{'k' * 64}.ptx", Form.PTX), NoListing(Form.TTIR, WHY_NOT, EVIL + "x" * 300)]),
        results.wrong(EVIL + "x" * 400),
        results.failed(Status.COMPILE_ERROR, EVIL, log="kernel.cu(3): error\n" * 200),
    ]  # fmt: skip
    long = device_answers.kernel("k" * 200)
    bodies[0]["kernel_exec_result"]["metadata"]["device_metrics"] = device_answers.measured(
        device_answers.side(long, advice=EVIL), device_answers.side()
    )
    bodies[1]["kernel_exec_result"]["sanitizer"] = device_answers.sanitizer(device_answers.finding(message="x" * 200))
    bodies[2]["kernel_exec_result"]["metadata"]["device_metrics"] = device_answers.unavailable()
    bodies[2]["kernel_exec_result"]["sanitizer"] = device_answers.sanitizer()
    named: list[str] = []
    found = {"/": "Ready to judge", "/jobs": "Jobs"}
    for body, word in zip(bodies, ("Passed", "Passed", "Passed", "Wrong result", "Does not compile"), strict=True):
        job_id, attempt = claimed(
            client, records, {1: "level1/softmax:triton", 2: "n" * 200}.get(len(named), "softmax")
        )
        for stage in (Stage.BUILD, Stage.LOAD, Stage.VALIDATE, Stage.TIME):
            records.enter_stage(job_id, attempt, stage)
        records.complete(job_id, attempt, body, kept(f"x = {len(named)}\nreturn {EVIL}\n"))
        found[f"/job/{job_id}/report"] = word
        named.append(job_id)
    batch_id = batch_of(client, records, [*bodies, *map(results.passed, (0.4, 1.5, 1.51, 6.0))], unfinished=1)
    found[f"/batch/{batch_id}"] = "7 of 10 jobs passed"
    found[f"/side-by-side?first={named[0]}&second={named[1]}"] = "Side by side"
    found["/kernel?name=softmax"] = "softmax"
    found["/kernel?name=" + "n" * 200] = "n" * 200
    found["/suite?name=level1/"] = "1 of 1 problem correct"
    found[f"/job/{submit(client)}/report?refresh=off"] = "Not done yet"
    found["/job/nope/report"] = "No such job"
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [DESK, PHONE])
def test_every_page_is_accessible(browser: Any, url: str, pages: dict[str, str], scheme: str, width: int) -> None:
    # The policy of the pages lets no script in but theirs, also not the one that looks at them.
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
    page = context.new_page()
    for path, word in pages.items():
        page.goto(url + path)
        assert page.get_by_role("heading", level=1, name=word).is_visible(), path
        found = axe.Axe().run(page).response
        assert [(each["id"], [node["target"] for node in each["nodes"]]) for each in found["violations"]] == [], path
        assert len(found["passes"]) > 10
        assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{path} is wider than the window"
    context.close()


def test_a_page_asks_for_nothing_else_and_breaks_no_rule_of_its_own(
    browser: Any, url: str, pages: dict[str, str]
) -> None:
    context = browser.new_context()
    page = context.new_page()
    asked, said = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    for path in pages:
        page.goto(url + path)
    assert {each for each in asked if not each.endswith("/favicon.ico")} == {url + path for path in pages}
    # A browser says in its console that a page was not there, and nothing else.
    assert [text for text in said if "404" not in text] == []
    context.close()


def test_without_scripts_and_from_a_file(browser: Any, url: str, pages: dict[str, str], tmp_path: Any) -> None:
    context = browser.new_context(java_script_enabled=False, viewport={"width": DESK, "height": 900})
    page = context.new_page()
    path = next(path for path, word in pages.items() if word == "Wrong result")
    page.goto(url + path)
    saved = tmp_path / "report.html"
    saved.write_text(page.content())
    page.goto(saved.as_uri())
    assert page.get_by_role("img", name="Where the output is wrong").is_visible()
    box = page.get_by_role("img", name="Where the output is wrong").bounding_box()
    assert box["width"] > 100 and box["height"] > 100
    context.close()


def test_a_source_is_downloaded_as_it_was_sent(browser: Any, url: str, pages: dict[str, str]) -> None:
    page = browser.new_page(java_script_enabled=False)
    page.goto(url + next(path for path, word in pages.items() if word == "Passed"))
    page.get_by_text("The kernel: 2 lines").click()
    with page.expect_download() as started:
        page.get_by_role("link", name="Download kernel.py").click()
    with open(started.value.path(), encoding="utf-8") as file:
        assert (file.read(), started.value.suggested_filename) == (f"x = 0\nreturn {EVIL}\n", "kernel.py")
    page.close()


def test_a_source_is_copied_as_it_was_sent(browser: Any, url: str, pages: dict[str, str]) -> None:
    context = browser.new_context()
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(url + next(path for path, word in pages.items() if word == "Passed"))
    page.get_by_text("The kernel: 2 lines").click()
    page.get_by_role("button", name="Copy: Source of the kernel").click()
    page.get_by_role("button", name="Copied: Source of the kernel").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == f"x = 0\nreturn {EVIL}\n"
    context.close()


def test_a_filter_leads_to_a_list_and_a_form_to_two_jobs(browser: Any, url: str, pages: dict[str, str]) -> None:
    page = browser.new_page(java_script_enabled=False)
    page.goto(f"{url}/jobs")
    page.get_by_label("Verdict").select_option(label="Wrong result")
    page.get_by_role("button", name="Show").click()
    chips = page.locator("td .chip").all_inner_texts()
    assert chips and set(chips) == {"Wrong result"}
    page.goto(f"{url}/kernel?name=softmax")
    page.get_by_role("button", name="Compare").click()
    assert page.get_by_role("heading", level=1, name="Side by side").is_visible()
    assert page.locator("pre.diff .added").is_visible()
    page.get_by_role("link", name="Kernel evaluation").click()
    assert page.get_by_role("heading", level=1, name="Ready to judge").is_visible()
    page.close()


def test_the_page_of_a_job_becomes_its_report(browser: Any, url: str, client: FlaskClient, records: JobStore) -> None:
    job_id, attempt = claimed(client, records)
    page = browser.new_page()
    page.goto(f"{url}/job/{job_id}/report")
    assert page.get_by_role("heading", level=1, name="Not done yet").is_visible()
    records.complete(job_id, attempt, results.passed())
    page.get_by_role("heading", level=1, name="Passed").wait_for(timeout=60_000)
    page.close()


FOLLOW = """
jobId => new Promise((resolve, reject) => {
  const told = [];
  const source = new EventSource(`/job/${jobId}/events`);
  for (const name of ["stage", "verdict", "done"])
    source.addEventListener(name, event => {
      told.push(name === "stage" ? JSON.parse(event.data).stage : name);
      window.lastSeen = told.at(-1);
    });
  // After the last event the browser asks once more, is answered 204, and gives up.
  source.onerror = () => { if (source.readyState === EventSource.CLOSED) resolve(told); };
})
"""


def test_a_browser_follows_a_job(browser: Any, url: str, client: FlaskClient, records: JobStore) -> None:
    job_id, attempt = claimed(client, records)
    page = browser.new_page()
    page.goto(f"{url}/health")  # A page of this origin that has no policy.
    page.evaluate(f"() => {{ window.following = ({FOLLOW})({job_id!r}); }}")
    page.wait_for_function("window.lastSeen === 'build'")
    records.enter_stage(job_id, attempt, Stage.TIME)
    page.wait_for_function("window.lastSeen === 'time'")
    records.complete(job_id, attempt, results.passed())
    assert page.evaluate("window.following") == ["queued", "build", "time", "verdict", "done"]
    page.close()


def test_the_browsable_document_fits_a_phone(browser: Any, url: str, redis: Redis) -> None:
    context = browser.new_context(viewport={"width": PHONE, "height": 900}, is_mobile=True)
    page = context.new_page()
    page.goto(f"{url}/docs")
    page.get_by_text("Judge a kernel against a reference").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE
    page.get_by_text("Judge a kernel against a reference").click()
    page.get_by_text("Request body").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE
    page.get_by_role("link", name="Kernel evaluation", exact=True).click()
    assert page.get_by_role("heading", level=1).is_visible()
    context.close()


def test_the_browsable_document_shows_every_group(browser: Any, url: str, redis: Redis) -> None:
    shown = browser.new_page()
    shown.goto(f"{url}/docs")
    shown.get_by_text("Judge a kernel against a reference").wait_for()
    assert {"Submissions", "Jobs", "Service"} <= set(shown.locator(".opblock-tag a span").all_inner_texts())
    assert not shown.get_by_text("needs JavaScript").is_visible()
    shown.close()
