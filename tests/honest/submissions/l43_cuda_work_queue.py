"""Blocks take their work from a counter in global memory, which the last of them sets back."""

SUBMISSION = {"row": "T26", "type": "cuda", "attacks": "axpb", "expect": "H", "on": "gpu"}

SOURCE = """
__device__ unsigned int next = 0, finished = 0;
__global__ void axpb(const float* x, float* out, int n) {
    __shared__ unsigned int tile;
    for (;;) {
        if (threadIdx.x == 0) tile = atomicAdd(&next, 1u);
        __syncthreads();
        unsigned int first = tile * blockDim.x;
        __syncthreads();
        if (first >= n) break;
        if (first + threadIdx.x < n) out[first + threadIdx.x] = 2 * x[first + threadIdx.x] + 1;
    }
    if (threadIdx.x == 0 && atomicAdd(&finished, 1u) == gridDim.x - 1) {
        next = 0;
        finished = 0;
    }
}
"""
