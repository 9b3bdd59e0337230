/* Stands in for cuFFT where no card is: every plan is made, wants no work area, and computes nothing. What PyTorch allocates around it is real.

       gcc -shared -fPIC -Wl,-soname,libcufft.so.12 -Wl,--version-script=cufft.map -o libcufft.so.12 cufft.c

   and LD_PRELOAD=libcufft.so.12 before the stand-in for the driver. */
#include <stddef.h>

int cufftCreate(int *plan) {
    static int last;
    *plan = ++last;
    return 0;
}

int cufftDestroy(int plan) {
    (void)plan;
    return 0;
}

int cufftSetAutoAllocation(int plan, int allocates) {
    (void)plan, (void)allocates;
    return 0;
}

int cufftSetStream(int plan, void *stream) {
    (void)plan, (void)stream;
    return 0;
}

int cufftSetWorkArea(int plan, void *area) {
    (void)plan, (void)area;
    return 0;
}

int cufftXtExec(int plan, void *input, void *output, int direction) {
    (void)plan, (void)input, (void)output, (void)direction;
    return 0;
}

int cufftXtMakePlanMany(int plan, int rank, long long *size, long long *in_size, long long in_stride, long long in_distance, int in_type,
                        long long *out_size, long long out_stride, long long out_distance, int out_type, long long batch, size_t *work_area,
                        int type) {
    (void)plan, (void)rank, (void)size, (void)in_size, (void)in_stride, (void)in_distance, (void)in_type;
    (void)out_size, (void)out_stride, (void)out_distance, (void)out_type, (void)batch, (void)type;
    *work_area = 0;
    return 0;
}
