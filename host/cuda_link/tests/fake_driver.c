/* Stands in for libcuda.so.1: a handful of its functions, to show that
   arguments and results pass through the jumps unchanged. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int inits;

int cuInit(unsigned flags) {
    inits++;
    return flags == 0 ? atoi(getenv("FAKE_CUINIT")) : 1;
}

int cuDriverGetVersion(int *version) {
    *version = 12345;
    return 0;
}

int cuGetErrorString(int error, const char **text) {
    *text = error == 100 ? "the fake's text" : "another";
    return 0;
}

/* Reports how often cuInit ran, which shows what loads without initialising. */
int cuDeviceGetCount(int *count) {
    *count = inits;
    return 0;
}

/* Every argument goes to the array that `params` points to. x86-64
   passes the last five of them on the stack, aarch64 the last three. */
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                   unsigned by, unsigned bz, unsigned shared, void *stream,
                   void **params, void **extra) {
    uint64_t seen[11] = {(uintptr_t)f, gx, gy, gz, bx, by, bz, shared,
                         (uintptr_t)stream, (uintptr_t)params, (uintptr_t)extra};
    memcpy(params, seen, sizeof seen);
    return 700;
}

/* A float travels in a register of its own class. */
int cuTexRefSetMipmapLevelBias(void *texture, float bias) {
    memcpy(texture, &bias, sizeof bias);
    return 0;
}

struct handle { uint64_t words[8]; };

/* A struct of 64 bytes by value: eight words of stack on x86-64, the most of
   any function. The result is a code that no bindings know. */
int cuIpcOpenMemHandle_v2(uint64_t *seen, struct handle handle, unsigned flags) {
    memcpy(seen, handle.words, sizeof handle.words);
    seen[8] = flags;
    return 12345;
}
