// A block for each row.
extern "C" __global__ void rms_norm(const float* x, const float* weight, float* out, int width) {
    __shared__ float sums[256];
    const float* row = x + (size_t)blockIdx.x * width;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < width; i += blockDim.x) sum += row[i] * row[i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
        __syncthreads();
    }
    float scale = rsqrtf(sums[0] / width + 1e-6f);
    for (int i = threadIdx.x; i < width; i += blockDim.x) out[(size_t)blockIdx.x * width + i] = row[i] * scale * weight[i];
}
