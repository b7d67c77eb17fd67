/* Stands in for libcuda.so.1, so that a machine without a GPU can show what the
   program says on machines of every kind. "Device memory" is the host's, and a
   launch does nothing or computes the product, whichever the test asks for.

   Environment variables set what it is; each has a default that works:

     FAKE_INIT       result of cuInit
     FAKE_VERSION    CUDA version of the driver, 12080 for 12.8
     FAKE_DEVICES    number of devices
     FAKE_CC         compute capability, 90 for 9.0
     FAKE_OLD_DEVICE number of a device of compute capability 5.2
     FAKE_FREE       free bytes of device memory
     FAKE_ALLOC      result of cuMemAlloc
     FAKE_CONTEXT    result of cuDevicePrimaryCtxRetain
     FAKE_MODULE     result of cuModuleLoadDataEx
     FAKE_FUNCTION   result of cuModuleGetFunction
     FAKE_LAUNCH     result of cuLaunchKernel
     FAKE_SYNC       result of cuCtxSynchronize, once a kernel was launched
     FAKE_CAPTURE    result of cuStreamBeginCapture
     FAKE_GRAPH      result of cuGraphInstantiateWithFlags
     FAKE_ELAPSED    microseconds between two events, 100,000 unless set; as many
                     times this as graphs were launched between them
     FAKE_KERNEL     what a launch does: nothing, right, or wrong (one element)

   WITHOUT, given to the compiler, is a function to leave out. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t address;

/* The one stream: whether a kernel was launched, whether it captures, and how many
   launches it has captured. The fake cuBLAS knows this structure. */
static struct {
    int launched, capturing, captured;
} stream_0;

static int graphs_alive, graphs_launched;

static long long setting(const char *name, long long otherwise) {
    const char *value = getenv(name);
    return value ? atoll(value) : otherwise;
}

int cuInit(unsigned flags) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible && !*visible)
        return 100; /* as the driver answers where the variable hides all */
    return flags ? 1 : (int)setting("FAKE_INIT", 0);
}

int cuDriverGetVersion(int *version) {
    *version = (int)setting("FAKE_VERSION", 12080);
    return 0;
}

static const struct {
    int code;
    const char *name, *text;
} ERRORS[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the provided PTX was compiled with an unsupported toolchain."},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "system has unsupported display driver / cuda driver combination"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static int describe(int code, const char **answer, int text) {
    for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++)
        if (ERRORS[i].code == code) {
            *answer = text ? ERRORS[i].text : ERRORS[i].name;
            return 0;
        }
    *answer = NULL; /* as the driver does for a code that it does not know */
    return 1;
}

int cuGetErrorName(int code, const char **name) { return describe(code, name, 0); }
int cuGetErrorString(int code, const char **text) { return describe(code, text, 1); }

int cuDeviceGetCount(int *count) {
    *count = (int)setting("FAKE_DEVICES", 1);
    return 0;
}

int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return 0;
}

int cuDeviceGetName(char *name, int length, int device) {
    snprintf(name, (size_t)length, "Fake GPU %c", 'A' + device);
    return 0;
}

int cuDeviceGetUuid(unsigned char uuid[16], int device) {
    memset(uuid, 0xab, 16);
    uuid[15] = (unsigned char)device;
    return 0;
}

/* The numbers are those of CUdevice_attribute. */
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    int cc = (int)setting("FAKE_CC", 90);
    if (device == setting("FAKE_OLD_DEVICE", -1))
        cc = 52;
    switch (attribute) {
    case 1: *value = 1024; break;          /* threads in a block */
    case 10: *value = 32; break;           /* threads in a warp */
    case 13: *value = 1980000; break;      /* clock, kHz */
    case 16: *value = 132; break;          /* multiprocessors */
    case 32: *value = 1; break;            /* ECC */
    case 36: *value = 3201000; break;      /* memory clock, kHz */
    case 37: *value = 6144; break;         /* memory bus, bits */
    case 38: *value = 1 << 20; break;      /* L2 cache, bytes */
    case 39: *value = 2048; break;         /* threads on a multiprocessor */
    case 75: *value = cc / 10; break;      /* compute capability */
    case 76: *value = cc % 10; break;
    case 97: *value = 232448; break;       /* shared memory of a block, bytes */
    default: return 1;
    }
    return 0;
}

#define TOTAL (16LL << 30)

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    (void)device;
    *bytes = (size_t)TOTAL;
    return 0;
}

int cuMemGetInfo_v2(size_t *available, size_t *total) {
    *available = (size_t)setting("FAKE_FREE", TOTAL / 2);
    *total = (size_t)TOTAL;
    return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
    (void)device;
    *context = &stream_0;
    return (int)setting("FAKE_CONTEXT", 0);
}

int cuDevicePrimaryCtxRelease_v2(int device) {
    (void)device;
    return 0;
}

int cuCtxSetCurrent(void *context) { return context ? 0 : 201; }

#ifndef WITHOUT_cuCtxSynchronize
int cuCtxSynchronize(void) {
    if (stream_0.capturing)
        return 900; /* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED */
    return stream_0.launched ? (int)setting("FAKE_SYNC", 0) : 0;
}
#endif

/* PTX for a later driver or another device is refused, as the driver does. PTX
   7.0 came with CUDA 11.0, 7.1 with 11.1 and so on to 8.5, and 9.0 with 13.0. */
int cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *options,
                       void **values) {
    const char *version = strstr(image, ".version "), *target = strstr(image, ".target sm_");
    int major, minor, capability, driver, cc = (int)setting("FAKE_CC", 90);
    char specific;
    (void)count, (void)options, (void)values;
    *module = (void *)image;
    if (!version || sscanf(version, ".version %d.%d", &major, &minor) != 2 || !target ||
        sscanf(target, ".target sm_%d%c", &capability, &specific) != 2)
        return 218;
    cuDriverGetVersion(&driver);
    if (driver < 1000 * (major + 4) + 10 * minor)
        return 222;
    if (specific == 'a' ? cc != capability : cc < capability)
        return 209;
    return (int)setting("FAKE_MODULE", 0);
}

int cuModuleUnload(void *module) {
    (void)module;
    return 0;
}

/* A function is its name. */
int cuModuleGetFunction(void **function, void *module, const char *name) {
    (void)module;
    *function = strdup(name);
    return (int)setting("FAKE_FUNCTION", 0);
}

int cuFuncSetAttribute(void *function, int attribute, int value) {
    (void)function, (void)attribute, (void)value;
    return 0;
}

/* The numbers are those of CUfunction_attribute. */
int cuFuncGetAttribute(int *value, int attribute, void *function) {
    (void)function;
    switch (attribute) {
    case 1: *value = 2048; break; /* static shared memory, bytes */
    case 3: *value = 0; break;    /* local memory, bytes */
    case 4: *value = 40; break;   /* registers */
    default: return 1;
    }
    return 0;
}

int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads,
                                                size_t dynamic) {
    (void)function, (void)dynamic;
    *blocks = 1024 / threads;
    return 0;
}

int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
    (void)flags, (void)priority;
    *stream = &stream_0;
    return 0;
}

int cuStreamBeginCapture_v2(void *stream, int mode) {
    int result = (int)setting("FAKE_CAPTURE", 0);
    if (result || stream_0.capturing)
        return result ? result : 901; /* CUDA_ERROR_STREAM_CAPTURE_INVALIDATED */
    stream_0.capturing = stream && mode == 2;
    stream_0.captured = 0;
    return stream_0.capturing ? 0 : 1;
}

/* A graph is how many launches it has, and is freed by its user. */
int cuStreamEndCapture(void *stream, int **graph) {
    (void)stream;
    *graph = NULL;
    if (!stream_0.capturing)
        return 1;
    stream_0.capturing = 0;
    *graph = malloc(sizeof **graph);
    **graph = stream_0.captured;
    graphs_alive++;
    return 0;
}

int cuGraphInstantiateWithFlags(int **executable, const int *graph, unsigned long long flags) {
    int result = (int)setting("FAKE_GRAPH", 0);
    if (result || !graph || flags)
        return result ? result : 1;
    *executable = malloc(sizeof **executable);
    **executable = *graph;
    graphs_alive++;
    return 0;
}

/* An empty graph, or more than one alive beside the one that runs, is a mistake of
   the caller's. */
int cuGraphLaunch(const int *executable, void *stream) {
    if (!stream || stream_0.capturing || *executable < 1 || graphs_alive != 1)
        return 1;
    stream_0.launched = 1;
    graphs_launched++;
    return 0;
}

int cuGraphExecDestroy(int *executable) {
    free(executable);
    graphs_alive--;
    return 0;
}

int cuGraphDestroy(int *graph) {
    free(graph);
    graphs_alive--;
    return 0;
}

int cuStreamDestroy_v2(void *stream) {
    (void)stream;
    return 0;
}

int cuMemAlloc_v2(address *pointer, size_t bytes) {
    int result = (int)setting("FAKE_ALLOC", 0);
    if (!result)
        *pointer = (uintptr_t)malloc(bytes);
    return result;
}

int cuMemFree_v2(address pointer) {
    free((void *)(uintptr_t)pointer);
    return 0;
}

int cuMemAllocHost_v2(void **pointer, size_t bytes) {
    *pointer = malloc(bytes);
    return 0;
}

int cuMemFreeHost(void *pointer) {
    free(pointer);
    return 0;
}

int cuMemcpyHtoD_v2(address to, const void *from, size_t bytes) {
    memcpy((void *)(uintptr_t)to, from, bytes);
    return 0;
}

int cuMemcpyDtoH_v2(void *to, address from, size_t bytes) {
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return 0;
}

/* Streams have nothing to wait for here. */
int cuMemcpyHtoDAsync_v2(address to, const void *from, size_t bytes, void *stream) {
    (void)stream;
    return cuMemcpyHtoD_v2(to, from, bytes);
}

int cuMemcpyDtoHAsync_v2(void *to, address from, size_t bytes, void *stream) {
    (void)stream;
    return cuMemcpyDtoH_v2(to, from, bytes);
}

int cuMemsetD32_v2(address pointer, unsigned value, size_t count) {
    for (size_t i = 0; i < count; i++)
        ((unsigned *)(uintptr_t)pointer)[i] = value;
    return 0;
}

int cuMemsetD8Async(address pointer, unsigned char value, size_t count, void *stream) {
    (void)stream;
    memset((void *)(uintptr_t)pointer, value, count);
    return 0;
}

int cuEventCreate(void **event, unsigned flags) {
    (void)flags;
    *event = &stream_0;
    return 0;
}

int cuEventDestroy_v2(void *event) {
    (void)event;
    return 0;
}

static int graphs_before, graphs_between;

int cuEventRecord(void *event, void *stream) {
    (void)event, (void)stream;
    graphs_between = graphs_launched - graphs_before;
    graphs_before = graphs_launched;
    return 0;
}

int cuEventElapsedTime(float *milliseconds, void *start, void *stop) {
    (void)start, (void)stop;
    *milliseconds = (float)setting("FAKE_ELAPSED", 100000) / 1000;
    if (graphs_between)
        *milliseconds *= (float)graphs_between;
    return 0;
}

#ifndef WITHOUT_cuTensorMapEncodeTiled
/* The map of a matrix holds its address, and so passes for one. */
int cuTensorMapEncodeTiled(address *map, int type, unsigned rank, address matrix) {
    (void)type, (void)rank;
    *map = matrix;
    return 0;
}
#endif

/* Kernels named gemm_... take A, B, C, M, N, K; gemm_persistent_..., gemm_tma_... and
   gemm_split_k_... the parts after C, and those that copy B by the engine a map of it
   before A. Parts come to no good here: C is written whole, so adding them up does
   nothing. Other kernels do nothing. */
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                   unsigned by, unsigned bz, unsigned shared, void *stream, void **params,
                   void **extra) {
    const char *kernel = getenv("FAKE_KERNEL");
    int result = (int)setting("FAKE_LAUNCH", 0);
    (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz;
    (void)shared, (void)stream, (void)extra;
    if (result)
        return result;
    if (stream_0.capturing) {
        stream_0.captured++; /* and does not run */
        return 0;
    }
    stream_0.launched = 1;
    if (!kernel || !strcmp(kernel, "nothing") || strncmp(function, "gemm_", 5) ||
        !strcmp(function, "gemm_add_parts"))
        return 0;
    size_t length = strlen(function);
    int any = length > 4 && !strcmp((char *)function + length - 4, "_any");
    int split = !strncmp(function, "gemm_split_k_", 13);
    int tma = !strncmp(function, "gemm_tma_", 9) || (split && !any);
    int parts = tma || split || !strncmp(function, "gemm_persistent_", 16);
    params += tma;
    void **sizes = params + 3 + parts;
    const float *a = (const float *)(uintptr_t)*(address *)params[0];
    const float *b = (const float *)(uintptr_t)*(address *)params[1];
    float *c = (float *)(uintptr_t)*(address *)params[2];
    unsigned m = *(unsigned *)sizes[0], n = *(unsigned *)sizes[1], k = *(unsigned *)sizes[2];
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            float sum = 0;
            for (size_t l = 0; l < k; l++)
                sum += a[i * k + l] * b[l * n + j];
            c[i * n + j] = sum;
        }
    if (!strcmp(kernel, "wrong") && m > 2 && n > 3)
        c[2 * n + 3] += 1;
    return 0;
}

/* CUlaunchConfig and CUlaunchAttribute of cuda.h, as far as this program sets them. */
struct attribute {
    unsigned id, padding, value[16];
};
struct config {
    unsigned grid[3], block[3], shared;
    void *stream;
    const struct attribute *attributes;
    unsigned count;
};

/* The blocks of a cluster, or 0 where an attribute is none of those that are known:
   4 is the cluster's dimensions, 6 lets the launch start early. */
static unsigned cluster_of(const struct config *config) {
    unsigned blocks = 1;
    for (unsigned i = 0; i < config->count; i++) {
        const struct attribute *attribute = &config->attributes[i];
        if (attribute->id == 4 && attribute->value[1] == 1 && attribute->value[2] == 1)
            blocks = attribute->value[0];
        else if (attribute->id != 6 || attribute->value[0] != 1)
            return 0;
    }
    return blocks > 8 || config->grid[0] % blocks ? 0 : blocks;
}

int cuLaunchKernelEx(const struct config *config, void *function, void **params, void **extra) {
    if (!config->count || !cluster_of(config))
        return 1;
    return cuLaunchKernel(function, config->grid[0], config->grid[1], config->grid[2],
                          config->block[0], config->block[1], config->block[2], config->shared,
                          config->stream, params, extra);
}

int cuOccupancyMaxActiveClusters(int *clusters, void *function, const struct config *config) {
    unsigned blocks = cluster_of(config);
    (void)function;
    if (!blocks)
        return 1;
    *clusters = 132 / blocks;
    return 0;
}
