/* Stands in for libcublas.so beside the fake driver, whose "device memory" is
   the host's: computes the products that it is asked for, column by column, as
   cuBLAS's manual defines them. So a call with swapped sizes, operands or leading
   dimensions gives wrong results here too.

     FAKE_CUBLAS     result of the products: a cublasStatus_t, 0 unless set
     FAKE_CUBLAS_OFF added to the first element of each result
     FAKE_CUBLAS_WORKSPACE  result of cublasSetWorkspace

   While the fake driver captures, it launches a kernel through it in place of the
   product, as cuBLAS would. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The fake driver's. */
static struct {
    int launched, capturing, captured;
} *stream;

static size_t workspace;

static float widen(uint16_t bits, int bf16) {
    uint32_t word;
    if (bf16) {
        word = (uint32_t)bits << 16;
    } else {
        uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = bits >> 10 & 31;
        uint32_t fraction = bits & 1023;
        if (exponent == 0) {
            float value = (float)fraction / 16777216.0f;
            return sign ? -value : value;
        }
        word = sign | (exponent == 31 ? 255u : exponent + 112) << 23 | fraction << 13;
    }
    float value;
    memcpy(&value, &word, 4);
    return value;
}

/* Towards zero: less exact than cuBLAS, and within what counts as right. */
static uint16_t narrow(float value, int bf16) {
    uint32_t word;
    memcpy(&word, &value, 4);
    if (bf16)
        return (uint16_t)(word >> 16);
    int exponent = (int)(word >> 23 & 255) - 112;
    if (exponent <= 0)
        return (uint16_t)(word >> 16 & 0x8000);
    return (uint16_t)((word >> 16 & 0x8000) | (uint32_t)exponent << 10 | (word >> 13 & 1023));
}

enum { R_32F = 0, R_16F = 2, R_16BF = 14 };

static float load(const void *matrix, size_t at, int type) {
    return type == R_32F ? ((const float *)matrix)[at]
                         : widen(((const uint16_t *)matrix)[at], type == R_16BF);
}

static int status(void) {
    const char *value = getenv("FAKE_CUBLAS");
    return value ? atoi(value) : 0;
}

static int product(int ta, int tb, int m, int n, int k, const float *alpha, const void *a, int at,
                   int lda, const void *b, int bt, int ldb, const float *beta, void *c, int ct,
                   int ldc) {
    const char *off = getenv("FAKE_CUBLAS_OFF");
    if (ta || tb || lda < m || ldb < (k > 1 ? k : 1) || ldc < m || *alpha != 1 || *beta != 0)
        return 7; /* CUBLAS_STATUS_INVALID_VALUE */
    if (stream->capturing) {
        stream->captured++;
        return workspace ? status() : 3; /* CUBLAS_STATUS_ALLOC_FAILED */
    }
    for (size_t j = 0; j < (size_t)n; j++)
        for (size_t i = 0; i < (size_t)m; i++) {
            float sum = i + j == 0 && off ? (float)atof(off) : 0;
            for (size_t l = 0; l < (size_t)k; l++)
                sum += load(a, l * (size_t)lda + i, at) * load(b, j * (size_t)ldb + l, bt);
            if (ct == R_32F)
                ((float *)c)[j * (size_t)ldc + i] = sum;
            else
                ((uint16_t *)c)[j * (size_t)ldc + i] = narrow(sum, ct == R_16BF);
        }
    return status();
}

int cublasGetProperty(int property, int *value) {
    *value = 13 + property;
    return 0;
}

int cublasCreate_v2(void **handle) {
    *handle = &product;
    return 0;
}

int cublasDestroy_v2(void *handle) { return handle ? 0 : 1; }

int cublasSetStream_v2(void *handle, void *of_driver) {
    stream = of_driver;
    return handle && stream ? 0 : 1;
}

int cublasSetWorkspace_v2(void *handle, void *memory, size_t bytes) {
    const char *result = getenv("FAKE_CUBLAS_WORKSPACE");
    workspace = bytes;
    return result ? atoi(result) : handle && memory && bytes == 32 << 20 ? 0 : 7;
}

int cublasSgemm_v2(void *handle, int ta, int tb, int m, int n, int k, const float *alpha,
                   const float *a, int lda, const float *b, int ldb, const float *beta, float *c,
                   int ldc) {
    (void)handle;
    return product(ta, tb, m, n, k, alpha, a, R_32F, lda, b, R_32F, ldb, beta, c, R_32F, ldc);
}

int cublasGemmEx(void *handle, int ta, int tb, int m, int n, int k, const void *alpha,
                 const void *a, int at, int lda, const void *b, int bt, int ldb, const void *beta,
                 void *c, int ct, int ldc, int compute, int algorithm) {
    (void)handle;
    if (algorithm != -1 || compute != (at == R_32F ? 77 : 68))
        return 15; /* CUBLAS_STATUS_NOT_SUPPORTED */
    return product(ta, tb, m, n, k, alpha, a, at, lda, b, bt, ldb, beta, c, ct, ldc);
}
