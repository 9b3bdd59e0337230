// Writes down every launch of a program on an NVIDIA GPU: begin and end in nanoseconds, grid, threads of a block, registers, name. The driver
// loads it into any program, this one or PyTorch, which needs no change; `launches.py` sums it up by step.
//
//   gcc -O1 -shared -fPIC launches.c -o launches.so -I CUDA/include CUPTI/lib/libcupti.so.13 -Wl,-rpath,CUPTI/lib
//   LAUNCHES=FILE CUDA_INJECTION64_PATH=$PWD/launches.so PROGRAM
//
// CUPTI and its headers come with the CUDA toolkit, the library with PyTorch's wheels too. Recording lengthens a step.
#include <cupti.h>
#include <stdio.h>
#include <stdlib.h>

static FILE *out;

static void CUPTIAPI requested(uint8_t **buffer, size_t *size, size_t *most) {
    *size = 4 << 20;
    *buffer = aligned_alloc(8, *size);
    *most = 0;
}

static void written(uint64_t begin, uint64_t end, const char *name) {
    fprintf(out, "%llu\t%llu\t-\t0\t0\t%s\n", (unsigned long long)begin, (unsigned long long)end, name);
}

static void CUPTIAPI completed(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    (void)context, (void)stream, (void)size;
    CUpti_Activity *record = NULL;
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
        if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
            // Later versions of the record begin alike.
            const CUpti_ActivityKernel9 *k = (const CUpti_ActivityKernel9 *)record;
            fprintf(out, "%llu\t%llu\t%d,%d,%d\t%d\t%d\t%s\n", (unsigned long long)k->start, (unsigned long long)k->end, k->gridX,
                    k->gridY, k->gridZ, k->blockX, k->registersPerThread, k->name ? k->name : "?");
        } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
            const CUpti_ActivityMemset4 *k = (const CUpti_ActivityMemset4 *)record;
            written(k->start, k->end, "memset");
        } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
            const CUpti_ActivityMemcpy5 *k = (const CUpti_ActivityMemcpy5 *)record;
            written(k->start, k->end, "memcpy");
        }
    }
    free(buffer);
}

static void finish(void) {
    cuptiActivityFlushAll(1);
    fclose(out);
}

// The driver calls it when a program starts to use it.
int InitializeInjection(void) {
    const char *path = getenv("LAUNCHES");
    if (!path || !(out = fopen(path, "w"))) return 1;
    cuptiActivityRegisterCallbacks(requested, completed);
    cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET);
    cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY);
    atexit(finish);
    return 1;
}
