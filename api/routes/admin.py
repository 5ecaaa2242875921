"""POST /admin/cleanup-jobs: deletes jobs that finished long ago."""

from __future__ import annotations

from typing import Any

from apiflask import APIBlueprint, Schema
from marshmallow import fields

from api.http.context import app_context
from api.schemas.fields import QuerySchema, WholeNumber

blueprint = APIBlueprint("admin", __name__, tag="Service")

OLD_S = 300
YEAR_S = 366 * 86_400


class CleanupQuerySchema(QuerySchema):
    older_than = WholeNumber(0, YEAR_S, load_default=OLD_S, metadata={"description": "Seconds since the job finished."})


class CleanupSchema(Schema):
    status = fields.String(required=True)
    removed = fields.Integer(required=True)


@blueprint.post("/admin/cleanup-jobs")
@blueprint.input(CleanupQuerySchema, location="query")
@blueprint.output(CleanupSchema)
def cleanup_jobs(query_data: dict[str, Any]) -> dict[str, Any]:
    """Deletes finished jobs and their results, five minutes after their end or later; unfinished jobs stay."""
    records = app_context().records
    return {"status": "cleanup_completed", "removed": records.cleanup(records.now() - query_data["older_than"])}
