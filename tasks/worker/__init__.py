"""The Celery main process of one device: its lifecycle, its pool, and the gauges that it reports."""
