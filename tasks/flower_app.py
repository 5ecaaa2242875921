"""The Celery application as Flower is given it: `celery --app tasks.flower_app flower`. It loads no task of ours.

What `celeryconfig.py` has a worker import is not in Flower's image, and a page that shows events needs none of it.
"""

from __future__ import annotations

from tasks.app import app

app.conf.imports = ()
