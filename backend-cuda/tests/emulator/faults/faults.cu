// Kernels that are wrong on purpose, one kind each, and their right twins: what the emulator must find, and what it must
// leave alone.
#include "common.cuh"

#include "runtime.h"

struct Args {
    float* data;
};

// Every thread hands its neighbour a number: of the next warp, of its own.
template <bool Waits>
DEVICE void across_warps(const Args& a) {
    SHARED(float, values, THREADS);
    values[threadIdx.x] = a.data[threadIdx.x];
    if (Waits) __syncthreads();
    a.data[threadIdx.x] = values[(threadIdx.x + WARP) % THREADS];
}
template <bool Waits>
DEVICE void within_a_warp(const Args& a) {
    SHARED(float, values, THREADS);
    values[threadIdx.x] = a.data[threadIdx.x];
    if (Waits) {
        __syncwarp();
    } else {
        // It waits for the others, and says nothing of their memory.
        __shfl_xor_sync(ALL_LANES, 0, 1);
    }
    a.data[threadIdx.x] = values[threadIdx.x ^ 1];
}
// The room is used a second time.
template <bool Waits>
DEVICE void twice(const Args& a) {
    SHARED(float, values, THREADS);
    for (int turn = 0; turn < 2; turn++) {
        values[threadIdx.x] = a.data[threadIdx.x];
        __syncthreads();
        const float other = values[THREADS - 1 - threadIdx.x];
        if (Waits) __syncthreads();
        a.data[threadIdx.x] = other;
    }
}
// Two blocks work on the same elements, or on their own.
template <bool Own>
DEVICE void across_blocks(const Args& a) {
    a.data[Own ? thread_index() : threadIdx.x] = 1.0f;
}
template <bool All>
DEVICE void written_before(const Args& a) {
    SHARED(float, values, THREADS);
    if (All || threadIdx.x != 7) values[threadIdx.x] = 1.0f;
    __syncthreads();
    a.data[thread_index()] = values[threadIdx.x];
}
// Many say the same, or each something.
template <bool Marks>
DEVICE void one_flag(const Args& a) {
    if (Marks) {
        mark(a.data, 1.0f);
    } else {
        a.data[0] = 1.0f;
    }
}
template <bool Even>
DEVICE void in_packs(const Args& a) {
    if (threadIdx.x == 0) store_pack<4>(a.data + (Even ? 4 : 3), Pack<float, 4>{});
}

#define BOTH(kernel) \
    BLOCK_KERNEL(kernel##_wrong, Args, THREADS, kernel<false>) BLOCK_KERNEL(kernel##_right, Args, THREADS, kernel<true>)
BOTH(across_warps)
BOTH(within_a_warp)
BOTH(twice)
BOTH(across_blocks)
BOTH(written_before)
BOTH(one_flag)
BOTH(in_packs)

// Runs the kernel of that name; the emulator ends the process where it finds something.
int main(int, char** names) {
    const emu::Kernel* kernel = emu::find(names[1]);
    if (kernel == nullptr) return 2;
    static float data[2 * THREADS] __attribute__((aligned(16)));
    Args args{data};
    // Elements that both blocks read and write are another fault than the one within a block.
    const unsigned blocks = std::string(names[1]).rfind("across_blocks", 0) == 0 ? 2 : 1;
    emu::launch(*kernel, emu::Index{blocks, 1, 1}, THREADS, 0, &args);
    return 0;
}
