"""The life of a job: its record, its message, the worker that runs it, and the recovery when one of them dies."""
