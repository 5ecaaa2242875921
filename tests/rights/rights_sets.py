"""The sets of rights that a worker is deployed with: the tests here run a worker under each of them.

docker-compose.yml and deploy/kubernetes/ give these rights and no others; a test compares them with this table.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sandbox.isolation.uid import CAPABILITIES

ROOT_USER, SERVICE_USER, ORDINARY_USER = 0, 10001, 54_321
"""User ids: root; the user `service` of worker.Dockerfile; an ordinary account."""

PUBLIC, PUBLIC_AND_STICKY = 0o777, 0o1777
"""Modes of a folder that everybody may write. With the sticky bit, only a file's or the folder's owner removes a file.
"""

ALWAYS = ("capabilities", "no_new_privileges", "landlock", "seccomp")
WITH_USERS = ("own_user", "signals")


@dataclass(frozen=True)
class Rights:
    """One set of rights. `holds` and `lacks` name the layers of `sandbox.isolation.layer_probe` that a worker has and
    lacks with it.

    Layers in neither depend on the host, as root's cgroup and an ordinary user's user namespaces do.

    - `capabilities`: numbers; None for all that the host gives root.
    - `new_namespaces`: mount and user namespaces are allowed.
    - `temporary`, `shared_memory`: mode of the container's own file system at /tmp and /dev/shm; None for the host's.
    - `read_only`: the root file system, /sys and the cgroups cannot be written.
    - `owner`, `mode`: those of the folder that holds the worker's state.
    """

    name: str
    about: str
    user: int = ROOT_USER
    capabilities: frozenset[int] | None = field(default_factory=frozenset)
    no_new_privileges: bool = True
    new_namespaces: bool = False
    read_only: bool = True
    temporary: int | None = PUBLIC_AND_STICKY
    shared_memory: int | None = PUBLIC_AND_STICKY
    owner: int = SERVICE_USER
    mode: int = 0o755
    holds: tuple[str, ...] = ALWAYS
    lacks: tuple[str, ...] = ("namespaces", "cgroup", "private_tmp")


_FIVE = frozenset(CAPABILITIES.values())

COMPOSE = Rights(
    "compose", "docker-compose.yml: root with five capabilities", capabilities=_FIVE, holds=(*ALWAYS, *WITH_USERS)
)
KUBERNETES = Rights(
    "kubernetes",
    "deploy/kubernetes: the same, where everybody may write /tmp and /dev/shm and neither is sticky",
    capabilities=_FIVE,
    temporary=PUBLIC,
    shared_memory=PUBLIC,
    owner=ROOT_USER,
    mode=PUBLIC,
    holds=(*ALWAYS, *WITH_USERS),
)
WORKER_USER = Rights(
    "worker-user",
    "docker-compose.yml with WORKER_USER=10001:10001: no capability",
    user=SERVICE_USER,
    lacks=("own_user", "namespaces", "cgroup", "private_tmp"),
)
PLAIN_ROOT = Rights(
    "root",
    "`make serve` or `python -m stack.workers` as root: everything",
    capabilities=None,
    no_new_privileges=False,
    new_namespaces=True,
    read_only=False,
    temporary=None,
    shared_memory=None,
    owner=ROOT_USER,
    holds=(*ALWAYS, *WITH_USERS, "namespaces", "private_tmp"),
    lacks=(),
)
ORDINARY = Rights(
    "user",
    "`make serve` or `python -m stack.workers` as an ordinary user",
    user=ORDINARY_USER,
    no_new_privileges=False,
    new_namespaces=True,
    read_only=False,
    temporary=None,
    shared_memory=None,
    owner=ORDINARY_USER,
    lacks=("own_user",),
)

EVERY_SET = (COMPOSE, KUBERNETES, WORKER_USER, PLAIN_ROOT, ORDINARY)
