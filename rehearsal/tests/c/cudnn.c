// Asks for plans of a graph with one convolution as PyTorch does. Arguments: a library to load first. Prints, for each list of
// heuristics, how many configurations there are, and the workspace of the first that makes a plan.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int cudnnBackendCreateDescriptor(int kind, void **made);
int cudnnBackendDestroyDescriptor(void *descriptor);
int cudnnBackendSetAttribute(void *to, int attribute, int type, int64_t count, const void *values);
int cudnnBackendFinalize(void *descriptor);
int cudnnBackendGetAttribute(void *from, int attribute, int type, int64_t requested, int64_t *count, void *values);
void cudnnGetLastErrorString(char *text, size_t capacity);
int cudnnCreate(void **handle);
int vramlab_rehearsal_plan(int64_t plan[3]);

#define IS(wanted, found) do { long f = (long)(found); if (f != (long)(wanted)) { printf("line %d: %ld\n", __LINE__, f); exit(1); } } while (0)

static void *made(int kind) { void *one; IS(0, cudnnBackendCreateDescriptor(kind, &one)); return one; }

// Prints what one list of heuristics holds.
static void list(void *handle, void *graph, int mode) {
    void *heuristics = made(4), *configurations[8];
    IS(0, cudnnBackendSetAttribute(heuristics, 201, 15, 1, &graph));
    IS(0, cudnnBackendSetAttribute(heuristics, 200, 8, 1, &mode));
    int refused = cudnnBackendFinalize(heuristics);
    if (refused) { printf("refused %d\n", refused); return; }
    int64_t count, bytes = -1;
    IS(0, cudnnBackendGetAttribute(heuristics, 202, 15, 0, &count, NULL));
    for (int i = 0; i < count; i++) configurations[i] = made(3);
    IS(0, cudnnBackendGetAttribute(heuristics, 202, 15, count, &count, configurations));
    printf("%ld", count);
    for (int i = 0; i < count && bytes < 0; i++) {
        void *plan = made(5), *engine = made(2);
        IS(0, cudnnBackendSetAttribute(plan, 400, 0, 1, &handle));
        IS(0, cudnnBackendSetAttribute(plan, 401, 15, 1, &configurations[i]));
        if (cudnnBackendFinalize(plan)) continue;
        int64_t one, told[3];
        IS(0, cudnnBackendGetAttribute(configurations[i], 300, 15, 1, &one, &engine));
        IS(0, cudnnBackendGetAttribute(plan, 402, 3, 1, &one, &bytes));
        IS(0, vramlab_rehearsal_plan(told));
        IS(bytes, told[2]);
        printf(" %ld from %ld", bytes, told[0]);
        // What the plan is as JSON.
        IS(0, cudnnBackendGetAttribute(plan, 405, 0, 0, &one, NULL));
        // It is told once.
        IS(1, vramlab_rehearsal_plan(told) != 0);
        IS(0, cudnnBackendDestroyDescriptor(plan));
    }
    printf("\n");
}

int main(int count, char **words) {
    if (count > 1 && !dlopen(words[1], RTLD_NOW)) { puts(dlerror()); return 1; }
    void *handle, *operation = made(10), *graph = made(15);
    IS(0, cudnnCreate(&handle));
    IS(0, cudnnBackendFinalize(operation));
    IS(0, cudnnBackendSetAttribute(graph, 800, 0, 1, &handle));
    IS(0, cudnnBackendSetAttribute(graph, 801, 15, 1, &operation));
    IS(0, cudnnBackendFinalize(graph));
    // CUDNN_HEUR_MODE_A, and the fallback.
    list(handle, graph, 0);
    list(handle, graph, 2);
    char text[64] = "";
    cudnnGetLastErrorString(text, sizeof text);
    printf("%s\n", text);
}
