"""What a digest of our code covers."""

from __future__ import annotations

from domain.paths import ROOT, code_of


def test_a_digest_covers_names_and_contents_of_files_of_every_kind() -> None:
    code = code_of(["backends"])
    for name in ("backends/base.py", "backends/cuda/nvrtc_headers/math.h"):
        assert name.encode() + b"\0" + (ROOT / name).read_bytes() in code
    assert b"__pycache__/" not in code
