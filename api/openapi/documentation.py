"""The OpenAPI document and its browsable page. The page's assets come from a wheel, so it needs no network."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from apiflask import APIBlueprint, APIFlask
from flask import Response, render_template, send_from_directory

from api.http.problems import CONTENT_TYPE
from api.openapi import response_examples, webhook_spec
from api.schemas.problem import ProblemSchema

TITLE = "Kernel evaluation"
VERSION = "0.1.0"
ASSETS = "/docs/assets"
DESCRIPTION = """\
POST a GPU kernel, alone (`/evaluate`) or against a reference (`/compare`); ask `/job/<id>` for the verdict, or wait for
it with `?wait=SECONDS`. Every verdict about a kernel, wrong, crashed and timed out included, is a 200 with
`kernel_exec_result`; errors are problem documents (RFC 9457) that name the field at fault."""
TAGS = {"Submissions": "Submit kernels.", "Jobs": "Get verdicts.", "Service": "Check the service."}
"""Tags in the order of the blueprints. As APIFlask's own setting they would keep it from tagging operations."""
ONE_DAY_S = 86_400

KEY_SCHEME = "api_key"
REFUSALS = {
    "401": "An API key is needed here, or this one is not known",
    "403": "The API key lacks the scope that this needs",
    "429": "Too many requests, or jobs, of this API key; try again after `Retry-After`",
    "503": "The broker cannot be reached; try again after `Retry-After`",
}
OF_A_BODY = {
    "400": "The request is not valid; every field at fault is named",
    "408": "The body did not come in time: 10 s, and one more for every 32 KiB",
    "413": "The body is larger than 64 MiB",
    "415": "The body is no JSON",
}
UNGUARDED = frozenset({"/health"})
"""Needs no key, and returns less without one."""

blueprint = APIBlueprint("documentation", __name__, enable_openapi=False)


def _assets() -> Path:
    """The folder of Swagger UI's files, from the flask-swagger-ui wheel, whose own code is not used."""
    spec = find_spec("flask_swagger_ui")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("flask-swagger-ui is not installed: pip install -c constraints.txt --group api")
    return Path(spec.origin).parent / "dist"


@blueprint.get("/docs")
def browse() -> str:
    """Swagger UI for the document; a client without scripts gets the document's address."""
    return render_template("docs.html", title=TITLE, assets=ASSETS)


@blueprint.get(f"{ASSETS}/<path:name>")
def asset(name: str) -> Response:
    """One of Swagger UI's files."""
    return send_from_directory(_assets(), name, max_age=ONE_DAY_S)


def _complete(spec: dict[str, Any] | str) -> dict[str, Any] | str:
    """Completes the document with the parts that APIFlask does not write."""
    assert isinstance(spec, dict), "the document is made as JSON"
    _with_refusals(spec)
    _with_examples(spec)
    spec["components"]["schemas"][webhook_spec.NAME] = webhook_spec.SCHEMA
    spec["webhooks"] = webhook_spec.webhooks()
    spec["tags"] = [{"name": name, "description": description} for name, description in TAGS.items()]
    return spec


def _with_refusals(spec: dict[str, Any]) -> None:
    """Adds the error responses that every operation shares, and gives all errors the problem schema.

    An API key is required, or not ({}) on a loopback address.
    """
    for path, item in spec["paths"].items():
        for operation in (each for each in item.values() if "responses" in each):
            operation["security"] = [{}, {KEY_SCHEME: []}]
            responses = operation["responses"]
            if path in UNGUARDED:
                responses["503"]["content"] = responses["200"]["content"]
                continue
            described = REFUSALS | (OF_A_BODY if "requestBody" in operation else {})
            if "requestBody" in operation:
                operation["requestBody"]["required"] = True
            for status, description in described.items():
                responses.setdefault(status, {"description": description})
            for status, response in responses.items():
                if status >= "400":
                    response["content"] = {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}


def _with_examples(spec: dict[str, Any]) -> None:
    """Adds an example to every JSON response."""
    for path, item in spec["paths"].items():
        for method, operation in item.items():
            for status, response in operation.get("responses", {}).items():
                for content in response.get("content", {}).values():
                    name = content["schema"].get("$ref", "").rpartition("/")[2]
                    example = response_examples.of(name, method, path, status)
                    if example is not None:
                        content["example"] = example


def configure(app: APIFlask) -> None:
    """Configures APIFlask's document and the location of the page's assets."""
    app.config.update(
        OPENAPI_VERSION="3.1.0",
        DESCRIPTION=DESCRIPTION,
        LICENSE={"name": "MIT", "identifier": "MIT"},
        AUTO_OPERATION_ID=True,
        SECURITY_SCHEMES={KEY_SCHEME: {"type": "http", "scheme": "bearer", "description": "A key of `stack keys`."}},
        VALIDATION_ERROR_STATUS_CODE=400,
        VALIDATION_ERROR_DESCRIPTION=OF_A_BODY["400"],
        VALIDATION_ERROR_SCHEMA=ProblemSchema,
        HTTP_ERROR_SCHEMA=ProblemSchema,
    )
    app.spec_processor(_complete)
