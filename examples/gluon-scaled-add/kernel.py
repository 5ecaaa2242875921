from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def scaled_add(x, y, out, scale, n, BLOCK: gl.constexpr):
    # One warp covers 128 neighbouring elements, four for each thread: loads of 16 bytes.
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    inside = at < n
    total = scale * gl.load(x + at, mask=inside) + gl.load(y + at, mask=inside)
    gl.store(out + at, total, mask=inside)
