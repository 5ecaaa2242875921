// All three sums in one pass over both rows.
extern "C" __global__ void cosine(const float* a, const float* b, float* out, int width) {
    __shared__ float sums[3][8];
    const float *left = a + (size_t)blockIdx.x * width, *right = b + (size_t)blockIdx.x * width;
    float found[3] = {0.0f, 0.0f, 0.0f};
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        found[0] += left[i] * left[i];
        found[1] += right[i] * right[i];
        found[2] += left[i] * right[i];
    }
    for (int which = 0; which < 3; ++which) {
        for (int step = 16; step > 0; step /= 2) found[which] += __shfl_down_sync(0xffffffff, found[which], step);
        if (threadIdx.x % 32 == 0) sums[which][threadIdx.x / 32] = found[which];
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        float total[3] = {0.0f, 0.0f, 0.0f};
        for (int which = 0; which < 3; ++which)
            for (int i = 0; i < 8; ++i) total[which] += sums[which][i];
        out[blockIdx.x] = total[2] / (fmaxf(sqrtf(total[0]), 1e-8f) * fmaxf(sqrtf(total[1]), 1e-8f));
    }
}
