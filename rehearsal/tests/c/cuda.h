// The prototypes that the test programs use, after the public documentation of the CUDA runtime and driver.
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned x, y, z; } dim3;
typedef struct { int type, device; void *device_pointer, *host_pointer; long reserved[8]; } Attributes;
typedef struct { int type, handles, location_type, location; void *more[4]; } Properties;
typedef struct { int location_type, location; unsigned flags; } Access;
typedef struct { char bytes[64]; } IpcHandle;

int cudaGetDeviceCount(int *), cudaSetDevice(int), cudaGetDevice(int *), cudaDeviceSynchronize(void);
int cudaGetDeviceProperties(void *, int), cudaGetDeviceProperties_v2(void *, int), cudaDeviceGetAttribute(int *, int, int);
int cudaDriverGetVersion(int *), cudaRuntimeGetVersion(int *), cudaGetLastError(void), cudaPeekAtLastError(void);
const char *cudaGetErrorName(int), *cudaGetErrorString(int);
int cudaMalloc(void **, size_t), cudaFree(void *), cudaMemGetInfo(size_t *, size_t *), cudaMallocManaged(void **, size_t, unsigned);
int cudaMallocAsync(void **, size_t, void *), cudaFreeAsync(void *, void *), cudaDeviceGetDefaultMemPool(void **, int);
int cudaMemPoolGetAttribute(void *, int, void *), cudaMemPoolSetAttribute(void *, int, void *), cudaMemPoolTrimTo(void *, size_t);
int cudaHostAlloc(void **, size_t, unsigned), cudaFreeHost(void *), cudaHostRegister(void *, size_t, unsigned), cudaHostUnregister(void *);
int cudaPointerGetAttributes(Attributes *, const void *);
int cudaMemcpy(void *, const void *, size_t, int), cudaMemcpyAsync(void *, const void *, size_t, int, void *);
int cudaMemcpy2D(void *, size_t, const void *, size_t, size_t, size_t, int), cudaMemset(void *, int, size_t);
int cudaStreamCreateWithFlags(void **, unsigned), cudaStreamDestroy(void *), cudaStreamSynchronize(void *);
int cudaStreamWaitEvent(void *, void *, unsigned), cudaLaunchHostFunc(void *, void (*)(void *), void *);
int cudaEventCreateWithFlags(void **, unsigned), cudaEventDestroy(void *), cudaEventRecord(void *, void *);
int cudaEventQuery(void *), cudaEventSynchronize(void *), cudaEventElapsedTime(float *, void *, void *);
int cudaStreamBeginCapture(void *, int), cudaStreamEndCapture(void *, void **), cudaStreamIsCapturing(void *, int *);
int cudaThreadExchangeStreamCaptureMode(int *);
int cudaStreamGetCaptureInfo_v2(void *, int *, unsigned long long *, void **, const void **, size_t *);
int cudaGraphGetNodes(void *, void **, size_t *), cudaGraphInstantiateWithFlags(void **, void *, unsigned long long);
int cudaGraphLaunch(void *, void *), cudaGraphDestroy(void *), cudaGraphExecDestroy(void *), cudaGraphNodeGetType(void *, int *);
int cudaGraphDebugDotPrint(void *, const char *, unsigned);
int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, void *);
void **__cudaRegisterFatBinary(void *);
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *, int *);
int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *, const void *, int, size_t);
int cudaDeviceCanAccessPeer(int *, int, int), cudaDeviceEnablePeerAccess(int, unsigned), cudaDeviceGetPCIBusId(char *, int, int);
int cudaGetDriverEntryPointByVersion(const char *, void **, unsigned, unsigned long long, int *);
int cudaIpcGetMemHandle(IpcHandle *, void *), cudaIpcOpenMemHandle(void **, IpcHandle, unsigned), cudaIpcCloseMemHandle(void *);
int cuInit(unsigned), cuMemAlloc_v2(uint64_t *, size_t), cuCtxGetCurrent(void **), cuDevicePrimaryCtxGetState(int, unsigned *, int *);
int cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *), cuGetExportTable(const void **, const void *);
int cuMemAddressReserve(uint64_t *, size_t, size_t, uint64_t, unsigned long long), cuMemAddressFree(uint64_t, size_t);
int cuMemCreate(uint64_t *, size_t, const Properties *, unsigned long long), cuMemRelease(uint64_t);
int cuMemMap(uint64_t, size_t, size_t, uint64_t, unsigned long long), cuMemUnmap(uint64_t, size_t);
int cuMemSetAccess(uint64_t, size_t, const Access *, size_t), cuMemGetAddressRange_v2(uint64_t *, size_t *, uint64_t);
int cuMemExportToShareableHandle(void *, uint64_t, int, unsigned long long), cuMemImportFromShareableHandle(uint64_t *, void *, int);
int cusolverDnCreate(void **), cusolverDnSgetrf_bufferSize(void *, int, int, float *, int, int *), cublasSgemm_v2(void);
int cudnnBackendGetAttribute(void *, int, int, int64_t, int64_t *, void *);
int cudnnCreate(void **), cudnnSetRNNDescriptor_v8(void *, int, int, int, int, int, int, int, int, int, int, int, int, void *, unsigned);
int cudnnCreateRNNDescriptor(void **), cudnnGetRNNWeightSpaceSize(void *, void *, size_t *);
int nvmlInit_v2(void), nvmlDeviceGetHandleByIndex_v2(unsigned, void **), nvmlDeviceGetMemoryInfo(void *, uint64_t *);
int nvmlDeviceGetName(void *, char *, unsigned), nvmlDeviceGetPowerUsage(void *, unsigned *);
int vramlab_rehearsal_counters(uint64_t *);
int vramlab_rehearsal_host(uint64_t *);

#define MIB ((size_t)1 << 20)
#define IS(wanted, got) do { long long w = (long long)(wanted), g = (long long)(got); \
    if (w != g) { fprintf(stderr, "%s:%d: %s is %lld, expected %lld\n", __FILE__, __LINE__, #got, g, w); exit(1); } } while (0)
extern uint64_t vramlab_rehearsal_writes;
void vramlab_rehearsal_listen(int32_t (*)(uint64_t, uint64_t, uint64_t)), vramlab_rehearsal_queue(int64_t), vramlab_rehearsal_withdraw(void);
int vramlab_rehearsal_show(void *, const void *, size_t); size_t vramlab_rehearsal_unqueue(void); int64_t vramlab_rehearsal_written(void *, size_t);
const char *vramlab_rehearsal_python(void);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
