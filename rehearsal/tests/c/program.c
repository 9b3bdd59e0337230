// Promises that a program of CUDA relies on, one function each. The argument names the function. It runs on 1 GiB unless said otherwise.
#include "cuda.h"
#include <sys/wait.h>
#include <unistd.h>

static size_t unused(void) { size_t left, total; IS(0, cudaMemGetInfo(&left, &total)); return left; }
static const dim3 one = {1, 1, 1};
static const char kernel[1];

static void memory(void) {
    size_t before = unused();
    IS(1024 * MIB, before);
    void *a, *b, *small, *second;
    IS(0, cudaMalloc(&a, 3 * MIB)); IS(0, cudaMalloc(&b, 4 * MIB));
    IS(8 * MIB, before - unused());                      // whole pages of 2 MiB
    IS(1, (char *)b >= (char *)a + 4 * MIB);
    IS(0, cudaMalloc(&small, 100)); IS(0, cudaMalloc(&second, 100000));
    IS(10 * MIB, before - unused());                     // both from one page
    Attributes at;
    IS(0, cudaPointerGetAttributes(&at, (char *)a + 5)); IS(2, at.type); IS(0, at.device);
    IS(0, cudaPointerGetAttributes(&at, &at)); IS(0, at.type); IS(-2, at.device);
    IS(0, cudaFree(a)); IS(0, cudaFree(b)); IS(0, cudaFree(small)); IS(0, cudaFree(second)); IS(0, cudaFree(NULL));
    IS(before, unused());
    IS(1, cudaFree(a)); IS(1, cudaGetLastError()); IS(0, cudaGetLastError());
    IS(0, cudaMalloc(&a, 0)); IS(0, a);
    IS(0, cudaMalloc(&a, 3 * MIB)); IS(1, a != b); IS(0, cudaFree(a));
    void *host;
    IS(0, cudaHostAlloc(&host, 5000, 0)); memset(host, 7, 5000);
    IS(0, cudaPointerGetAttributes(&at, (char *)host + 4999)); IS(1, at.type);
    IS(712, cudaHostRegister(host, 10, 0)); IS(0, cudaFreeHost(host)); IS(1, cudaFreeHost(host));
    char own[100];
    IS(0, cudaHostRegister(own, 100, 0)); IS(0, cudaHostUnregister(own)); IS(713, cudaHostUnregister(own));
    IS(0, cudaMallocManaged(&host, 5000, 1)); memset(host, 7, 5000);
    IS(0, cudaPointerGetAttributes(&at, host)); IS(3, at.type); IS(0, cudaFree(host));
    uint64_t peaks[2];
    IS(0, vramlab_rehearsal_host(peaks)); IS(5000, peaks[0]); IS(5000, peaks[1]);
    IS(before, unused());
}

static void exhaustion(void) {
    void *p, *q;
    IS(2, cudaMalloc(&p, 2048 * MIB)); IS(2, cudaPeekAtLastError());
    IS(0, strcmp("cudaErrorMemoryAllocation", cudaGetErrorName(cudaGetLastError())));
    IS(0, strcmp("out of memory", cudaGetErrorString(2)));
    IS(2, cudaMalloc(&p, SIZE_MAX)); IS(2, cudaMalloc(&p, SIZE_MAX - 4 * MIB));
    IS(0, cudaMalloc(&p, 1022 * MIB)); IS(0, cudaMalloc(&q, 2 * MIB)); IS(0, unused());
    IS(2, cudaMalloc(&q, 1));
    IS(0, cudaFree(p));
    for (int i = 0; i < 100000; i++) { IS(0, cudaMalloc(&p, 1000 * MIB)); IS(0, cudaFree(p)); }  // more than there are addresses
}

static void pools(void) {
    void *pool, *p, *q; uint64_t n, keep = -1;
    IS(0, cudaDeviceGetDefaultMemPool(&pool, 0));
    IS(0, cudaMallocAsync(&p, 10 * MIB, 0)); IS(0, cudaMallocAsync(&q, 30 * MIB, 0));
    IS(0, cudaMemPoolGetAttribute(pool, 7, &n)); IS(40 * MIB, n);
    IS(0, cudaMemPoolGetAttribute(pool, 5, &n)); IS(64 * MIB, n); IS(960 * MIB, unused());
    IS(0, cudaFreeAsync(q, 0)); IS(960 * MIB, unused());
    IS(0, cudaDeviceSynchronize()); IS(992 * MIB, unused());
    IS(0, cudaMemPoolSetAttribute(pool, 4, &keep)); IS(0, cudaFreeAsync(p, 0)); IS(0, cudaDeviceSynchronize());
    IS(992 * MIB, unused()); IS(0, cudaMemPoolTrimTo(pool, 0)); IS(1024 * MIB, unused());
    IS(2, cudaMallocAsync(&p, 2048 * MIB, 0)); IS(2, cudaMallocAsync(&p, SIZE_MAX - 600, 0));
    IS(0, cudaMemPoolGetAttribute(pool, 8, &n)); IS(40 * MIB, n);
}

static void virtual_memory(void) {
    uint64_t at, a, b, c, start; size_t size;
    Properties on_card = {1, 0, 1, 0, {0}}; Access access = {1, 0, 3};
    IS(0, cuInit(0));
    IS(0, cuMemAddressReserve(&at, 4096 * MIB, 0, 0, 0)); IS(1024 * MIB, unused());   // more than there is
    IS(0, cuMemCreate(&a, 20 * MIB, &on_card, 0)); IS(0, cuMemCreate(&b, 2 * MIB, &on_card, 0)); IS(1002 * MIB, unused());
    IS(2, cuMemCreate(&c, 1004 * MIB, &on_card, 0)); IS(1, cuMemCreate(&c, 3 * MIB, &on_card, 0));
    IS(0, cuMemMap(at, 20 * MIB, 0, a, 0)); IS(1, cuMemMap(at + 2 * MIB, 2 * MIB, 0, b, 0));
    IS(0, cuMemMap(at + 20 * MIB, 2 * MIB, 0, b, 0)); IS(0, cuMemSetAccess(at, 22 * MIB, &access, 1));
    IS(1, cuMemSetAccess(at, 24 * MIB, &access, 1)); IS(1, cuMemMap(at - 2 * MIB, 2 * MIB, 0, b, 0));
    IS(0, cuMemRelease(a)); IS(0, cuMemRelease(b)); IS(1002 * MIB, unused());         // still mapped
    IS(0, cuMemGetAddressRange_v2(&start, &size, at + 21 * MIB)); IS(at + 20 * MIB, start); IS(2 * MIB, size);
    IS(1, cuMemAddressFree(at, 4096 * MIB)); IS(1, cuMemUnmap(at, 10 * MIB));
    IS(0, cuMemUnmap(at, 22 * MIB)); IS(1024 * MIB, unused()); IS(0, cuMemAddressFree(at, 4096 * MIB));
    int descriptor;
    IS(0, cuMemCreate(&a, 4 * MIB, &on_card, 0)); IS(0, cuMemExportToShareableHandle(&descriptor, a, 1, 0));
    IS(0, cuMemImportFromShareableHandle(&b, (void *)(intptr_t)descriptor, 1)); IS(1020 * MIB, unused());
    IS(0, cuMemRelease(a)); IS(0, cuMemRelease(b)); IS(1, cuMemRelease(b)); IS(1024 * MIB, unused());
}

static void copies(void) {
    char from[3000], to[3000], *p, *q; uint64_t counters[3];
    for (int i = 0; i < 3000; i++) from[i] = i * 7 % 100;
    IS(0, cudaMalloc((void **)&p, 3000)); IS(0, cudaMalloc((void **)&q, 3 * MIB));
    IS(0, cudaMemcpy(p, from, 3000, 1)); IS(0, cudaMemcpy(q + 8, p, 1000, 3)); IS(0, cudaMemset(q + 100, 9, 10));
    IS(0, cudaMemcpy(to, q + 8, 1000, 2));
    for (int i = 0; i < 1000; i++) IS(i >= 92 && i < 102 ? 9 : from[i], to[i]);
    IS(0, cudaMemcpy2D(to, 10, p, 20, 10, 50, 2));
    for (int i = 0; i < 500; i++) IS(from[i / 10 * 20 + i % 10], to[i]);
    IS(0, cudaMemcpy(to, from, 3000, 0)); IS(0, memcmp(to, from, 3000));
    // The contents are unknown where nobody wrote, and after a kernel, which may have written anywhere. Reads give zeros then.
    IS(0, cudaMemcpy(to, q + 7, 1000, 2)); for (int i = 0; i < 1000; i++) IS(0, to[i]);
    IS(0, cudaLaunchKernel(kernel, one, one, NULL, 0, NULL));
    IS(0, cudaMemcpy(to, p, 3000, 2)); for (int i = 0; i < 3000; i++) IS(0, to[i]);
    IS(0, vramlab_rehearsal_counters(counters)); IS(51, counters[1]); IS(2, counters[2]);
    char *large = malloc(64 * MIB), *card;
    IS(0, cudaMalloc((void **)&card, 64 * MIB)); IS(0, cudaMemcpy(card, large, 64 * MIB, 1)); IS(0, cudaMemcpy(large, card, 64 * MIB, 2));
    IS(21, cudaMemcpy(to, p, 1, 9)); IS(1, cudaMemcpy(NULL, p, 1, 2)); IS(0, cudaMemcpy(NULL, p, 0, 2));
}

static uint64_t heard[3]; static int times;
static int32_t hear(uint64_t from, uint64_t to, uint64_t bytes) { heard[0] = from; heard[1] = bytes; heard[2] = to; times++; return 0; }

// A layer inside the program shows values, queues numbers, and hears of reads.
static void layer(void) {
    char *p, shown[16] = "fifteen letters", to[16]; int n = 1; uint64_t written[4][2];
    IS(0, cudaMalloc((void **)&p, 100)); vramlab_rehearsal_listen(hear);
    IS(0, cudaMemset(p, 1, 16)); IS(0, cudaMemcpy(p + 20, shown, 5, 1)); IS(2, vramlab_rehearsal_writes);
    IS(2, vramlab_rehearsal_written(written, 4)); IS((uint64_t)p + 20, written[1][0]); IS(5, written[1][1]);
    IS(0, vramlab_rehearsal_written(written, 4)); IS(0, cudaMemset(p, 1, 16)); IS(-1, vramlab_rehearsal_written(written, 0));
    // After a kernel, only shown values are known. This thread reads them until they are withdrawn.
    IS(0, cudaLaunchKernel(kernel, one, one, NULL, 0, NULL)); IS(0, vramlab_rehearsal_show(p, shown, 16));
    IS(0, cudaMemcpy(to, p + 3, 4, 2)); IS(0, memcmp(to, "teen", 4)); IS(0, times);
    IS(0, cudaMemcpy(to, p + 10, 8, 2)); IS(1, times); IS((uint64_t)p + 10, heard[0]); IS(8, heard[1]); IS((uint64_t)to, heard[2]);
    vramlab_rehearsal_withdraw(); IS(0, cudaMemcpy(to, p + 3, 4, 2)); IS(2, times); IS(0, to[0]);
    // Queued numbers answer small reads in their order.
    vramlab_rehearsal_queue(7); vramlab_rehearsal_queue(-1); vramlab_rehearsal_queue(9);
    IS(0, cudaMemcpy(&n, p, 4, 2)); IS(7, n); IS(0, cudaMemcpy(to, p, 16, 2)); IS(3, times); IS(0, cudaMemcpy(&n, p, 4, 2)); IS(-1, n);
    IS(1, vramlab_rehearsal_unqueue()); IS(0, cudaMemcpy(&n, p, 4, 2)); IS(0, n); IS(4, times);
    // A graph, and a kernel that the driver launches, may have written anywhere.
    void *stream, *graph, *run; IS(0, cudaStreamCreateWithFlags(&stream, 1)); IS(0, cudaStreamBeginCapture(stream, 0));
    IS(0, cudaStreamEndCapture(stream, &graph)); IS(0, cudaGraphInstantiateWithFlags(&run, graph, 0)); IS(0, cudaGraphLaunch(run, stream));
    IS(-1, vramlab_rehearsal_written(written, 4)); IS(0, vramlab_rehearsal_written(written, 4));
    IS(0, cuLaunchKernel(run, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL)); IS(-1, vramlab_rehearsal_written(written, 4));
    vramlab_rehearsal_listen(NULL); IS(0, cudaMemset(p, 1, 16)); IS(0, vramlab_rehearsal_written(written, 4));
    IS(1, strstr(vramlab_rehearsal_python(), "def install(torch") != NULL);
}

static void events(void) {
    void *stream, *a, *b, *untimed; float ms;
    IS(0, cudaStreamCreateWithFlags(&stream, 1)); IS(0, cudaEventCreateWithFlags(&a, 0)); IS(0, cudaEventCreateWithFlags(&b, 0));
    IS(0, cudaEventCreateWithFlags(&untimed, 2));
    int late = getenv("VRAMLAB_REHEARSAL_LATE_EVENTS") != NULL;
    IS(0, cudaEventQuery(a)); IS(400, cudaEventElapsedTime(&ms, a, b));
    IS(0, cudaEventRecord(a, stream)); IS(0, cudaEventRecord(b, stream)); IS(0, cudaEventRecord(untimed, stream));
    IS(late ? 600 : 0, cudaEventQuery(b)); IS(late ? 600 : 0, cudaEventQuery(a));
    IS(0, cudaEventSynchronize(a)); IS(0, cudaEventQuery(a)); IS(late ? 600 : 0, cudaEventQuery(b));
    IS(0, cudaStreamSynchronize(stream)); IS(0, cudaEventQuery(b));
    IS(0, cudaEventElapsedTime(&ms, a, b)); IS(1, ms > 0); IS(400, cudaEventElapsedTime(&ms, a, untimed));
    IS(0, cudaStreamWaitEvent(stream, a, 0)); IS(0, cudaEventDestroy(a)); IS(400, cudaEventRecord(a, stream)); IS(400, cudaEventDestroy(a));
    IS(0, cudaStreamDestroy(stream)); IS(400, cudaStreamSynchronize(stream));
}

static int called;
static void call(void *by) { called += *(int *)by; }

static void capture(void) {
    void *a, *b, *event, *graph, *run, *p, *nodes[9]; int status, two = 2, kind; size_t count = 9; unsigned long long id;
    IS(0, cudaStreamCreateWithFlags(&a, 1)); IS(0, cudaStreamCreateWithFlags(&b, 1)); IS(0, cudaEventCreateWithFlags(&event, 2));
    IS(0, cudaMalloc(&p, 100));
    IS(900, cudaStreamBeginCapture(NULL, 0)); IS(401, cudaStreamEndCapture(a, &graph));
    IS(0, cudaStreamBeginCapture(a, 0)); IS(401, cudaStreamBeginCapture(a, 0));
    IS(0, cudaStreamIsCapturing(a, &status)); IS(1, status); IS(0, cudaStreamIsCapturing(b, &status)); IS(0, status);
    IS(0, cudaLaunchKernel(kernel, one, one, NULL, 0, a)); IS(0, cudaMemcpyAsync(p, &two, 4, 1, a));
    IS(0, cudaEventRecord(event, a)); IS(907, cudaEventQuery(event)); IS(0, cudaStreamWaitEvent(b, event, 0));
    IS(0, cudaStreamGetCaptureInfo_v2(b, &status, &id, &graph, NULL, &count)); IS(1, status); IS(1, count);
    IS(0, cudaLaunchHostFunc(b, call, &two)); IS(0, called);
    IS(903, cudaStreamEndCapture(b, &graph));
    IS(0, cudaEventRecord(event, b)); IS(0, cudaStreamWaitEvent(a, event, 0)); IS(0, cudaLaunchKernel(kernel, one, one, NULL, 0, a));
    IS(0, cudaStreamEndCapture(a, &graph)); IS(0, cudaStreamIsCapturing(b, &status)); IS(0, status);
    IS(0, cudaGraphGetNodes(graph, NULL, &count)); IS(4, count);
    IS(0, cudaGraphGetNodes(graph, nodes, &count)); IS(0, cudaGraphNodeGetType(nodes[2], &kind)); IS(3, kind);
    IS(0, cudaGraphDebugDotPrint(graph, "/dev/null", 0));
    IS(0, cudaGraphInstantiateWithFlags(&run, graph, 0)); IS(0, cudaGraphDestroy(graph));
    IS(0, cudaGraphLaunch(run, a)); IS(0, cudaGraphLaunch(run, a)); IS(4, called);
    IS(0, cudaGraphExecDestroy(run)); IS(1, cudaGraphLaunch(run, a));
    // A stream joined the capture, and nothing waited for it.
    IS(0, cudaStreamBeginCapture(a, 0)); IS(0, cudaEventRecord(event, a)); IS(0, cudaStreamWaitEvent(b, event, 0));
    IS(0, cudaLaunchKernel(kernel, one, one, NULL, 0, b)); IS(904, cudaStreamEndCapture(a, &graph));
    // An allocation breaks a capture, unless the thread has relaxed its capture mode.
    IS(0, cudaStreamBeginCapture(a, 0)); int mode = 2; void *q;
    IS(0, cudaThreadExchangeStreamCaptureMode(&mode)); IS(0, mode); IS(0, cudaMalloc(&q, 100));
    IS(0, cudaThreadExchangeStreamCaptureMode(&mode)); IS(2, mode); IS(900, cudaMalloc(&q, 100));
    IS(0, cudaStreamIsCapturing(a, &status)); IS(2, status); IS(901, cudaLaunchKernel(kernel, one, one, NULL, 0, a));
    IS(901, cudaStreamEndCapture(a, &graph)); IS(0, graph);
    // Pages for reserved addresses do not break it.
    Properties on_card = {1, 0, 1, 0, {0}}; uint64_t pages;
    IS(0, cudaStreamBeginCapture(a, 0)); IS(0, cuMemCreate(&pages, 2 * MIB, &on_card, 0)); IS(0, cuMemRelease(pages));
    IS(0, cudaStreamEndCapture(a, &graph));
    IS(0, cudaStreamBeginCapture(a, 0)); IS(900, cudaStreamSynchronize(a)); IS(901, cudaStreamEndCapture(a, &graph));
    IS(0, cudaStreamBeginCapture(a, 0)); IS(0, cudaStreamEndCapture(a, &graph));
    IS(0, cudaGraphGetNodes(graph, NULL, &count)); IS(0, count);
}

// A wrapper and a container with one image each of compiled code, as nvcc puts them into programs.
struct image { uint16_t kind, version; uint32_t header; uint64_t payload; uint32_t compressed, unused; uint16_t minor, major; uint32_t architecture; char rest[32], code[8]; };
static struct { uint32_t magic; uint16_t version, header; uint64_t size; struct image images[2]; } container =
    {0xba55ed50, 1, 16, 2 * sizeof(struct image), {{2, 0x101, 64, 8, 0, 0, 0, 0, 80}, {1, 0x101, 64, 8, 0, 0, 0, 0, 90}}};
static struct { uint32_t magic, version; void *data, *more; } wrapper = {0x466243b1, 1, &container, NULL};

static void launches(void) {
    static const char function[1]; int major, wanted, blocks; dim3 block = {1025, 1, 1}, none = {0, 1, 1};
    IS(0, cudaDeviceGetAttribute(&major, 75, 0));
    void **handle = __cudaRegisterFatBinary(&wrapper);
    __cudaRegisterFunction(handle, function, NULL, "square", -1, NULL, NULL, NULL, NULL, NULL);
    wanted = major < 8 ? 209 : 0;                        // code for 8.x, PTX for 9.0 and later
    IS(wanted, cudaLaunchKernel(function, one, one, NULL, 0, NULL));
    if (wanted) IS(0, strcmp("no kernel image is available for execution on the device", cudaGetErrorString(cudaGetLastError())));
    IS(9, cudaLaunchKernel(kernel, one, block, NULL, 0, NULL)); IS(9, cudaLaunchKernel(kernel, none, one, NULL, 0, NULL));
    IS(98, cudaLaunchKernel(NULL, one, one, NULL, 0, NULL)); IS(1, cudaLaunchKernel(kernel, one, one, NULL, 1 << 20, NULL));
    IS(0, cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 256, 0)); IS(major == 7 ? 4 : major == 8 ? 6 : 8, blocks);
}

static void cards(void) {
    int count, device, can; char text[32], name[64]; void *handle; uint64_t memory[3]; unsigned power, flags;
    IS(0, cudaGetDeviceCount(&count)); IS(2, count);
    IS(0, cuDevicePrimaryCtxGetState(1, &flags, &can)); IS(0, can);
    IS(0, cudaSetDevice(1)); IS(0, cudaGetDevice(&device)); IS(1, device); IS(101, cudaSetDevice(2)); IS(101, cudaGetLastError());
    IS(0, cuDevicePrimaryCtxGetState(1, &flags, &can)); IS(1, can); IS(0, cuDevicePrimaryCtxGetState(0, &flags, &can)); IS(0, can);
    void *p; IS(0, cudaMalloc(&p, 100 * MIB)); IS(924 * MIB, unused());
    IS(0, cudaSetDevice(0)); IS(1024 * MIB, unused()); Attributes at; IS(0, cudaPointerGetAttributes(&at, p)); IS(1, at.device);
    IS(0, cudaDeviceCanAccessPeer(&can, 0, 1)); IS(1, can); IS(0, cudaDeviceCanAccessPeer(&can, 1, 1)); IS(0, can);
    IS(0, cudaDeviceEnablePeerAccess(1, 0)); IS(704, cudaDeviceEnablePeerAccess(1, 0));
    IS(0, cudaDeviceGetPCIBusId(text, 32, 1)); IS(0, strcmp("0000:05:00.0", text));
    IS(0, nvmlInit_v2()); IS(0, nvmlDeviceGetHandleByIndex_v2(1, &handle)); IS(2, nvmlDeviceGetHandleByIndex_v2(2, &handle));
    IS(0, nvmlDeviceGetHandleByIndex_v2(1, &handle)); IS(0, nvmlDeviceGetMemoryInfo(handle, memory)); IS(924 * MIB, memory[1]);
    IS(0, nvmlDeviceGetName(handle, name, 64)); IS(0, strcmp("NVIDIA Test 1", name)); IS(3, nvmlDeviceGetPowerUsage(handle, &power));
}

static void release(const char *which) {
    char room[2048]; int version, old = which[0] == '1' && which[1] == '2'; memset(room, 0x5a, sizeof room);
    IS(0, cudaRuntimeGetVersion(&version)); IS(old ? 12080 : 13000, version); IS(0, cudaDriverGetVersion(&version)); IS(old ? 12080 : 13000, version);
    IS(0, old ? cudaGetDeviceProperties_v2(room, 0) : cudaGetDeviceProperties(room, 0));
    IS(0, strcmp("NVIDIA Test 1", room)); IS(1024 * MIB, *(size_t *)(room + 288)); IS(8, *(int *)(room + 360)); IS(6, *(int *)(room + 364));
    IS(82, *(int *)(room + (old ? 388 : 384)));
    IS(0, room[old ? 1031 : 1007]); IS(0x5a, room[old ? 1032 : 1008]);
    // The function of this name has three arguments in CUDA 12, and seven in CUDA 13.
    int (*info)() = NULL; int status = 7; unsigned long long id; void *stream, *graph = &room, *nodes; size_t count = 99;
    extern int cudaStreamGetCaptureInfo(); info = cudaStreamGetCaptureInfo;
    IS(0, cudaStreamCreateWithFlags(&stream, 1)); IS(0, cudaStreamBeginCapture(stream, 0));
    IS(0, info(stream, &status, &id, &graph, &nodes, NULL, &count)); IS(1, status); IS(old ? 99 : 0, count); IS(old, graph == &room);
    // Both releases find functions of the driver by name.
    int (*reserve)(uint64_t *, size_t, size_t, uint64_t, unsigned long long); int found = 9; uint64_t at; void *function;
    IS(0, cudaGetDriverEntryPointByVersion("cuMemAddressReserve", (void **)&reserve, 12000, 0, &found)); IS(0, found);
    IS(0, reserve(&at, 2 * MIB, 0, 0, 0)); IS(0, cuMemAddressFree(at, 2 * MIB));
    IS(0, cudaGetDriverEntryPointByVersion("cuNoSuchThing", &function, 12000, 0, &found)); IS(1, found); IS(0, function);
    IS(500, cuGetProcAddress_v2("cuNoSuchThing", &function, 12000, 0, &found)); IS(0, cuGetProcAddress_v2("cuMemAlloc", &function, 12000, 0, &found));
    IS(1, function == (void *)cuMemAlloc_v2); IS(801, cuGetExportTable(NULL, NULL));
}

static void libraries(void) {
    void *solver, *dnn, *lstm; int size = 77; size_t weights;
    IS(0, cusolverDnCreate(&solver)); IS(1, solver != NULL); IS(0, cusolverDnSgetrf_bufferSize(solver, 3, 3, NULL, 3, &size)); IS(0, size);
    IS(0, cublasSgemm_v2());
    IS(0, cudnnCreate(&dnn)); IS(0, cudnnCreateRNNDescriptor(&lstm));
    // Two layers, both directions, 10 inputs, 20 states, biases: as PyTorch counts the parameters of such a network.
    IS(0, cudnnSetRNNDescriptor_v8(lstm, 0, 2, 2, 1, 0, 0, 0, 0, 10, 20, 20, 2, NULL, 0));
    IS(0, cudnnGetRNNWeightSpaceSize(dnn, lstm, &weights));
    IS(4 * (2 * 80 * (10 + 20 + 2) + 2 * 80 * (40 + 20 + 2)), weights);
    // The settings give the size of an execution plan's workspace.
    int64_t count, bytes = -1; IS(0, cudnnBackendGetAttribute(dnn, 402, 3, 1, &count, &bytes));
    IS(1, count); IS(getenv("VRAMLAB_REHEARSAL_CUDNN_WORKSPACE") ? 5000000 : 0, bytes);
}

static void forks(void) {
    void *p; IS(0, cudaMalloc(&p, 100));
    pid_t child = fork();
    if (child == 0) { int n; _exit(cudaMalloc(&p, 100) == 3 && cudaGetDeviceCount(&n) == 3 ? 0 : 1); }
    int status; IS(child, waitpid(child, &status, 0)); IS(0, status);
}

// Allocates memory, prints how much is left, and keeps the memory until its standard input is written or closed.
static void holds(const char *mib) {
    void *p; IS(0, cudaMalloc(&p, strtoul(mib, NULL, 10) * MIB)); printf("%zu\n", unused() / MIB); fflush(stdout);
    getchar();
}

static void shares(void) {
    void *p, *q; IpcHandle handle; int to[2], status; IS(0, pipe(to));
    pid_t child = fork();
    if (child == 0) {
        IS(sizeof handle, read(to[0], &handle, sizeof handle));
        IS(924 * MIB, unused()); IS(0, cudaIpcOpenMemHandle(&q, handle, 1)); IS(924 * MIB, unused());
        IS(1, cudaFree(q)); IS(0, cudaIpcCloseMemHandle(q)); IS(2, cudaMalloc(&q, 926 * MIB)); IS(0, cudaMalloc(&q, 924 * MIB)); exit(0);
    }
    IS(0, cudaMalloc(&p, 100 * MIB)); IS(0, cudaIpcGetMemHandle(&handle, p)); IS(sizeof handle, write(to[1], &handle, sizeof handle));
    IS(child, waitpid(child, &status, 0)); IS(0, status); IS(924 * MIB, unused());
}

int main(int count, char **words) {
    static const struct { const char *name; void (*run)(void); } all[] = {{"memory", memory}, {"exhaustion", exhaustion}, {"pools", pools},
        {"virtual_memory", virtual_memory}, {"copies", copies}, {"layer", layer}, {"events", events}, {"capture", capture}, {"launches", launches},
        {"cards", cards}, {"libraries", libraries}, {"forks", forks}, {"shares", shares}};
    if (count == 3 && !strcmp(words[1], "release")) { release(words[2]); return 0; }
    if (count == 3 && !strcmp(words[1], "holds")) { holds(words[2]); return 0; }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) if (count == 2 && !strcmp(words[1], all[i].name)) { all[i].run(); return 0; }
    fprintf(stderr, "which?\n"); return 2;
}
