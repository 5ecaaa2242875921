"""Matrix transposition in CUDA through a padded shared tile, four elements to a thread."""

from tests.backends.contracts import contract, scalar, tensor
from tests.mutants.corpus import Mutant, Original

ROWS, COLUMNS = 301, 170

ORIGINAL = Original(
    kernel_type="cuda",
    source="""
#define TILE 32
#define STEP 8

__global__ void transpose(const float* x, float* out, int rows, int columns) {
    __shared__ float tile[TILE][TILE + 1];
    int column = blockIdx.x * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += STEP) {
        int row = blockIdx.y * TILE + j;
        if (row < rows && column < columns) tile[j][threadIdx.x] = x[row * columns + column];
    }
    __syncthreads();
    int to_column = blockIdx.y * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += STEP) {
        int to_row = blockIdx.x * TILE + j;
        if (to_row < columns && to_column < rows) out[to_row * rows + to_column] = tile[threadIdx.x][j];
    }
}
""",
    reference="""
class Model(torch.nn.Module):
    def forward(self, x):
        return x.T.contiguous()
""",
    io=contract(
        tensor("x", ROWS, COLUMNS), tensor("out", COLUMNS, ROWS, role="output"),
        scalar("rows", ROWS), scalar("columns", COLUMNS),
        grid=["cdiv(columns, 32)", "cdiv(rows, 32)"], block=[32, 8],
    ),
    reference_io=contract(tensor("x", ROWS, COLUMNS)),
    atol=0.0,  # Nothing is computed.
    rtol=0.0,
    mutants={
        "barrier": Mutant("no barrier between filling the tile and reading it", "    __syncthreads();\n", ""),
        "not-transposed": Mutant("the tile itself is not transposed", "= tile[threadIdx.x][j]",
                                 "= tile[j][threadIdx.x]"),
        "square": Mutant("the output's stride is that of the input", "out[to_row * rows + to_column]",
                         "out[to_row * columns + to_column]"),
        "guards": Mutant("rows and columns exchanged in the second guard", "to_row < columns && to_column < rows",
                         "to_row < rows && to_column < columns"),
        "tail": Mutant("the last row is not read", "if (row < rows &&", "if (row < rows - 1 &&"),
        "block": Mutant("blocks stay where they are", "int to_column = blockIdx.y * TILE",
                        "int to_column = blockIdx.x * TILE"),
        "half-tile": Mutant("only half of the tile is written back", "int to_row = blockIdx.x * TILE + j;",
                            "int to_row = blockIdx.x * TILE + j % 16;"),
    },
)  # fmt: skip
