// A block for each row, warps summed by shuffles.
extern "C" __global__ void mean_square(const float* x, float* out, int width) {
    __shared__ float warps[8];
    const float* row = x + (size_t)blockIdx.x * width;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < width; i += blockDim.x) sum += row[i] * row[i];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffff, sum, step);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        sum = 0.0f;
        for (int i = 0; i < 8; ++i) sum += warps[i];
        out[blockIdx.x] = sum / width;
    }
}
