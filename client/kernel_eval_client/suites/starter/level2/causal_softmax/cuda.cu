// A block for each row, of which only the part before its own place is read.
extern "C" __global__ void causal_softmax(const float* scores, float* out, int length) {
    __shared__ float kept[128];
    size_t row = blockIdx.x;
    int last = row % length;
    float top = -INFINITY, sum = 0.0f;
    for (int i = threadIdx.x; i <= last; i += blockDim.x) top = fmaxf(top, scores[row * length + i] * 0.125f);
    kept[threadIdx.x] = top;
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) kept[threadIdx.x] = fmaxf(kept[threadIdx.x], kept[threadIdx.x + step]);
        __syncthreads();
    }
    top = kept[0];
    __syncthreads();
    for (int i = threadIdx.x; i <= last; i += blockDim.x) sum += expf(scores[row * length + i] * 0.125f - top);
    kept[threadIdx.x] = sum;
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) kept[threadIdx.x] += kept[threadIdx.x + step];
        __syncthreads();
    }
    for (int i = threadIdx.x; i < length; i += blockDim.x)
        out[row * length + i] = i <= last ? expf(scores[row * length + i] * 0.125f - top) / kept[0] : 0.0f;
}
