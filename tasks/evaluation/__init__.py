"""The Celery task of one job: the pipeline of its stages, and the monitor of an attempt."""
