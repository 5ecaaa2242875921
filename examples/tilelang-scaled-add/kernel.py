import tilelang
import tilelang.language as T
import torch


@tilelang.jit(out_idx=[-1])
def scaled_add(rows, columns, tile=64, dtype="float32"):
    @T.prim_func
    def main(
        x: T.Tensor((rows, columns), dtype), y: T.Tensor((rows, columns), dtype), out: T.Tensor((rows, columns), dtype)
    ):
        with T.Kernel(T.ceildiv(columns, tile), T.ceildiv(rows, tile), threads=128) as (right, down):
            for i, j in T.Parallel(tile, tile):
                out[down * tile + i, right * tile + j] = (
                    x[down * tile + i, right * tile + j] * 2.5 + y[down * tile + i, right * tile + j]
                )

    return main


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        return scaled_add(*x.shape)(x, y)


def get_inputs():
    return [torch.randn(512, 512), torch.randn(512, 512)]
