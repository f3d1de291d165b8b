// SPDX-License-Identifier: Apache-2.0
// The source of handover.ptx, which any driver from CUDA 11 on compiles for any device from compute capability 7.0 on:
//     nvcc -ptx -arch=sm_75 handover.cu -o handover.ptx
// and `.version 7.0`, `.target sm_70` in its head: nvcc 13 writes newer ones, of which nothing here makes use. And of
// handover.fatbin, what devices of today run as it is:
//     nvcc -fatbin -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90
//         -gencode arch=compute_100,code=sm_100 -gencode arch=compute_120,code=sm_120 handover.cu -o handover.fatbin

struct Hidden {  // words of one input of one call, `step` bytes apart, and the keys that make them what they are
    char* words;
    const char* keys;
    long long count, step, unit;
};

struct Answer {  // one output of one call, and where the host reads the sum of its words
    const char* words;
    long long* told;
    long long count, unit;
};

// Blocks of 256 threads. Until the judge has handed over call `number` they wait, each by one thread that reads the
// host's memory: a stream that waits for a value (cuStreamWaitValue32) is put aside and looked at again 20 to 200 us
// later, more beside other processes.
extern "C" __global__ void hand_over(const volatile int* released, int number, const Hidden* hidden, int inputs) {
    if (threadIdx.x == 0)
        while (*released < number) {}
    __syncthreads();
    __threadfence_system();
    const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x, all = (long long)gridDim.x * blockDim.x;
    for (int input = 0; input < inputs; ++input) {
        const Hidden one = hidden[input];
        for (long long i = first; i < one.count; i += all)
            if (one.unit == 4)
                *(int*)(one.words + i * one.step) ^= ((const volatile int*)one.keys)[i];
            else
                one.words[i * one.step] ^= ((const volatile char*)one.keys)[i];
    }
}

// Blocks of 256 threads add up the words of every answer of call `number`; the last of them to be done tells the host.
// `sums` holds a number for each answer and how many blocks are done: zeros before and after.
extern "C" __global__ void answered(volatile int* said, int number, const Answer* answers, int outputs,
                                    unsigned long long* sums) {
    __shared__ unsigned long long parts[8];
    __shared__ bool last;
    const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x, all = (long long)gridDim.x * blockDim.x;
    for (int output = 0; output < outputs; ++output) {
        const Answer one = answers[output];
        long long sum = 0;
        if (one.unit == 4)
            for (long long i = first; i < one.count; i += all) sum += ((const int*)one.words)[i];
        else
            for (long long i = first; i < one.count; i += all) sum += ((const unsigned char*)one.words)[i];
        for (int apart = 16; apart; apart /= 2) sum += __shfl_down_sync(~0u, sum, apart);
        if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int warp = 1; warp < 8; ++warp) sum += parts[warp];
            atomicAdd(&sums[output], (unsigned long long)sum);
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(&sums[outputs], 1ull) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last || threadIdx.x) return;
    __threadfence();
    for (int output = 0; output < outputs; ++output)
        *(volatile long long*)answers[output].told = (long long)atomicExch(&sums[output], 0ull);
    sums[outputs] = 0;
    __threadfence_system();
    *said = number;
}
