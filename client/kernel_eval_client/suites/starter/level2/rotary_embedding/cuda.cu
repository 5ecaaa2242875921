// A pair for each thread.
extern "C" __global__ void rotate(
    const float* x, const float* cosine, const float* sine, float* out, int n, int length, int half) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int row = i / half, pair = i % half, angle = row % length * half + pair;
    const float* from = x + (size_t)row * 2 * half + pair;
    float* to = out + (size_t)row * 2 * half + pair;
    float first = from[0], second = from[half];
    to[0] = first * cosine[angle] - second * sine[angle];
    to[half] = second * cosine[angle] + first * sine[angle];
}
