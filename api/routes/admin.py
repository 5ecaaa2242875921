"""POST /admin/cleanup-jobs: forget what finished long ago."""

from __future__ import annotations

from typing import Any

from apiflask import APIBlueprint, Schema
from marshmallow import fields

from api.http.context import desk
from api.schemas.fields import WholeNumber, WireSchema

blueprint = APIBlueprint("admin", __name__, tag="Service")

OLD_S = 300
YEAR_S = 366 * 86_400


class CleanupQuerySchema(WireSchema):
    """Which jobs to forget."""

    older_than = WholeNumber(0, YEAR_S, load_default=OLD_S, metadata={"description": "Seconds since the job finished."})


class CleanupSchema(Schema):
    """What was done."""

    status = fields.String(required=True)
    removed = fields.Integer(required=True)


@blueprint.post("/admin/cleanup-jobs")
@blueprint.input(CleanupQuerySchema, location="query")
@blueprint.output(CleanupSchema)
def cleanup_jobs(query_data: dict[str, Any]) -> dict[str, Any]:
    """Removes finished jobs, results included, that ended more than five minutes ago; unfinished ones stay."""
    records = desk().records
    return {"status": "cleanup_completed", "removed": records.cleanup(records.now() - query_data["older_than"])}
