// What the stand-in driver needs of the emulator.
#pragma once
#include "emulator.h"

namespace emu {
// The kernel of that name; null where there is none.
const Kernel* find(const char* name);
// All kernels, by number.
size_t count();
const char* name_of(size_t index);
// Runs every block, in order, to its end.
void launch(const Kernel& kernel, Index grid, unsigned threads, size_t shared_bytes, const void* args);
}  // namespace emu
