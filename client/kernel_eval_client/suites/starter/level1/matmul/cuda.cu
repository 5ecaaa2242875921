// Tiles of 16 by 16 in shared memory.
extern "C" __global__ void matmul(const float* a, const float* b, float* out, int m, int n, int k) {
    __shared__ float left[16][16], right[16][16];
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0.0f;
    for (int start = 0; start < k; start += 16) {
        int x = start + threadIdx.x, y = start + threadIdx.y;
        left[threadIdx.y][threadIdx.x] = row < m && x < k ? a[row * k + x] : 0.0f;
        right[threadIdx.y][threadIdx.x] = y < k && column < n ? b[y * n + column] : 0.0f;
        __syncthreads();
        for (int i = 0; i < 16; ++i) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
        __syncthreads();
    }
    if (row < m && column < n) out[row * n + column] = sum;
}
