// Looks functions up by name in a library that is loaded under cuBLASLt's name.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int count, char **words) {
    void *library = dlopen(words[1], RTLD_NOW);
    if (!library) { puts(dlerror()); return 1; }
    int (*create)(void **) = dlsym(library, "cublasLtCreate");
    int (*version)(void) = dlsym(library, "cublasLtGetVersion");
    int (*own)(void) = dlsym(library, "own");
    void *handle = NULL;
    // The rehearsal's, the other's, and what the other finds in itself.
    printf("%d %d %d\n", create(&handle), version(), own());
    return !(handle && dlsym(library, "cublasLtNoSuchFunction") == NULL && dlsym(RTLD_DEFAULT, "strlen") != NULL);
}
