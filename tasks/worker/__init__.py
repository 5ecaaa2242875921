"""The Celery main process of one device: its lifecycle, its pool, and what it measures of itself."""
