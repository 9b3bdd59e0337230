// What the tests take for the wheel's cuDNN: it plans for properties of a card, and refuses handles. VERSION is its release;
// with REFUSES it finishes no heuristics, with FAILS no plan, with ALONE no engine for a card of capability 8.0. With COMPILES
// its engine says that it compiles, and each plan that is finished is printed. With SILENT configurations know no workspace.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef VERSION
#define VERSION 91900
#endif

struct descriptor { int kind, capability, has_graph, is_finished; };

size_t cudnnGetVersion(void) { return VERSION; }

void cudnnGetLastErrorString(char *text, size_t capacity) { strncpy(text, "as the library says", capacity); }

int cudnnBackendCreateDescriptor(int kind, struct descriptor **made) {
    *made = calloc(1, sizeof **made);
    (*made)->kind = kind;
    return 0;
}

int cudnnBackendDestroyDescriptor(struct descriptor *descriptor) {
    free(descriptor);
    return 0;
}

int cudnnBackendSetAttribute(struct descriptor *to, int attribute, int type, int64_t count, const void *values) {
    struct descriptor *value = type == 15 ? *(struct descriptor *const *)values : NULL;
    switch (attribute) {
    case 400: case 800: return 3000;
    case 201: case 1300: to->has_graph = value->kind == 15; return 0;
    case 204: case 407: case 1307: to->capability = value->is_finished ? value->capability : 0; return 0;
    case 2702: {
        const char *found = memmem(values, count, "\"deviceVer\":", 12);
        to->capability = found ? atoi(found + 12) : 0;
        return 0;
    }
    default: return 0;
    }
}

int cudnnBackendFinalize(struct descriptor *descriptor) {
    int is_good = 1;
    switch (descriptor->kind) {
    case 4: is_good = descriptor->capability && descriptor->has_graph; break;
    case 2: case 5: case 38: is_good = descriptor->capability > 0; break;
    }
#ifdef REFUSES
    if (descriptor->kind == 4) return 3000;
#endif
#ifdef FAILS
    if (descriptor->kind == 5) return 3000;
#endif
#ifdef ALONE
    if (descriptor->kind == 2 && descriptor->capability == 800) return 3000;
#endif
#ifdef COMPILES
    if (descriptor->kind == 5) printf(" compiled");
#endif
    descriptor->is_finished = is_good;
    return is_good ? 0 : 2000;
}

int cudnnBackendGetAttribute(struct descriptor *from, int attribute, int type, int64_t requested, int64_t *count, void *values) {
    if (!from->is_finished && from->kind != 3 && from->kind != 2) return 2000;
    *count = attribute == 202 ? 2 : 1;
    if (values && requested > 0 && attribute == 402) *(int64_t *)values = 12345;
#ifdef COMPILES
    if (values && requested > 0 && attribute == 1305) *(int *)values = 0;
#ifdef SILENT
    if (attribute == 303) return 2000;
#endif
    if (values && requested > 0 && attribute == 303) *(int64_t *)values = 12345;
#endif
    if (values && requested > 0 && attribute == 1301) *(int64_t *)values = 7;
    return 0;
}
