// A user's own kernel of `norm`: one thread for a row, as slow as it is plain.

#include "common.cuh"

extern "C" __global__ void own_norm(const float* input, const float* weight, float* roots, float* output, u8* scratch,
                                    int rows, int splits, int width, float eps) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) {
        return;
    }
    const float* x = input + (u64)row * width;
    float sum = 0.0f;
    for (int k = 0; k < width; k++) {
        sum += x[k] * x[k];
    }
    const float root = rsqrtf(sum / (float)width + eps);
    roots[row] = root;
    for (int k = 0; k < width; k++) {
        output[(u64)row * width + k] = round_bf16(x[k] * root * weight[k]);
    }
}
