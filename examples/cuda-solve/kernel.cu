// A whole file, as it runs on one's own machine: the host function chooses the grid and launches.
#include <cuda_runtime.h>

__global__ void row_maximum(const float* x, float* y, int rows, int columns) {
    extern __shared__ float partial[];
    int row = blockIdx.x, thread = threadIdx.x;
    float most = -INFINITY;
    for (int column = thread; column < columns; column += blockDim.x) {
        most = fmaxf(most, x[(long)row * columns + column]);
    }
    partial[thread] = most;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (thread < half) partial[thread] = fmaxf(partial[thread], partial[thread + half]);
        __syncthreads();
    }
    if (thread == 0) y[row] = partial[0];
}

// x and y are pointers to memory of the device.
extern "C" void solve(const float* x, float* y, int rows, int columns) {
    int threads = columns < 256 ? 64 : 256;
    row_maximum<<<rows, threads, threads * sizeof(float)>>>(x, y, rows, columns);
}
