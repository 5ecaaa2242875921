"""The Celery task of one job: the pipeline of its stages, and what watches over an attempt."""
