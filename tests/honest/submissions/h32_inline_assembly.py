"""Inline PTX: a load that does not stay in the L1."""

SUBMISSION = {"row": "H32", "type": "cuda", "attacks": "axpb", "expect": "H", "on": "gpu"}

SOURCE = """
__global__ void axpb(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float value;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(value) : "l"(x + i));
    out[i] = 2 * value + 1;
}
"""
