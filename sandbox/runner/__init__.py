"""Untrusted: the code that runs inside the process of a submission.

Only `zygote` is trusted: it is the parent of these processes, and holds neither a secret nor a submission.
"""
