"""Stages its tile in shared memory, with constants of its own."""

SUBMISSION = {"row": "L44", "type": "cuda", "attacks": "axpb", "expect": "H", "on": "gpu"}

SOURCE = """
__constant__ float factors[2] = {2.0f, 1.0f};
__global__ void axpb(const float* x, float* out, int n) {
    __shared__ float tile[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) tile[threadIdx.x] = x[i];
    __syncthreads();
    if (i < n) out[i] = factors[0] * tile[threadIdx.x] + factors[1];
}
"""
