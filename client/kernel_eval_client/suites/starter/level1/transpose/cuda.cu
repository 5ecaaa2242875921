// Tiles of 32 by 32 in shared memory, a column wider so that no bank is met twice.
extern "C" __global__ void transpose(const float* x, float* out, int rows, int columns) {
    __shared__ float tile[32][33];
    int column = blockIdx.x * 32 + threadIdx.x;
    for (int i = threadIdx.y; i < 32; i += 8) {
        int row = blockIdx.y * 32 + i;
        if (row < rows && column < columns) tile[i][threadIdx.x] = x[(size_t)row * columns + column];
    }
    __syncthreads();
    int to = blockIdx.y * 32 + threadIdx.x;
    for (int i = threadIdx.y; i < 32; i += 8) {
        int from = blockIdx.x * 32 + i;
        if (to < rows && from < columns) out[(size_t)from * rows + to] = tile[threadIdx.x][i];
    }
}
