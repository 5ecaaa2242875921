"""The Celery application for Flower: `celery --app tasks.flower_app flower`. It imports no task.

Flower's image does not contain the modules that `celeryconfig.py` makes a worker import, and showing events needs none.
"""

from __future__ import annotations

from tasks.app import app

app.conf.imports = ()
