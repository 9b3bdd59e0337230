// Fibres, barriers and launches: see emulator.h.
#include "emulator.h"
#include "runtime.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <vector>

emu::Index threadIdx, blockIdx, blockDim, gridDim;

extern "C" void emu_switch(void** save, void* to);

#if !defined(__x86_64__)
#error "the emulator's fibres are written for x86-64"
#endif
// Callee-saved registers go onto the stack that is left, and come from the one that is entered.
asm(R"(.text
.globl emu_switch
.type emu_switch,@function
emu_switch:
 push %rbp
 push %rbx
 push %r12
 push %r13
 push %r14
 push %r15
 mov %rsp,(%rdi)
 mov %rsi,%rsp
 pop %r15
 pop %r14
 pop %r13
 pop %r12
 pop %rbx
 pop %rbp
 ret
.size emu_switch,.-emu_switch
)");

namespace emu {
namespace {

constexpr size_t STACK_BYTES = 128 << 10;
constexpr size_t PAGE_BYTES = 4096;
constexpr unsigned MAX_THREADS = 1024;
constexpr unsigned LANES = 32;
constexpr int POISON = 0xFF;

enum class State { Ready, AtWarpBarrier, AtBlockBarrier, Done };

struct Fibre {
    void* sp = nullptr;
    State state = State::Done;
    // Which of the two exchange buffers comes next: a shuffle then needs one barrier, not two.
    unsigned turn = 0;
    // How many barriers it has passed.
    unsigned block_barriers = 0, warp_barriers = 0;
};

struct Range {
    const char* begin;
    size_t bytes;
    bool has(const void* at) const { return static_cast<const char*>(at) - begin < static_cast<ptrdiff_t>(bytes) && at >= begin; }
};

std::map<std::string, Kernel>& kernels() {
    static std::map<std::string, Kernel> all;
    return all;
}

Fibre fibres[MAX_THREADS];
uint64_t exchanged[2][MAX_THREADS];
// What lanes show; the buffer of the last turn.
uint64_t showing[2][MAX_THREADS][3];
char* stacks = nullptr;
void* scheduler = nullptr;
unsigned current = 0;
const Kernel* running = nullptr;
const void* argument = nullptr;
// Counts blocks: what a shared array was last poisoned for.
unsigned block_number = 0, first_of_launch = 0;
std::map<void*, unsigned> poisoned;
// The arrays that the running kernel shares.
std::vector<Range> shared;
std::vector<char> dynamic;

unsigned end_of_warp(unsigned first) { return std::min(blockDim.x, first + LANES); }

void set_current(unsigned thread) {
    current = thread;
    threadIdx = Index{thread, 0, 0};
}

// Goes straight on with the warp's next lane that is ready; after the last one the scheduler decides. So a barrier of the warp takes one
// switch a lane, and one to the scheduler. The host predicts it well: every lane goes on behind the same call.
void leave(State state) {
    Fibre& fibre = fibres[current];
    fibre.state = state;
    const unsigned end = end_of_warp(current / LANES * LANES);
    for (unsigned t = current + 1; t < end; t++) {
        if (fibres[t].state != State::Ready) continue;
        set_current(t);
        return emu_switch(&fibre.sp, fibres[t].sp);
    }
    emu_switch(&fibre.sp, scheduler);
}

void enter() {
    running->run(argument);
    leave(State::Done);
}

void start(unsigned thread) {
    Fibre& fibre = fibres[thread];
    // Stacks that all began at the same place of a page would share a few lines of the host's cache.
    char* top = stacks + (thread + 1) * STACK_BYTES - thread % 64 * 192;
    void** sp = reinterpret_cast<void**>(top);
    *--sp = nullptr;
    *--sp = reinterpret_cast<void*>(enter);
    for (int i = 0; i < 6; i++) *--sp = nullptr;
    fibre = Fibre{sp, State::Ready};
}

// Runs this lane, and those behind it in its warp that are ready.
void resume(unsigned thread) {
    set_current(thread);
    emu_switch(&scheduler, fibres[thread].sp);
}

// Runs a warp until all its lanes are done or wait for the block.
void run_warp(unsigned first) {
    const unsigned end = end_of_warp(first);
    for (;;) {
        unsigned waiting = 0, live = 0;
        for (unsigned t = first; t < end; t++) {
            if (fibres[t].state == State::Ready) resume(t);
            live += fibres[t].state != State::Done;
            waiting += fibres[t].state == State::AtWarpBarrier;
        }
        if (waiting == 0) return;
        if (waiting != live) fail("some lanes wait for their warp while others wait for the block");
        for (unsigned t = first; t < end; t++) {
            if (fibres[t].state == State::AtWarpBarrier) fibres[t].state = State::Ready;
        }
    }
}

void run_block(unsigned threads) {
    for (unsigned t = 0; t < threads; t++) start(t);
    const unsigned warps = (threads + LANES - 1) / LANES;
    for (;;) {
        // Backwards every other block: an order that a kernel relies upon is no order.
        for (unsigned i = 0; i < warps; i++) {
            const unsigned warp = block_number % 2 ? warps - 1 - i : i;
            run_warp(warp * LANES);
        }
        unsigned waiting = 0, done = 0;
        for (unsigned t = 0; t < threads; t++) {
            waiting += fibres[t].state == State::AtBlockBarrier;
            done += fibres[t].state == State::Done;
        }
        if (done == threads) return;
        if (waiting + done != threads) fail("threads are neither done nor at the barrier");
        if (done > 0) fail("some threads ended while others wait at the block's barrier");
        for (unsigned t = 0; t < threads; t++) fibres[t].state = State::Ready;
    }
}

void run_flat(unsigned threads) {
    for (unsigned t = 0; t < threads; t++) {
        threadIdx = Index{t, 0, 0};
        running->run(argument);
    }
}

void make_stacks() {
    if (stacks != nullptr) return;
    const size_t bytes = MAX_THREADS * STACK_BYTES;
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) fail("no memory for stacks");
    stacks = static_cast<char*>(at);
    // The lowest page of each stack is a guard.
    for (unsigned t = 0; t < MAX_THREADS; t++) mprotect(stacks + t * STACK_BYTES, PAGE_BYTES, PROT_NONE);
}

}  // namespace

void add(const Kernel& kernel) { kernels()[kernel.name] = kernel; }

const Kernel* find(const char* name) {
    const auto at = kernels().find(name);
    return at == kernels().end() ? nullptr : &at->second;
}

size_t count() { return kernels().size(); }

const char* name_of(size_t index) {
    auto at = kernels().begin();
    std::advance(at, static_cast<long>(index));
    return at->first.c_str();
}

void fail(const char* what) {
    std::fprintf(stderr, "emulator: kernel %s, block (%u, %u, %u), thread %u: %s\n", running ? running->name : "none",
                 blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, what);
    std::abort();
}

void block_barrier() {
    if (running->flat) fail("a flat kernel has a barrier");
    leave(State::AtBlockBarrier);
    fibres[current].block_barriers++;
}

// What shuffles wait for; it orders no memory.
static void meet_warp() {
    if (running->flat) fail("a flat kernel waits for its warp");
    leave(State::AtWarpBarrier);
}

void warp_barrier() {
    meet_warp();
    fibres[current].warp_barriers++;
}

Moment now() {
    const auto thread = static_cast<unsigned short>(threadIdx.x);
    if (running->flat) return Moment{block_number, 0, 0, thread};
    return Moment{block_number, fibres[current].block_barriers, fibres[current].warp_barriers, thread};
}

unsigned first_block() { return first_of_launch; }

bool is_shared(const void* at) {
    if (!dynamic.empty() && Range{dynamic.data(), dynamic.size()}.has(at)) return true;
    return std::any_of(shared.begin(), shared.end(), [at](const Range& range) { return range.has(at); });
}

bool is_stack(const void* at) {
    // What runs when the library is loaded is no kernel.
    if (running == nullptr) return true;
    // A flat kernel stands on the host's stack, a little above this very function.
    if (running->flat) return Range{static_cast<const char*>(__builtin_frame_address(0)), 1 << 20}.has(at);
    return Range{stacks, MAX_THREADS * STACK_BYTES}.has(at);
}

uint64_t exchange(uint64_t mine, unsigned source) {
    const unsigned me = current, turn = fibres[me].turn;
    fibres[me].turn ^= 1;
    exchanged[turn][me] = mine;
    meet_warp();
    const unsigned from = me / LANES * LANES + source;
    if (from >= blockDim.x) fail("a shuffle reads a lane that does not exist");
    return exchanged[turn][from];
}

void show(uint64_t one, uint64_t two, uint64_t three) {
    const unsigned me = current, turn = fibres[me].turn;
    fibres[me].turn ^= 1;
    uint64_t* own = showing[turn][me];
    own[0] = one;
    own[1] = two;
    own[2] = three;
    meet_warp();
}

uint64_t shown(unsigned lane, unsigned which) {
    const unsigned from = current / LANES * LANES + lane;
    if (from >= blockDim.x) fail("a lane is looked at that does not exist");
    return showing[fibres[current].turn ^ 1][from][which];
}

unsigned ballot(bool holds) {
    const unsigned me = current, turn = fibres[me].turn, first = me / LANES * LANES;
    fibres[me].turn ^= 1;
    exchanged[turn][me] = holds;
    meet_warp();
    unsigned bits = 0;
    for (unsigned lane = 0; lane < LANES && first + lane < blockDim.x; lane++) {
        bits |= static_cast<unsigned>(exchanged[turn][first + lane]) << lane;
    }
    return bits;
}

void* fresh(void* array, size_t bytes) {
    unsigned& last = poisoned[array];
    if (last < first_of_launch) shared.push_back(Range{static_cast<const char*>(array), bytes});
    if (last != block_number) {
        last = block_number;
        std::memset(array, POISON, bytes);
    }
    return array;
}

void* dynamic_shared() { return dynamic.data(); }

// Host time by kernel, printed at the end where EMULATOR_PROFILE is set.
struct Profile {
    const bool wanted = std::getenv("EMULATOR_PROFILE") != nullptr;
    std::map<std::string, double> seconds;
    ~Profile() {
        for (const auto& [name, time] : seconds) {
            if (time > 0.05) std::fprintf(stderr, "%8.2f s %s\n", time, name.c_str());
        }
    }
};

void launch(const Kernel& kernel, Index grid, unsigned threads, size_t shared_bytes, const void* args) {
    static Profile profile;
    const auto begin = std::chrono::steady_clock::now();
    make_stacks();
    running = &kernel;
    argument = args;
    gridDim = grid;
    blockDim = Index{threads, 1, 1};
    dynamic.resize(shared_bytes);
    shared.clear();
    first_of_launch = block_number + 1;
    for (unsigned z = 0; z < grid.z; z++) {
        for (unsigned y = 0; y < grid.y; y++) {
            for (unsigned x = 0; x < grid.x; x++) {
                blockIdx = Index{x, y, z};
                block_number++;
                if (kernel.flat) {
                    run_flat(threads);
                } else {
                    std::fill(dynamic.begin(), dynamic.end(), static_cast<char>(POISON));
                    run_block(threads);
                }
            }
        }
    }
    tell_races();
    running = nullptr;
    if (profile.wanted) {
        profile.seconds[kernel.name] += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
}

// ---- 16-bit floats ----

float float_of_half(unsigned short bits) {
    const unsigned sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31, fraction = bits & 1023;
    if (exponent == 31) return float_of(sign | 0x7f800000u | fraction << 13);
    if (exponent == 0) {
        const float magnitude = std::ldexp(static_cast<float>(fraction), -24);
        return sign ? -magnitude : magnitude;
    }
    return float_of(sign | (exponent + 112) << 23 | fraction << 13);
}

unsigned short half_of_float(float x) {
    const unsigned bits = bits_of(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<unsigned short>(sign | 0x7fffu);
    // 65520 and above: beyond half a unit over the largest.
    if (magnitude >= 0x477ff000u) return static_cast<unsigned short>(sign | 0x7c00u);
    if (magnitude < 0x38800000u) {
        // Subnormal: a multiple of 2⁻²⁴, to nearest even as the host rounds.
        const float units = std::nearbyint(std::ldexp(float_of(magnitude), 24));
        return static_cast<unsigned short>(sign | static_cast<unsigned>(units));
    }
    const unsigned rounded = magnitude + 0xfffu + (magnitude >> 13 & 1);
    return static_cast<unsigned short>(sign | ((rounded - 0x38000000u) >> 13));
}

}  // namespace emu
