// A block for each row: first the maximum, then the sum.
extern "C" __global__ void log_sum_exp(const float* x, float* out, int width) {
    __shared__ float kept[256];
    const float* row = x + (size_t)blockIdx.x * width;
    float top = -INFINITY, sum = 0.0f;
    for (int i = threadIdx.x; i < width; i += blockDim.x) top = fmaxf(top, row[i]);
    kept[threadIdx.x] = top;
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) kept[threadIdx.x] = fmaxf(kept[threadIdx.x], kept[threadIdx.x + step]);
        __syncthreads();
    }
    top = kept[0];
    __syncthreads();
    for (int i = threadIdx.x; i < width; i += blockDim.x) sum += expf(row[i] - top);
    kept[threadIdx.x] = sum;
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) kept[threadIdx.x] += kept[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = top + logf(kept[0]);
}
