"""Runs untrusted code: zygote and launcher, channel and arena, confinement, and the runner itself."""
