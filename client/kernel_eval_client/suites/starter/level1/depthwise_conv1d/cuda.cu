// An output for each thread.
extern "C" __global__ void fold(const float* x, const float* taps, float* out, int channels, int length, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= length) return;
    size_t line = blockIdx.y;
    float sum = 0.0f;
    for (int tap = 0; tap < count; ++tap) {
        int place = i + tap - count / 2;
        if (place >= 0 && place < length) sum += x[line * length + place] * taps[line % channels * count + tap];
    }
    out[line * length + i] = sum;
}
