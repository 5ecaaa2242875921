"""How much one server process holds at once, and how much of it may be clients that only wait or are slow."""

from __future__ import annotations

PROCESSES = 4
"""The threads of one take turns: of two on two cores one was full at 200 submissions a second (docs/measurements.md).
A large body being checked delays the answers of one of them only."""

PLACES = 64
"""For the processes to write down what all are to know of them; one that replaces another has the next place."""

THREADS = 320
"""A thread costs about 100 KiB, and a waiting client holds one. One that finds no place costs more than one that waits:
it comes back every few seconds, together with the others that found none."""

WAITERS = THREADS * 3 // 4
"""The rest stays free for /health and for submissions, whoever waits."""

READERS, SENDERS = THREADS // 8, THREADS // 16
"""Threads of a process that may read large bodies, and that may wait for a client to take its answer. As many again
stay free beside them and the clients that wait."""

CONNECTIONS = 4 * THREADS
"""Limit of one process. Beyond it the oldest connection without a running request is closed for a new one."""

SMALL_BODY = 64 << 10
"""Bytes of a body that is waited for without a thread, and that nobody counts."""

BODY_MEMORY = 640 << 20
"""Bytes that larger bodies may take in all processes together, by `api.http.strict_json.cost`: three of 64 MiB, or one
that is not plain ASCII."""

HEAD_BYTES = 64 << 10
"""Limit for the request line and all headers together."""

HEAD_S = 10.0
"""From the first byte of a request to the end of its headers; and from there to the end of a small body."""

BODY_S, BODY_BYTES_PER_S = 10.0, 32 << 10
"""A body may take so long, and a second more for each so many bytes that have come."""

SEND_S, SEND_BYTES = 10.0, 64 << 10
"""Within such a time a client takes so many bytes of an answer, or is given up."""

UNSENT_BYTES = 64 << 20
"""Limit for responses that clients have not read yet, in one process; no thread waits for these."""

LINGER_S = 2.0
"""A connection that is to end is kept so long for the client to read its last answer."""
