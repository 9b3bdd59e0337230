// Changes the files of a project through io_uring: no system call names them. Prints what it sees of its changes.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int ring;
static unsigned *tail, *head, *done_tail, mask, done_mask;
static struct io_uring_sqe *requests;
static struct io_uring_cqe *results;

static int begin(void) {
    struct io_uring_params found;
    memset(&found, 0, sizeof found);
    ring = (int)syscall(SYS_io_uring_setup, 4, &found);
    if (ring < 0) return -1;
    size_t size = found.sq_off.array + found.sq_entries * sizeof(unsigned);
    size_t other = found.cq_off.cqes + found.cq_entries * sizeof *results;
    char *queue = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
    char *done = mmap(0, other, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_CQ_RING);
    requests = mmap(0, found.sq_entries * sizeof *requests, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQES);
    if (queue == MAP_FAILED || done == MAP_FAILED || requests == MAP_FAILED) return -1;
    tail = (unsigned *)(queue + found.sq_off.tail);
    mask = *(unsigned *)(queue + found.sq_off.ring_mask);
    for (unsigned at = 0; at < found.sq_entries; at++) ((unsigned *)(queue + found.sq_off.array))[at] = at;
    head = (unsigned *)(done + found.cq_off.head);
    done_tail = (unsigned *)(done + found.cq_off.tail);
    done_mask = *(unsigned *)(done + found.cq_off.ring_mask);
    results = (struct io_uring_cqe *)(done + found.cq_off.cqes);
    return 0;
}

// Makes one request and waits for its result.
static int ask(int code, int fd, const void *address, unsigned length, unsigned long offset, unsigned flags) {
    struct io_uring_sqe *request = &requests[*tail & mask];
    memset(request, 0, sizeof *request);
    request->opcode = code;
    request->fd = fd;
    request->addr = (unsigned long)address;
    request->len = length;
    request->off = offset;
    request->open_flags = flags;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0) return -1000;
    while (__atomic_load_n(done_tail, __ATOMIC_ACQUIRE) == *head) { }
    int result = results[*head & done_mask].res;
    __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
    return result;
}

int main(void) {
    if (begin() < 0) {
        printf("SAW no ring\n");
        return 0;
    }
    int file = ask(IORING_OP_OPENAT, AT_FDCWD, "old.txt", 0600, 0, O_WRONLY | O_TRUNC);
    int wrote = file < 0 ? file : ask(IORING_OP_WRITE, file, "new", 3, 0, 0);
    struct open_how how = {.flags = O_WRONLY | O_TRUNC};
    int other = ask(IORING_OP_OPENAT2, AT_FDCWD, "out/checkpoint-1/m.pt", sizeof how, (unsigned long)&how, 0);
    int moved = ask(IORING_OP_RENAMEAT, AT_FDCWD, "data/a.bin", (unsigned)AT_FDCWD, (unsigned long)"data/moved", 0);
    int gone = ask(IORING_OP_UNLINKAT, AT_FDCWD, "ro.txt", 0, 0, 0);
    int made = ask(IORING_OP_MKDIRAT, AT_FDCWD, "made", 0755, 0, 0);
    int link = ask(IORING_OP_SYMLINKAT, AT_FDCWD, "data", 0, (unsigned long)"made/link", 0);
    int second = ask(IORING_OP_LINKAT, AT_FDCWD, "hard1.txt", (unsigned)AT_FDCWD, (unsigned long)"made/second", 0);
    int attribute = ask(IORING_OP_SETXATTR, 0, "user.new", 1, (unsigned long)"1", 0);
    int folder = ask(IORING_OP_RENAMEAT, AT_FDCWD, "data/deep", (unsigned)AT_FDCWD, (unsigned long)"made/deep", 0);
    struct stat found;
    int seen = wrote == 3 && other >= 0 && moved == 0 && gone == 0 && made == 0 && link == 0 && second == 0 && access("ro.txt", F_OK) != 0 &&
               stat("old.txt", &found) == 0 && found.st_size == 3 && access("data/moved", F_OK) == 0;
    printf("SAW %s %d %d %d %d %d %d %d %d %d\n", seen ? "ok" : "no", wrote, other, moved, gone, made, link, second, attribute, folder);
    return 0;
}
