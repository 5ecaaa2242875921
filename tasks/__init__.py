"""The life of a job: its record, its message, the worker that runs it, and what puts it right when one of them dies."""
