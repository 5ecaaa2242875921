// All steps in one pass over the elements.
extern "C" __global__ void gelu(const float* x, float* out, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float value = x[i];
        out[i] = 0.5f * value * (1.0f + erff(value * 0.70710678f));
    }
}
