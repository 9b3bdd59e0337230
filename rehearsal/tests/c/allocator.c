// An allocator that reads a link and a file when the first block is asked of it, as jemalloc and tcmalloc do: until then it has none.
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

static char room[64 << 20] __attribute__((aligned(64)));
static size_t taken;
static int started;

void *malloc(size_t bytes) {
    char text[256];
    if (started == 0) {
        started = 1;
        readlink("/etc/malloc.conf", text, sizeof text);
        int file = open("/proc/sys/vm/overcommit_memory", O_RDONLY);
        if (file >= 0)
            close(file);
        started = 2;
    }
    // Asked for again while it starts, it would wait for itself.
    while (started == 1)
        usleep(1000);
    size_t at = __atomic_fetch_add(&taken, (bytes + 79) & ~(size_t)63, __ATOMIC_RELAXED);
    *(size_t *)(room + at) = bytes;
    return at + bytes + 80 < sizeof room ? room + at + 16 : NULL;
}

void free(void *block) { (void)block; }

void *calloc(size_t count, size_t bytes) { return malloc(count * bytes); }

void *realloc(void *block, size_t bytes) {
    void *new = malloc(bytes);
    if (block && new) {
        size_t held = *(size_t *)((char *)block - 16);
        memcpy(new, block, held < bytes ? held : bytes);
    }
    return new;
}
