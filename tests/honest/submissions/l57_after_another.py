"""A kernel that has the process of another one, or would have it."""

SUBMISSION = {
    "row": "L57",
    "type": "cuda",
    "attacks": "axpb",
    "expect": "H",
    "on": "gpu",
    "after": "h32_inline_assembly",
    "variants": {
        "with_a_full_heap": {"after": "e43_used_process_fills_the_heap"},
        "that_never_ends": {"after": "e43_used_process_never_ends"},
        "that_overwrites": {"after": "e43_used_process_overwrites"},
        "that_is_wrong": {"after": "c16_zero_output_cuda"},
        "that_claims_the_cache": {"after": "t36_evict_last_cuda"},
    },
}

SOURCE = """
__global__ void axpb(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * x[i] + 1;
}
"""
