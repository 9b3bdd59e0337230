// What the files of the stand-in driver have of each other and of the emulator.
#pragma once
#include <mutex>
#include <string>

#include "emulator.h"

#define API extern "C" __attribute__((visibility("default"))) int

enum Result {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    NOT_FOUND = 500,
    // What cannot be done while a stream writes down what it would do.
    CAPTURED = 900,
};

namespace emu {
// The kernel of that name; null where there is none.
const Kernel* find(const char* name);
// All kernels, by number.
size_t count();
const char* name_of(size_t index);
// Runs every block, in order, to its end.
void launch(const Kernel& kernel, Index grid, unsigned threads, size_t shared_bytes, const void* args);

// Where the running thread is: what it has passed says what happened before.
struct Moment {
    // Numbers of all blocks that ever ran; a thread's own counts of the barriers that it has passed.
    unsigned block = 0, block_barriers = 0, warp_barriers = 0;
    unsigned short thread = 0;
};
Moment now();
// The first block of the running launch.
unsigned first_block();
// Whether every block has memory of its own at that address; whether every thread has, or no kernel runs.
bool is_shared(const void* at);
bool is_stack(const void* at);
// Fails if threads of this launch have met.
void tell_races();

// Tests may have a device each on several threads: one call at a time.
extern std::mutex calls;
#define ALONE const std::lock_guard<std::mutex> alone(emu::calls)

// Memory besides segments, by whom; within a call.
bool take(const std::string& part, size_t bytes);
void give(const std::string& part, size_t bytes);

// Compute capability, as ten times the major number and the minor one.
int capability();

bool is_capturing();
// Does what the queue has still to do.
void settle();
}  // namespace emu
