// A block for each row; the sum is written on the way and read again from the cache.
extern "C" __global__ void residual_rms_norm(
    const float* x, const float* residual, const float* weight, float* out, float* kept, int width) {
    __shared__ float sums[256];
    size_t row = (size_t)blockIdx.x * width;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        float value = x[row + i] + residual[row + i];
        kept[row + i] = value;
        sum += value * value;
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
        __syncthreads();
    }
    float scale = rsqrtf(sums[0] / width + 1e-6f);
    for (int i = threadIdx.x; i < width; i += blockDim.x) out[row + i] = kept[row + i] * scale * weight[i];
}
