"""Tiled matrix product in CUDA through shared memory: no dimension is a multiple of the tile, no two are equal."""

from tests.mutants.corpus import Mutant, Original, matrix_product

ORIGINAL = Original(
    kernel_type="cuda",
    source="""
#include <cuda_fp16.h>
#define TILE 32

__global__ void matmul(const float* a, const float* b, float* c, int m, int n, int k) {
    __shared__ float a_tile[TILE][TILE];
    __shared__ float b_tile[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y;
    int column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int start = 0; start < k; start += TILE) {
        int p = start + threadIdx.x;
        int q = start + threadIdx.y;
        a_tile[threadIdx.y][threadIdx.x] = row < m && p < k ? a[row * k + p] : 0.0f;
        b_tile[threadIdx.y][threadIdx.x] = q < k && column < n ? b[q * n + column] : 0.0f;
        __syncthreads();  // loaded
        for (int i = 0; i < TILE; ++i) sum += a_tile[threadIdx.y][i] * b_tile[i][threadIdx.x];
        __syncthreads();  // used
    }
    if (row < m && column < n) c[row * n + column] = sum;
}
""",
    **matrix_product(700, 501, 530, grid=["cdiv(n, 32)", "cdiv(m, 32)"], block=[32, 32]),
    atol=1e-3,  # Sums of 530 products in float32 differ by some 1e-4.
    rtol=1e-3,
    mutants={
        "barrier-loaded": Mutant("no barrier between loading a tile and using it", "__syncthreads();  // loaded", ""),
        "barrier-used": Mutant("no barrier before the next tile is loaded", "__syncthreads();  // used", ""),
        "k-tail": Mutant("the k tile that is not full is left out", "start < k; start += TILE",
                         "start + TILE <= k; start += TILE"),
        "column-guard": Mutant("stores past the row's end into the next row", "if (row < m && column < n)",
                               "if (row < m)"),
        "square": Mutant("rows and columns exchanged in the guard", "if (row < m && column < n)",
                         "if (row < n && column < m)"),
        "tile-short": Mutant("the last product of each tile is left out", "i < TILE; ++i", "i < TILE - 1; ++i"),
        "k-guard": Mutant("no guard along k: the next row is multiplied with what lies behind b",
                          """row < m && p < k ? a[row * k + p] : 0.0f;
        b_tile[threadIdx.y][threadIdx.x] = q < k && column""", """row < m ? a[row * k + p] : 0.0f;
        b_tile[threadIdx.y][threadIdx.x] = column"""),
        "half": Mutant("products in half precision", "sum += a_tile[threadIdx.y][i] * b_tile[i][threadIdx.x]",
                       "sum += __half2float(__hmul(__float2half(a_tile[threadIdx.y][i]), "
                       "__float2half(b_tile[i][threadIdx.x])))"),
        "stride": Mutant("b is read with the stride of a", "b[q * n + column]", "b[q * k + column]"),
    },
)  # fmt: skip
