// SPDX-License-Identifier: Apache-2.0
// Rows too long for one multiprocessor, read once: a group of blocks holds a row in its shared memory, meets once to
// add up what each block knows of it, and writes it. While it meets, the next row is on its way into a second stage.
#include <cstdint>
#include <cuda_pipeline.h>

constexpr int THREADS = 1024, SOFTMAX = 0, RMS = 1, LAYER = 2;

struct Rows {
    float4 *out, *sum;              // LAYER writes x + residual into sum
    const float4 *x, *residual, *weight, *bias;
    int64_t rows;
    int wide, chunk, group, stages; // float4s of a row and of a block's part of it, blocks of a group, parts held
    float epsilon;
    float4* told;                   // what each block says of its part: [2][blocks]
    unsigned* met;                  // arrivals at each group's meetings so far
};

__device__ float all_of(float value, bool largest) {
    __shared__ float kept[32];
    for (int hop = 16; hop; hop >>= 1) {
        float other = __shfl_xor_sync(~0u, value, hop);
        value = largest ? fmaxf(value, other) : value + other;
    }
    if (threadIdx.x % 32 == 0) kept[threadIdx.x / 32] = value;
    __syncthreads();
    value = kept[threadIdx.x % 32];
    for (int hop = 16; hop; hop >>= 1) {
        float other = __shfl_xor_sync(~0u, value, hop);
        value = largest ? fmaxf(value, other) : value + other;
    }
    __syncthreads();
    return value;
}

__device__ float added(float4 a) { return (a.x + a.y) + (a.z + a.w); }
__device__ float4 scaled(float4 a, float f) { return make_float4(a.x * f, a.y * f, a.z * f, a.w * f); }
__device__ float4 times(float4 a, float4 b) { return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w); }
__device__ float4 plus(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }

__device__ void fetch(float4* stage, const float4* from, int count) {
    for (int i = threadIdx.x; i < count; i += THREADS) __pipeline_memcpy_async(stage + i, from + i, sizeof(float4));
}

// What this block tells of its part, and its part in `stage` made ready: (largest, sum), (sum of squares), or
// (elements, mean, squares about it).
template <int WHAT>
__device__ float4 told_of(float4* stage, int count) {
    float a = 0.0f, b = 0.0f;
    if (WHAT == SOFTMAX) {
        a = -INFINITY;
        for (int i = threadIdx.x; i < count; i += THREADS) {
            float4 v = stage[i];
            a = fmaxf(a, fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)));
        }
        a = all_of(a, true);
        for (int i = threadIdx.x; i < count; i += THREADS) {
            float4 v = plus(stage[i], make_float4(-a, -a, -a, -a));
            v = make_float4(__expf(v.x), __expf(v.y), __expf(v.z), __expf(v.w));
            stage[i] = v;
            b += added(v);
        }
        return make_float4(a, all_of(b, false), 0.0f, 0.0f);
    }
    if (WHAT == RMS) {
        for (int i = threadIdx.x; i < count; i += THREADS) a += added(times(stage[i], stage[i]));
        return make_float4(all_of(a, false), 0.0f, 0.0f, 0.0f);
    }
    for (int i = threadIdx.x; i < count; i += THREADS) a += added(stage[i]);
    float mean = all_of(a, false) / fmaxf(1.0f, 4.0f * count);
    for (int i = threadIdx.x; i < count; i += THREADS) {
        float4 away = plus(stage[i], make_float4(-mean, -mean, -mean, -mean));
        b += added(times(away, away));
    }
    return make_float4(4.0f * count, mean, all_of(b, false), 0.0f);
}

// All parts of a row together, in every thread: softmax (largest, sum), rms (sum of squares), layer (mean, variance).
template <int WHAT>
__device__ float2 together(const float4* told, int group) {
    float2 all = WHAT == SOFTMAX ? make_float2(-INFINITY, 0.0f) : make_float2(0.0f, 0.0f);
    float many = 0.0f;
    for (int i = 0; i < group; i++) {
        float4 one = __ldcg(told + i);
        if (WHAT == SOFTMAX) {
            float top = fmaxf(all.x, one.x);
            all = make_float2(top, all.y * __expf(all.x - top) + one.y * __expf(one.x - top));
        } else if (WHAT == RMS) {
            all.x += one.x;
        } else if (one.x > 0.0f) {
            float sum = many + one.x, gap = one.y - all.x;
            all = make_float2(all.x + gap * one.x / sum, all.y + one.z + gap * gap * many * one.x / sum);
            many = sum;
        }
    }
    return all;
}

__device__ void meet(unsigned* met, unsigned wanted, float4* place, float4 told) {
    if (threadIdx.x == 0) {
        __stcg(place, told);
        __threadfence();
        atomicAdd(met, 1u);
        unsigned seen;
        do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(met) : "memory");
        while (seen < wanted);
    }
    __syncthreads();
}

template <int WHAT>
__global__ void __launch_bounds__(THREADS) rows_of(Rows a) {
    extern __shared__ float4 stages[];
    int group = blockIdx.x / a.group, part = blockIdx.x % a.group, groups = gridDim.x / a.group;
    if (group >= groups) return;
    int first = part * a.chunk, count = max(0, min(a.chunk, a.wide - first));
    unsigned turn = 0;
    if (WHAT != LAYER && group < a.rows) fetch(stages, a.x + group * (int64_t)a.wide + first, count);
    __pipeline_commit();
    for (int64_t row = group; row < a.rows; row += groups, turn++) {
        int64_t at = row * a.wide + first;
        float4* stage = stages;
        if (WHAT == LAYER) {
#pragma unroll 4
            for (int i = threadIdx.x; i < count; i += THREADS) {
                float4 h = plus(__ldcs(a.x + at + i), __ldcs(a.residual + at + i));
                stage[i] = h;
                __stcs(a.sum + at + i, h);
            }
        } else {
            stage = stages + (turn % a.stages) * a.chunk;
            if (a.stages == 2 && row + groups < a.rows)
                fetch(stages + ((turn + 1) % 2) * a.chunk, a.x + at + groups * (int64_t)a.wide, count);
            if (a.stages == 2) {
                __pipeline_commit();
                __pipeline_wait_prior(1);
            } else {
                __pipeline_wait_prior(0);
            }
        }
        float4 told = told_of<WHAT>(stage, count);
        float4* board = a.told + (turn % 2) * gridDim.x + group * a.group;
        meet(a.met + group, (turn + 1) * a.group, board + part, told);
        float2 all = together<WHAT>(board, a.group);
        float n = 4.0f * a.wide;
        if (WHAT == SOFTMAX) {
            float factor = __expf(told.x - all.x) / all.y;
            for (int i = threadIdx.x; i < count; i += THREADS) __stcs(a.out + at + i, scaled(stage[i], factor));
        } else if (WHAT == RMS) {
            float factor = rsqrtf(all.x / n + a.epsilon);
            for (int i = threadIdx.x; i < count; i += THREADS)
                __stcs(a.out + at + i, times(scaled(stage[i], factor), __ldg(a.weight + first + i)));
        } else {
            float factor = rsqrtf(all.y / n + a.epsilon), mean = -all.x;
            for (int i = threadIdx.x; i < count; i += THREADS) {
                float4 away = scaled(plus(stage[i], make_float4(mean, mean, mean, mean)), factor);
                __stcs(a.out + at + i, plus(times(away, __ldg(a.weight + first + i)), __ldg(a.bias + first + i)));
            }
        }
        if (WHAT != LAYER && a.stages == 1) {  // each thread overwrites what it alone has read
            if (row + groups < a.rows) fetch(stages, a.x + at + groups * (int64_t)a.wide, count);
            __pipeline_commit();
        }
    }
}

// 0, or a CUDA error. `board` has room for 2 * blocks float4s and `blocks` counters behind them.
extern "C" int long_rows(int what, float* out, float* sum, const float* x, const float* residual, const float* weight,
                         const float* bias, int64_t rows, int64_t cols, int group, int blocks, int stages,
                         float epsilon, void* board, void* stream) {
    const void* kernels[] = {(const void*)rows_of<SOFTMAX>, (const void*)rows_of<RMS>, (const void*)rows_of<LAYER>};
    Rows a;
    a.out = (float4*)out, a.sum = (float4*)sum, a.x = (const float4*)x, a.residual = (const float4*)residual;
    a.weight = (const float4*)weight, a.bias = (const float4*)bias, a.rows = rows, a.wide = (int)(cols / 4);
    a.group = group, a.chunk = (a.wide + group - 1) / group, a.epsilon = epsilon;
    a.stages = stages, a.told = (float4*)board, a.met = (unsigned*)(a.told + 2 * blocks);
    size_t bytes = (size_t)a.chunk * sizeof(float4) * stages;
    cudaError_t bad = cudaFuncSetAttribute(kernels[what], cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    if (bad == cudaSuccess) bad = cudaMemsetAsync(a.met, 0, blocks * sizeof(unsigned), (cudaStream_t)stream);
    void* arguments[] = {&a};
    if (bad == cudaSuccess)
        bad = cudaLaunchCooperativeKernel(kernels[what], dim3(blocks), dim3(THREADS), arguments, bytes,
                                          (cudaStream_t)stream);
    return (int)bad;
}
