// Copies from global to shared memory that run beside the thread which starts them: from compute capability 8.0 on. Before, each
// happens at once.
#pragma once
#include "common.cuh"

// The copies of one thread, up to MOST at a time, of 16 bytes each.
template <int MOST>
struct Copies {
#ifdef EMULATED
    // They happen as late as they may, and spoil their place as soon as they may.
    struct {
        u16* to;
        const u16* from;
    } waiting[MOST];
    int count = 0;
#endif

    // Copies to shared memory; zeros if nothing is there to copy.
    DEVICE void start(void* to, const void* from, bool is_there) {
#ifdef EMULATED
        if (count == MOST) emu::fail("more copies than a thread has room for");
        Pack<u16, 8> spoilt;
        for (u16& x : spoilt.e) x = 0x7fff;
        store_pack(static_cast<u16*>(to), spoilt);
        waiting[count++] = {static_cast<u16*>(to), is_there ? static_cast<const u16*>(from) : nullptr};
#elif __CUDA_ARCH__ >= 800
        const u32 at = static_cast<u32>(__cvta_generic_to_shared(to)), bytes = is_there ? 16 : 0;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(at), "l"(from), "r"(bytes) : "memory");
#else
        Pack<u16, 8> pack{};
        if (is_there) pack = load_pack<8>(static_cast<const u16*>(from));
        store_pack(static_cast<u16*>(to), pack);
#endif
    }

    // Waits for this thread's copies; other threads see them behind a barrier.
    DEVICE void wait() {
#ifdef EMULATED
        for (int i = 0; i < count; i++) {
            store_pack(waiting[i].to, waiting[i].from ? load_pack<8>(waiting[i].from) : Pack<u16, 8>{});
        }
        count = 0;
#elif __CUDA_ARCH__ >= 800
        asm volatile("cp.async.wait_all;" : : : "memory");
#endif
    }
};
