"""State transitions of jobs: the Lua scripts in `tasks/jobs/lua`, each one atomic step in Redis.

`shared/job.lua` and `shared/queue.lua` list the Redis keys.
"""

from __future__ import annotations

from pathlib import Path

from redis import Redis

from tasks.node.lua_script import LuaScript

LUA = Path(__file__).with_name("lua")
SHARED = LUA / "shared"
TRANSITION = tuple(SHARED / f"{name}.lua" for name in ("argument", "job", "webhooks", "queue", "job_end"))
"""The functions that every transition of a job uses. Each file uses those of the files before it."""


def transition(redis: Redis, name: str, *functions: Path) -> LuaScript:
    """The transition in `<name>.lua`; `functions` are files of further functions that it uses."""
    return LuaScript(redis, *TRANSITION, *functions, LUA / f"{name}.lua")
