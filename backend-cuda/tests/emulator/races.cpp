// Races between the threads of a launch.
//
// The kernels are compiled with the compiler's instrumentation for threads, and what it calls is here: the emulator knows
// best who is a thread, and what orders two of them. Two accesses to one byte, one of them a write, by two threads of a
// launch need a barrier of their block between them or, within a warp, `__syncwarp`; a shuffle is none, and between
// blocks there is nothing. In what order the emulator happens to run the threads does not matter. Volatile writes may
// meet: several threads that say the same.
#include "runtime.h"

#include <dlfcn.h>

#include <map>
#include <memory>
#include <unordered_map>

namespace {
constexpr unsigned LANES = 32;
constexpr size_t PAGE = 4096;
// In place of one thread, warp or block.
constexpr unsigned short SEVERAL = 0xffff;
constexpr unsigned SEVERAL_BLOCKS = 0xffffffff;

// The last access to a byte: when, by whom, and from where in the code. Several blocks keep, instead of their barriers,
// the first block of their launch.
struct Access {
    unsigned block = 0, block_barriers = 0, warp_barriers = 0;
    unsigned short warp = 0, thread = 0;
    bool is_volatile = false;
    const void* code = nullptr;
};
struct Cell {
    Access write, read;
};
// A cell for so many bytes: the elements of a page are mostly of one type, and tell nothing byte by byte. The first that
// needs smaller ones gets them.
struct Page {
    // The binary logarithm of a cell's bytes.
    unsigned shift = 4;
    std::unique_ptr<Cell[]> cells = std::make_unique<Cell[]>(PAGE >> 4);

    void refine(unsigned wanted) {
        auto smaller = std::make_unique<Cell[]>(PAGE >> wanted);
        for (size_t i = 0; i < PAGE >> wanted; i++) smaller[i] = cells[i << wanted >> shift];
        cells = std::move(smaller);
        shift = wanted;
    }
};

std::unordered_map<uintptr_t, Page> pages;

typedef std::pair<const void*, const void*> Places;
// What was found in this launch: once for each two places in the code.
std::map<Places, std::string> found;

Page& page_of(uintptr_t at) {
    // The last page of each of a few numbers: kernels go through some tensors side by side.
    static Page* recent[64];
    static uintptr_t numbers[64];
    const uintptr_t number = at / PAGE, slot = number % 64;
    if (recent[slot] == nullptr || numbers[slot] != number) {
        recent[slot] = &pages[number];
        numbers[slot] = number;
    }
    return *recent[slot];
}

// Whether nothing orders an earlier access and this one.
inline bool meet(const Access& earlier, const Access& now, bool shared) {
    if (earlier.is_volatile && now.is_volatile) return false;
    if (earlier.block == SEVERAL_BLOCKS) return earlier.block_barriers == emu::first_block();
    if (earlier.block != now.block) return !shared && earlier.block >= emu::first_block();
    if (earlier.block_barriers != now.block_barriers || earlier.thread == now.thread) return false;
    return earlier.warp != now.warp || earlier.warp_barriers == now.warp_barriers;
}

// Makes one of all reads that a write could meet.
void add(Access& reads, const Access& now, bool shared) {
    const unsigned first = emu::first_block();
    if (reads.block == SEVERAL_BLOCKS && reads.block_barriers == first) return;
    if (reads.block != now.block) {
        const bool others = !shared && reads.block != SEVERAL_BLOCKS && reads.block >= first;
        reads = now;
        if (others) reads.block = SEVERAL_BLOCKS, reads.block_barriers = first;
    } else if (reads.block_barriers != now.block_barriers) {
        reads = now;
    } else if (reads.warp != now.warp) {
        reads.warp = reads.thread = SEVERAL;
    } else if (reads.warp_barriers != now.warp_barriers) {
        reads = now;
    } else if (reads.thread != now.thread) {
        reads.thread = SEVERAL;
    }
}

std::string name(const char* what, unsigned number, unsigned several) {
    return number == several ? std::string("several ") + what + "s" : std::string(what) + " " + std::to_string(number);
}
std::string text_of(const Access& access) {
    const unsigned first = access.block == SEVERAL_BLOCKS ? 0 : emu::first_block();
    return name("thread", access.thread, SEVERAL) + " of " + name("block", access.block - first, SEVERAL_BLOCKS);
}

void tell(const char* what, const Access& earlier, const Access& now) {
    std::string& text = found[Places(earlier.code, now.code)];
    if (text.empty()) text = std::string(what) + ": " + text_of(earlier) + ", then " + text_of(now);
}

void look(Cell& cell, const Access& now, bool shared, bool writes) {
    if (meet(cell.write, now, shared)) tell(writes ? "two writes" : "a write and a read", cell.write, now);
    if (writes) {
        if (meet(cell.read, now, shared)) tell("a read and a write", cell.read, now);
        cell.write = now;
    } else {
        const Access& reads = cell.read;
        const bool known = reads.block == now.block && reads.block_barriers == now.block_barriers && reads.thread == SEVERAL;
        if (known && (reads.warp == SEVERAL || (reads.warp == now.warp && reads.warp_barriers == now.warp_barriers))) return;
        if (shared && cell.write.block != now.block) tell("a read of shared memory that nobody has written", now, now);
        add(cell.read, now, shared);
    }
}

struct Kind {
    bool writes, is_volatile;
};
void access(const void* address, size_t bytes, Kind kind, const void* code) {
    if (emu::is_stack(address)) return;
    const emu::Moment m = emu::now();
    const auto warp = static_cast<unsigned short>(m.thread / LANES);
    const Access now{m.block, m.block_barriers, m.warp_barriers, warp, m.thread, kind.is_volatile, code};
    const bool shared = emu::is_shared(address);
    const auto begin = reinterpret_cast<uintptr_t>(address), end = begin + bytes, both = begin | bytes;
    const auto wanted = static_cast<unsigned>(__builtin_ctzll(both));
    for (uintptr_t at = begin; at < end;) {
        Page& page = page_of(at);
        if (wanted < page.shift) page.refine(wanted);
        look(page.cells[at % PAGE >> page.shift], now, shared, kind.writes);
        at += uintptr_t(1) << page.shift;
    }
}

// File and line, as the machine's own tool finds them.
std::string place(const void* code) {
    Dl_info info;
    if (dladdr(code, &info) == 0) return "?";
    const size_t offset = static_cast<size_t>(static_cast<const char*>(code) - static_cast<const char*>(info.dli_fbase)) - 1;
    // The folder's name may have any length.
    char digits[32];
    std::snprintf(digits, sizeof(digits), "%zx", offset);
    const std::string command = "addr2line -s -i -e '" + std::string(info.dli_fname) + "' " + digits;
    FILE* tool = popen(command.c_str(), "r");
    if (tool == nullptr) return "?";
    std::string text;
    for (int c; (c = std::fgetc(tool)) != EOF;) text += c == '\n' ? ' ' : static_cast<char>(c);
    pclose(tool);
    return text;
}
}  // namespace

void emu::tell_races() {
    if (found.empty()) return;
    for (const auto& [places, text] : found) {
        std::fprintf(stderr, "%s\n    %s\n    %s\n", text.c_str(), place(places.first).c_str(), place(places.second).c_str());
    }
    found.clear();
    fail("threads meet with nothing between them");
}

// ---- what the compiler calls before each access ----

#define CALLED(name, ...) extern "C" void __tsan_##name(__VA_ARGS__)
#define ACCESS(name, bytes, ...) \
    CALLED(name##bytes, void* at) { access(at, bytes, Kind{__VA_ARGS__}, __builtin_return_address(0)); }
#define ACCESSES(bytes)                          \
    ACCESS(read, bytes, false, false)            \
    ACCESS(write, bytes, true, false)            \
    ACCESS(unaligned_read, bytes, false, false)  \
    ACCESS(unaligned_write, bytes, true, false)  \
    ACCESS(volatile_read, bytes, false, true)    \
    ACCESS(volatile_write, bytes, true, true)
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
CALLED(read_range, void* at, size_t bytes) { access(at, bytes, Kind{false, false}, __builtin_return_address(0)); }
CALLED(write_range, void* at, size_t bytes) { access(at, bytes, Kind{true, false}, __builtin_return_address(0)); }
CALLED(func_entry, void*) {}
CALLED(func_exit) {}
CALLED(init) {}
