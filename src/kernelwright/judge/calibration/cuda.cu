// SPDX-License-Identifier: Apache-2.0
// Micro-kernels that show what a CUDA device can do at most: arithmetic chains, shared memory, dependent loads, atomics.
// Each writes something that depends on its work, so that none of it can be optimised away.
#include <cstdint>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define CHAINS 8

template <typename T> __device__ T fused(T a, T b, T c) { return a * b + c; }
template <> __device__ float fused(float a, float b, float c) { return fmaf(a, b, c); }
template <> __device__ double fused(double a, double b, double c) { return fma(a, b, c); }
template <> __device__ __half2 fused(__half2 a, __half2 b, __half2 c) { return __hfma2(a, b, c); }

template <typename T> __global__ void chains(T* out, T seed, T factor, int trips) {
    T v[CHAINS];
#pragma unroll
    for (int k = 0; k < CHAINS; k++) v[k] = seed;
    for (int t = 0; t < trips; t++) {
#pragma unroll
        for (int r = 0; r < 8; r++)
#pragma unroll
            for (int k = 0; k < CHAINS; k++) v[k] = fused(v[k], factor, seed);
    }
    T sum = v[0];
#pragma unroll
    for (int k = 1; k < CHAINS; k++) sum = fused(v[k], factor, sum);
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

__global__ void shared_reads(float* out, int stride, int trips) {
    __shared__ float data[8192];
    for (int i = threadIdx.x; i < 8192; i += blockDim.x) data[i] = (float)i;
    __syncthreads();
    const volatile float* mine = data;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float sum = 0;
    for (int t = 0; t < trips; t++) {
        int base = (warp * 32 + t * 8) & 1023;
#pragma unroll
        for (int k = 0; k < 8; k++) sum += mine[(lane * stride + base + k * 1024) & 8191];
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

__global__ void follow(int64_t* out, const int64_t* chain, int64_t steps) {
    int64_t at = 0;
    for (int64_t k = 0; k < steps; k++) at = chain[at];
    *out = at;
}

__global__ void follow_shared(int64_t* out, int64_t steps) {
    __shared__ int32_t chain[1024];
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) chain[i] = (i + 33) & 1023;
    __syncthreads();
    int32_t at = 0;
    if (threadIdx.x == 0) {
        for (int64_t k = 0; k < steps; k++) at = ((volatile int32_t*)chain)[at];
        *out = at;
    }
}

__global__ void adds(unsigned* to, unsigned apart, int trips) {
    unsigned id = blockIdx.x * blockDim.x + threadIdx.x;
    for (int t = 0; t < trips; t++) atomicAdd(to + (apart ? (size_t)id * apart : 0), id + t);
}

__global__ void adds_float(float* to, int trips) {
    for (int t = 0; t < trips; t++) atomicAdd(to, 1.0f);
}

__global__ void reads(float* out, const float4* data, int64_t count, int repeats) {
    int64_t share = count / gridDim.x;
    const float4* mine = data + share * blockIdx.x;
    float4 sum = {0, 0, 0, 0};
    for (int r = 0; r < repeats; r++) {
#pragma unroll 8
        for (int64_t i = threadIdx.x; i < share; i += blockDim.x) {
            float4 v;
            asm volatile("ld.global.v4.f32 {%0,%1,%2,%3}, [%4];"
                         : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(mine + i));
            sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
        }
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum.x + sum.y + sum.z + sum.w;
}

// Four 16-byte loads in flight a thread, every byte once, a tile of its own for each block: what a good kernel does.
__device__ float4 streamed(const float4* at) {
    float4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(at));
    return v;
}

__global__ void read_tiles(float* out, const float4* data) {
    const float4* mine = data + blockIdx.x * (int64_t)blockDim.x * 4 + threadIdx.x;
    float4 v[4];
#pragma unroll
    for (int k = 0; k < 4; k++) v[k] = streamed(mine + k * blockDim.x);
    float sum = 0;
#pragma unroll
    for (int k = 0; k < 4; k++) sum += v[k].x + v[k].y + v[k].z + v[k].w;
    if (sum == -1.0f) *out = sum;  // never: the data is positive, which the compiler does not know
}

__global__ void copy_tiles(float4* to, const float4* data) {
    int64_t base = blockIdx.x * (int64_t)blockDim.x * 4 + threadIdx.x;
    float4 v[4];
#pragma unroll
    for (int k = 0; k < 4; k++) v[k] = streamed(data + base + k * blockDim.x);
#pragma unroll
    for (int k = 0; k < 4; k++) __stcs(to + base + k * blockDim.x, v[k]);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
__global__ void __cluster_dims__(2, 1, 1) other_shared(float* out, int trips) {
    __shared__ float data[4096];
    for (int i = threadIdx.x; i < 4096; i += blockDim.x) data[i] = (float)i;
    unsigned rank, remote, mine = (unsigned)__cvta_generic_to_shared(data);
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(mine), "r"(rank ^ 1));
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
    float sum = 0;
    for (int t = 0; t < trips; t++) {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float4 v;
            unsigned at = remote + (((threadIdx.x + t * 32 + k * 256) & 1023) << 4);
            asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];"
                         : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(at));
            sum += v.x + v.y + v.z + v.w;
        }
    }
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

__global__ void dpx(int* out, int seed, int trips) {
    int v[CHAINS];
#pragma unroll
    for (int k = 0; k < CHAINS; k++) v[k] = seed + k;
    for (int t = 0; t < trips; t++) {
#pragma unroll
        for (int r = 0; r < 8; r++)
#pragma unroll
            for (int k = 0; k < CHAINS; k++) v[k] = __viaddmax_s32(v[k], seed, t - v[k]);
    }
    int sum = 0;
#pragma unroll
    for (int k = 0; k < CHAINS; k++) sum += v[k];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
#else
__global__ void other_shared(float* out, int trips) {}
__global__ void dpx(int* out, int seed, int trips) {}
#endif

__global__ void empty() {}

// More values are alive at once than a thread can have registers: the compiler gives it all there are.
__global__ void hungry(volatile float* data) {
    float held[384];
#pragma unroll
    for (int k = 0; k < 384; k++) held[k] = data[k];
#pragma unroll
    for (int k = 0; k < 384; k++) data[k] = held[383 - k];
}

extern "C" {
int thread_registers() {
    cudaFuncAttributes about;
    int status = cudaFuncGetAttributes(&about, hungry);
    return status ? -status : about.numRegs;
}
int run_empty(int times) {
    for (int k = 0; k < times; k++) empty<<<1, 32>>>();
    return cudaGetLastError();
}
int run_f32(void* out, int blocks, int threads, int trips) {
    chains<float><<<blocks, threads>>>((float*)out, 1.0f, 0.5f, trips);
    return cudaGetLastError();
}
int run_f64(void* out, int blocks, int threads, int trips) {
    chains<double><<<blocks, threads>>>((double*)out, 1.0, 0.5, trips);
    return cudaGetLastError();
}
int run_f16(void* out, int blocks, int threads, int trips) {
    chains<__half2><<<blocks, threads>>>((__half2*)out, __float2half2_rn(1.0f), __float2half2_rn(0.5f), trips);
    return cudaGetLastError();
}
int run_dpx(void* out, int blocks, int threads, int trips) {
    dpx<<<blocks, threads>>>((int*)out, 3, trips);
    return cudaGetLastError();
}
int run_shared(void* out, int blocks, int threads, int stride, int trips) {
    shared_reads<<<blocks, threads>>>((float*)out, stride, trips);
    return cudaGetLastError();
}
int run_other_shared(void* out, int blocks, int threads, int trips) {
    other_shared<<<blocks, threads>>>((float*)out, trips);
    return cudaGetLastError();
}
int run_follow(void* out, const void* chain, int64_t steps) {
    follow<<<1, 1>>>((int64_t*)out, (const int64_t*)chain, steps);
    return cudaGetLastError();
}
int run_follow_shared(void* out, int64_t steps) {
    follow_shared<<<1, 32>>>((int64_t*)out, steps);
    return cudaGetLastError();
}
int run_adds(void* to, int blocks, int threads, int apart, int trips) {
    adds<<<blocks, threads>>>((unsigned*)to, apart, trips);
    return cudaGetLastError();
}
int run_adds_float(void* to, int blocks, int threads, int trips) {
    adds_float<<<blocks, threads>>>((float*)to, trips);
    return cudaGetLastError();
}
int run_reads(void* out, const void* data, int64_t bytes, int blocks, int threads, int repeats) {
    reads<<<blocks, threads>>>((float*)out, (const float4*)data, bytes / 16, repeats);
    return cudaGetLastError();
}
int run_read_tiles(void* out, const void* data, int64_t bytes) {
    read_tiles<<<bytes / (16 * 1024), 256>>>((float*)out, (const float4*)data);
    return cudaGetLastError();
}
int run_copy_tiles(void* to, const void* data, int64_t bytes) {
    copy_tiles<<<bytes / (16 * 1024), 256>>>((float4*)to, (const float4*)data);
    return cudaGetLastError();
}
}
