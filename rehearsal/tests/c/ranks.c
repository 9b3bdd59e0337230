// Three ranks of one machine. The results of small collectives, once they are read, combine what all ranks sent.
#include "cuda.h"
#include <sys/wait.h>
#include <unistd.h>

typedef struct { char bytes[128]; } Id;
int ncclGetUniqueId(Id *), ncclCommInitRank(void **, int, Id, int), ncclCommCount(void *, int *), ncclCommUserRank(void *, int *);
int ncclAllReduce(const void *, void *, size_t, int, int, void *, void *), ncclBroadcast(const void *, void *, size_t, int, int, void *, void *);
int ncclAllGather(const void *, void *, size_t, int, void *, void *), ncclReduceScatter(const void *, void *, size_t, int, int, void *, void *);
int ncclSend(const void *, size_t, int, int, void *, void *), ncclRecv(void *, size_t, int, int, void *, void *);
int ncclCommSplit(void *, int, int, void **, void *);
int vramlab_rehearsal_members(const Id *, const uint32_t *, size_t), vramlab_rehearsal_part(const uint32_t *, size_t);
enum { INT64 = 4, FLOAT = 7, SUM = 0, MAX = 2, RANKS = 3 };
static const dim3 one = {1, 1, 1};
static const char kernel[1];

static void put(void *card, int64_t first, int64_t second) { int64_t both[2] = {first, second}; IS(0, cudaMemcpy(card, both, 16, 1)); }
static int64_t at(int64_t *card, int index) { int64_t n; IS(0, cudaMemcpy(&n, card + index, 8, 2)); return n; }

static void act(int rank, Id id, int meet) {
    void *all, *part; int64_t *p, *q; int n;
    IS(0, ncclCommInitRank(&all, RANKS, id, rank)); IS(0, cudaMalloc((void **)&p, 4096)); IS(0, cudaMalloc((void **)&q, 4096));
    put(p, rank, 10 * rank);
    IS(0, ncclAllReduce(p, q, 2, INT64, SUM, all, NULL));
    if (!meet) { IS(0, at(q, 1)); IS(0, ncclBroadcast(p, q, 2, INT64, 2, all, NULL)); IS(rank, at(q, 0)); return; }
    // A copy does not wait for other ranks. Its contents are those of its source.
    IS(0, cudaMemcpy(q + 10, q, 16, 3)); IS(3, at(q, 0)); IS(30, at(q, 11));
    IS(0, ncclAllReduce(p, p, 2, INT64, MAX, all, NULL)); IS(20, at(p, 1));
    put(p, rank + 100, rank + 200);
    IS(0, ncclAllGather(p, q, 2, INT64, all, NULL)); for (int i = 0; i < RANKS; i++) { IS(i + 100, at(q, 2 * i)); IS(i + 200, at(q, 2 * i + 1)); }
    IS(0, ncclBroadcast(p, q, 2, INT64, 2, all, NULL)); IS(102, at(q, 0)); IS(rank + 100, at(p, 0));
    int64_t three[3] = {1, 2, 3}; IS(0, cudaMemcpy(p, three, 24, 1));
    IS(0, ncclReduceScatter(p, q, 1, INT64, SUM, all, NULL)); IS(3 * (rank + 1), at(q, 0));
    // One rank after the other: nobody waits before somebody reads.
    IS(0, ncclRecv(q, 1, INT64, (rank + 2) % RANKS, all, NULL)); put(p, rank, 0); IS(0, ncclSend(p, 1, INT64, (rank + 1) % RANKS, all, NULL));
    IS((rank + 2) % RANKS, at(q, 0));
    // Values that a kernel wrote on one rank are unknown on all ranks. Large tensors are not exchanged.
    put(p, 1, 1); if (rank == 1) IS(0, cudaLaunchKernel(kernel, one, one, NULL, 0, NULL));
    IS(0, ncclAllReduce(p, q, 1, INT64, SUM, all, NULL)); IS(0, at(q, 0));
    // Parts have the ranks that chose them, in the order of their keys.
    IS(0, ncclCommSplit(all, rank == 1 ? -1 : 7, -rank, &part, NULL));
    if (rank == 1) { IS(0, part); return; }
    IS(0, ncclCommCount(part, &n)); IS(2, n); IS(0, ncclCommUserRank(part, &n)); IS(rank == 0 ? 1 : 0, n);
    put(p, rank, 0); put(q, -1, -1); put(q + 2, -1, -1);
    IS(0, ncclAllGather(p, q, 1, INT64, part, NULL)); IS(2, at(q, 0)); IS(0, at(q, 1)); IS(-1, at(q, 2));
}

// Ranks 0 and 2 of three. The absent rank counts as sending what each of them sends.
static void act_without(int rank, Id id) {
    void *all, *part; int64_t *p, *q; int n; uint32_t members[] = {0, 1, 2}, both[] = {1, 2};
    IS(0, vramlab_rehearsal_members(&id, members, 3));
    IS(0, ncclCommInitRank(&all, RANKS, id, rank)); IS(0, cudaMalloc((void **)&p, 4096)); IS(0, cudaMalloc((void **)&q, 4096));
    put(p, rank + 1, 0); IS(0, ncclAllReduce(p, q, 1, INT64, SUM, all, NULL)); IS(1 + 3 + rank + 1, at(q, 0));
    IS(0, ncclAllGather(p, q, 1, INT64, all, NULL)); IS(1, at(q, 0)); IS(rank + 1, at(q, 1)); IS(3, at(q, 2));
    IS(0, ncclBroadcast(p, q, 1, INT64, 2, all, NULL)); IS(3, at(q, 0)); IS(0, ncclBroadcast(p, q, 1, INT64, 1, all, NULL)); IS(rank + 1, at(q, 0));
    // Values that only the absent rank has are unknown. No rank waits for it.
    put(q, 5, 5); IS(0, ncclRecv(q, 1, INT64, 1, all, NULL)); IS(0, at(q, 0));
    if (rank == 2) { IS(0, vramlab_rehearsal_part(both, 2)); }
    IS(0, ncclCommSplit(all, rank == 2 ? 7 : -1, rank == 2, &part, NULL));
    if (rank == 2) { IS(0, ncclCommCount(part, &n)); IS(2, n); IS(0, ncclCommUserRank(part, &n)); IS(1, n);
        put(p, 9, 0); IS(0, ncclAllGather(p, q, 1, INT64, part, NULL)); IS(9, at(q, 0)); IS(9, at(q, 1)); }
}

int main(void) {
    Id id; pid_t children[RANKS];
    // The card is used after the fork.
    IS(0, ncclGetUniqueId(&id));
    for (int rank = 0; rank < RANKS; rank++) if (!(children[rank] = fork())) { if (!getenv("VRAMLAB_REHEARSAL_STARTED")) act(rank, id, getenv("VRAMLAB_REHEARSAL_SHARED") != NULL); else if (rank != 1) act_without(rank, id); exit(0); }
    for (int rank = 0; rank < RANKS; rank++) { int status; IS(children[rank], waitpid(children[rank], &status, 0)); IS(0, status); }
    return 0;
}
