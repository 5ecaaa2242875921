"""Its host function has a stream of its own, and waits for the device before it returns, as published files do."""

SUBMISSION = {
    "row": "L92",
    "type": "cuda",
    "attacks": "axpb",
    "expect": "H",
    "on": "gpu",
    "metadata": {"entry_point": "solve"},
}

SOURCE = """
#include <cuda_runtime.h>

__global__ void axpb(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * x[i] + 1;
}

extern "C" void solve(const float* x, float* out, int n) {
    static cudaStream_t own = nullptr;
    if (!own) cudaStreamCreate(&own);
    axpb<<<(n + 255) / 256, 256, 0, own>>>(x, out, n);
    cudaDeviceSynchronize();
}
"""
