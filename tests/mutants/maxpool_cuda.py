"""Max pooling in CUDA, 3 by 3 with stride 2 and padding, over values that are all negative, some of them NaN."""

from tests.backends.contracts import contract, scalar, tensor
from tests.mutants.corpus import Mutant, Original

PLANES, HEIGHT, WIDTH = 12, 33, 50
OUT_HEIGHT, OUT_WIDTH = 17, 25

ORIGINAL = Original(
    kernel_type="cuda",
    source="""
__global__ void max_pool(const float* x, float* out, int planes, int height, int width, int out_height, int out_width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= planes * out_height * out_width) return;
    int column = i % out_width, row = i / out_width % out_height, plane = i / (out_width * out_height);
    float best = -INFINITY;
    for (int r = row * 2 - 1; r < row * 2 + 2; ++r) {
        for (int c = column * 2 - 1; c < column * 2 + 2; ++c) {
            if (r < 0 || r >= height || c < 0 || c >= width) continue;
            float value = x[(plane * height + r) * width + c];
            if (value > best || isnan(value)) best = value;
        }
    }
    out[i] = best;
}
""",
    reference=f"""
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.max_pool2d(x, 3, stride=2, padding=1)

def get_inputs():
    x = -torch.rand({PLANES}, {HEIGHT}, {WIDTH}) - 1
    x[0, 10, 10] = float("nan")
    return [x]
""",
    io=contract(
        tensor("x", PLANES, HEIGHT, WIDTH), tensor("out", PLANES, OUT_HEIGHT, OUT_WIDTH, role="output"),
        scalar("planes", PLANES), scalar("height", HEIGHT), scalar("width", WIDTH),
        scalar("out_height", OUT_HEIGHT), scalar("out_width", OUT_WIDTH),
        grid="cdiv(planes * out_height * out_width, 256)", block=256,
    ),
    atol=0.0,  # Nothing is computed.
    rtol=0.0,
    mutants={
        "start-zero": Mutant("the maximum begins at zero", "best = -INFINITY", "best = 0.0f"),
        "start-tiny": Mutant("begins at the smallest positive number, taken for the lowest", "best = -INFINITY",
                             "best = 1.17549435e-38f"),
        "zero-padding": Mutant("the padding is zero", "continue;", "{ best = fmaxf(best, 0.0f); continue; }"),
        "nan": Mutant("a NaN is passed over", "if (value > best || isnan(value)) best = value",
                      "best = fmaxf(best, value)"),
        "window": Mutant("the window's last column is left out", "c < column * 2 + 2", "c < column * 2 + 1"),
        "no-padding": Mutant("the window begins a row too low", "r = row * 2 - 1; r < row * 2 + 2",
                             "r = row * 2; r < row * 2 + 3"),
        "sides": Mutant("height and width exchanged in the guard", "r >= height || c < 0 || c >= width",
                        "r >= width || c < 0 || c >= height"),
        "last-row": Mutant("the last input row is left out", "r >= height ||", "r >= height - 1 ||"),
    },
)  # fmt: skip
