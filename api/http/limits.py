"""Limits of one server process: connections, threads, waiting and slow clients, and bytes."""

from __future__ import annotations

PROCESSES = 4
"""Number of server processes. The threads of a process take turns: with two processes on two cores, one was saturated
at 200 submissions a second (docs/measurements.md). Checking a large body delays only one process's responses."""

PROCESS_SLOTS = 64
"""Slots in shared memory, one for each process to publish its state; a replacement process takes a free one."""

THREADS = 320
"""Threads of a process. A thread costs about 100 KiB, and a waiting client occupies one. A client without a slot costs
more than a waiting one: it comes back every few seconds, together with the others that found none."""

WAITERS = THREADS * 3 // 4
"""Maximum clients that wait in one process. The other threads stay free for /health and submissions."""

READERS = THREADS // 8
"""Maximum threads of a process that read large bodies. As many again stay free beside them and the waiting clients."""

CONNECTIONS = 4 * THREADS
"""Maximum connections of one process. Beyond it, the oldest connection without a running request is closed for a new
one."""

SMALL_BODY = 64 << 10
"""Maximum bytes of a body that is collected without a thread and that is not counted."""

BODY_MEMORY = 640 << 20
"""Maximum bytes of larger bodies in all processes together, by `api.http.strict_json.cost`: three bodies of 64 MiB, or
one that is not plain ASCII."""

HEAD_BYTES = 64 << 10
"""Maximum bytes of the request line and all headers together."""

HEAD_S = 10.0
"""Maximum time from a request's first byte to the end of its headers, and from there to the end of a small body, in
s."""

BODY_S, BODY_BYTES_PER_S = 10.0, 32 << 10
"""Maximum time for a body, in s, and bytes that extend it by a second each time they arrive."""

SEND_S, SEND_BYTES = 10.0, 64 << 10
"""Time within which a client must read that many bytes of a response, in s."""

UNSENT_BYTES = 64 << 20
"""Maximum bytes of unread responses in one process; no thread waits for these. Beyond it a connection is closed."""

LINGER_S = 2.0
"""Time that a closing connection stays open for the client to read its last response, in s."""
