// All steps in one pass.
extern "C" __global__ void chain(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float y = fminf(fmaxf(x[i] * 2.0f + 1.0f, -1.0f), 3.0f);
    out[i] = y * y - 0.5f;
}
