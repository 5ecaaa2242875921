// A block for each row; the maximum and the sum are kept up together in one pass.
__device__ void join(float& top, float& sum, float other_top, float other_sum) {
    float both = fmaxf(top, other_top);
    if (both == -INFINITY) return;
    sum = sum * expf(top - both) + other_sum * expf(other_top - both);
    top = both;
}

extern "C" __global__ void softmax(const float* x, float* out, int width) {
    __shared__ float tops[256], sums[256];
    const float* row = x + (size_t)blockIdx.x * width;
    float top = -INFINITY, sum = 0.0f;
    for (int i = threadIdx.x; i < width; i += blockDim.x) join(top, sum, row[i], 1.0f);
    tops[threadIdx.x] = top;
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) join(tops[threadIdx.x], sums[threadIdx.x], tops[threadIdx.x + step], sums[threadIdx.x + step]);
        __syncthreads();
    }
    for (int i = threadIdx.x; i < width; i += blockDim.x)
        out[(size_t)blockIdx.x * width + i] = expf(row[i] - tops[0]) / sums[0];
}
