"""Four elements to a thread in a grid-stride loop, the rest one by one."""

SUBMISSION = {"row": "L42", "type": "cuda", "attacks": "axpb", "expect": "H", "on": "gpu"}

SOURCE = """
__global__ void axpb(const float* __restrict__ x, float* __restrict__ out, int n) {
    int threads = gridDim.x * blockDim.x, thread = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = thread; i < n / 4; i += threads) {
        float4 v = __ldg(reinterpret_cast<const float4*>(x) + i);
        reinterpret_cast<float4*>(out)[i] = make_float4(2 * v.x + 1, 2 * v.y + 1, 2 * v.z + 1, 2 * v.w + 1);
    }
    for (int i = n / 4 * 4 + thread; i < n; i += threads) out[i] = 2 * x[i] + 1;
}
"""
