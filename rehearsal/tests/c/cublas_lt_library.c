// What the tests take for the wheel's cuBLASLt: it cannot start.
#define _GNU_SOURCE
#include <dlfcn.h>

int cublasLtCreate(void **handle) { return 1; }
int cublasLtGetVersion(void) { return 130100; }

// What `RTLD_DEFAULT` finds depends on who asks: in this library, its own functions.
int own(void) { return dlsym(RTLD_DEFAULT, "own") == own; }
