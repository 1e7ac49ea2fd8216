/* The functions that C99 modules of rnnops call: products, packing, lists of rows, scalar functions, random numbers.
   `NUMBER` is the dtype of products. One thread: nothing waits. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#ifdef __cplusplus
#define restrict /* C++ has no such word */
#endif

typedef struct { NUMBER *at; int64_t rows, stride, columns; } matrix; /* rows are `stride` numbers apart */
typedef struct { NUMBER *at; int64_t count; } vector;
static inline matrix matrix_at(NUMBER *at, int64_t rows, int64_t stride, int64_t columns) { /* C++ has no (matrix){} */
    const matrix it = {at, rows, stride, columns};
    return it;
}
static inline vector vector_at(NUMBER *at, int64_t count) {
    const vector it = {at, count};
    return it;
}

/* -- products: B lies in `packed` row by row ------------------------------------------------------------------- */
static inline void pack_into(matrix b, NUMBER *packed) {
    for (int64_t k = 0; k < b.rows; k++)
        for (int64_t j = 0; j < b.columns; j++) *packed++ = b.at[k * b.stride + j];
}
static inline void pack_transposed_into(matrix b, NUMBER *packed) {
    for (int64_t k = 0; k < b.columns; k++)
        for (int64_t j = 0; j < b.rows; j++) *packed++ = b.at[j * b.stride + k];
}

/* C becomes the product plus the bias, if there is one; with `accumulate` the product is added to C. A's element (i, k)
   is at a + i * down + k * along. COLUMNS sums stay in registers while k runs; compilers make vectors of loops of a
   known length. B has numbers of type T: NUMBER, or whole numbers of a byte each. */
enum { COLUMNS = 16 };
/* GCC keeps an array in registers only if its loops are gone, which -O2 does not do by itself. Small processors have
   fewer registers than sums. */
#if defined __GNUC__ && __GNUC__ >= 8 && !defined __clang__ && UINTPTR_MAX > UINT32_MAX
#define EACH_COLUMN _Pragma("GCC unroll 16") for (int n = 0; n < COLUMNS; n++)
#else
#define EACH_COLUMN for (int n = 0; n < COLUMNS; n++)
#endif
#define PRODUCT(name, T)                                                                                            \
    static inline void name(const NUMBER *a, int64_t down, int64_t along, int64_t inner, const T *b, int64_t stride, \
                            int64_t across, matrix c, bool accumulate, vector bias, int64_t row, int64_t row_end,   \
                            int64_t column, int64_t column_end) {                                                   \
        for (int64_t i = row; i < row_end; i++) {                                                                   \
            const NUMBER *left = a + i * down;                                                                      \
            NUMBER *to = c.at + i * c.stride;                                                                       \
            const NUMBER *start = accumulate ? to : bias.at;                                                        \
            const bool from_zero = !accumulate && bias.count == 0;                                                  \
            int64_t j = column;                                                                                     \
            for (; j + COLUMNS <= column_end; j += COLUMNS) {                                                       \
                NUMBER sums[COLUMNS] = {0};                                                                         \
                if (!from_zero) EACH_COLUMN sums[n] = start[j + n];                                                 \
                for (int64_t k = 0; k < inner; k++) {                                                               \
                    const NUMBER x = left[k * along];                                                               \
                    const T *right = b + k * stride + j * across;                                                   \
                    EACH_COLUMN sums[n] += x * right[n * across];                                                   \
                }                                                                                                   \
                EACH_COLUMN to[j + n] = sums[n];                                                                    \
            }                                                                                                       \
            for (; j < column_end; j++) {                                                                           \
                NUMBER sum = from_zero ? 0 : start[j];                                                              \
                for (int64_t k = 0; k < inner; k++) sum += left[k * along] * b[k * stride + j * across];            \
                to[j] = sum;                                                                                        \
            }                                                                                                       \
        }                                                                                                           \
    }
PRODUCT(product, NUMBER)
PRODUCT(product_of_bytes, int8_t)
static inline void gemm_packed(matrix a, const NUMBER *packed, matrix c, bool accumulate, vector bias, int64_t row,
                               int64_t row_end, int64_t column, int64_t end) {
    product(a.at, a.stride, 1, a.columns, packed, c.columns, 1, c, accumulate, bias, row, row_end, column, end);
}
static inline void gemm_tn(matrix a, matrix b, matrix c, bool accumulate, int64_t row, int64_t row_end, int64_t column,
                           int64_t end) {
    product(a.at, 1, a.stride, a.rows, b.at, b.stride, 1, c, accumulate, vector_at(0, 0), row, row_end, column, end);
}
static inline void gemm_nn(matrix a, matrix b, matrix c, bool accumulate, int64_t row, int64_t row_end, int64_t column,
                           int64_t end) {
    product(a.at, a.stride, 1, a.columns, b.at, b.stride, 1, c, accumulate, vector_at(0, 0), row, row_end, column, end);
}
static inline void gemm_nt(matrix a, matrix b, matrix c, bool accumulate, int64_t row, int64_t row_end, int64_t column,
                           int64_t end) {
    product(a.at, a.stride, 1, a.columns, b.at, 1, b.stride, c, accumulate, vector_at(0, 0), row, row_end, column, end);
}

/* The same of whole numbers of a byte each. */
static inline void pack_into_int8(matrix b, int8_t *packed) {
    for (int64_t k = 0; k < b.rows; k++)
        for (int64_t j = 0; j < b.columns; j++) *packed++ = (int8_t)b.at[k * b.stride + j];
}
static inline void pack_transposed_into_int8(matrix b, int8_t *packed) {
    for (int64_t k = 0; k < b.columns; k++)
        for (int64_t j = 0; j < b.rows; j++) *packed++ = (int8_t)b.at[j * b.stride + k];
}
static inline void gemm_packed_int8(matrix a, const int8_t *packed, matrix c, bool accumulate, vector bias, int64_t row,
                                    int64_t row_end, int64_t column, int64_t end) {
    product_of_bytes(a.at, a.stride, 1, a.columns, packed, c.columns, 1, c, accumulate, bias, row, row_end, column, end);
}

/* The same if the left side has whole numbers of a byte each, too. */
#define pack_into_bytes pack_into_int8
#define pack_transposed_into_bytes pack_transposed_into_int8
#define gemm_packed_bytes gemm_packed_int8

/* -- rows that are not over: lists like those of `kernels/cpu/threads.py`, for one thread --------------------- */
static inline int64_t list_rows(const int64_t *ends, const int64_t *order, int64_t low, int64_t steps, int64_t first,
                         int64_t last, int64_t *lists, int64_t start) {
    int64_t total = 0;
    for (int64_t i = 0; i < steps; i++) {
        int64_t *list = lists + start + i * (last + 2), own = 0;
        for (int64_t p = first; p < last; p++) own += ends[p] > low + i;
        int64_t front = 2, back = 2 + own;
        for (int64_t p = first; p < last; p++) list[ends[p] > low + i ? front++ : back++] = order[p];
        list[0] = total, list[1] = own, total += own;
    }
    return total;
}

/* -- scalar functions, for each dtype --------------------------------------------------------------------------- */
#define OF(T, f, name) static inline T name##_##T(T x) { return name##f(x); }
#define FLOATS(T, f)                                                                                                \
    OF(T, f, atan) OF(T, f, cos) OF(T, f, erf) OF(T, f, exp) OF(T, f, expm1) OF(T, f, floor) OF(T, f, log)          \
    OF(T, f, log1p) OF(T, f, rint) OF(T, f, sin) OF(T, f, sqrt) OF(T, f, tanh)                                      \
    static inline T abs_##T(T x) { return fabs##f(x); }                                                             \
    static inline T sigmoid_##T(T x) { return 1 / (1 + exp##f(-x)); }                                               \
    static inline T sign_##T(T x) { return x > 0 ? 1 : x < 0 ? -1 : x; }                                            \
    static inline T bfloat16_code_##T(T x) {                                                                        \
        union { float number; uint32_t bits; } word = {(float)x};                                                   \
        uint32_t bits = x != x ? 0x7FC00000u : word.bits;                                                           \
        return (T)((bits + ((bits >> 16) & 1) + 0x7FFF) >> 16);                                                     \
    }                                                                                                               \
    static inline T bfloat16_value_##T(T code) {                                                                    \
        union { uint32_t bits; float number; } word = {(uint32_t)code << 16};                                       \
        return (T)word.number;                                                                                      \
    }                                                                                                               \
    static inline T fmod_##T(T a, T b) { return fmod##f(a, b); }                                                    \
    static inline T pow_##T(T x, T y) { return pow##f(x, y); }                                                      \
    static inline T divide_towards_zero_##T(T a, T b) { return trunc##f(a / b); }                                   \
    NUMBERS(T, T)
#define INTEGERS(T, is_signed)                                                                                      \
    static inline T abs_##T(T x) { return x < 0 ? (T)(0 - (uint64_t)x) : x; }                                       \
    static inline T sign_##T(T x) { return (T)((x > 0) - (x < 0)); }                                                \
    static inline T divide_towards_zero_##T(T a, T b) {                                                             \
        return b == 0 ? 0 : is_signed && b == (T)-1 ? (T)(0 - (uint64_t)a) : (T)(a / b);                            \
    }                                                                                                               \
    static inline T pow_##T(T x, T y) {                                                                             \
        uint64_t result = 1, base = (uint64_t)x;                                                                    \
        for (; y > 0; y = (T)(y >> 1), base *= base) result = y & 1 ? result * base : result;                       \
        return (T)result;                                                                                           \
    }                                                                                                               \
    NUMBERS(T, uint64_t)
#define NUMBERS(T, W) /* W: what sums are made in; integers wrap there. NaN where one is, as `x != x` says */       \
    static inline T maximum_##T(T a, T b) { return a != a || a > b ? a : b; }                                       \
    static inline T minimum_##T(T a, T b) { return a != a || a < b ? a : b; }                                       \
    static inline T larger_##T(T a, T b) { return maximum_##T(a, b); }                                              \
    static inline T smaller_##T(T a, T b) { return minimum_##T(a, b); }                                             \
    static inline T min_##T(T a, T b) { return a < b ? a : b; }                                                     \
    static inline T max_##T(T a, T b) { return a < b ? b : a; }                                                     \
    static inline T add_any_order_##T(T sum, T x) { return (T)((W)sum + (W)x); }                                    \
    static inline T add_product_##T(T sum, T x, T y) { return (T)((W)sum + (W)x * (W)y); }                          \
    static inline T add_product_any_order_##T(T sum, T x, T y) { return (T)((W)sum + (W)x * (W)y); }

FLOATS(float, f) FLOATS(double, )
INTEGERS(int8_t, 1) INTEGERS(int16_t, 1) INTEGERS(int32_t, 1) INTEGERS(int64_t, 1)
INTEGERS(uint8_t, 0) INTEGERS(uint16_t, 0) INTEGERS(uint32_t, 0) INTEGERS(uint64_t, 0)

/* Philox4x32-10 (Salmon, Moraes, Dror, Shaw, SC 2011): element `element` of row n in step t, from 0 to 1. */
static inline double uniform_double(int64_t seed, int64_t ordinal, int64_t t, int64_t n, int64_t element) {
    uint32_t c[4] = {(uint32_t)t, (uint32_t)n, (uint32_t)(element >> 2), (uint32_t)((uint64_t)seed >> 32)};
    uint32_t k[2] = {(uint32_t)seed, (uint32_t)ordinal};
    for (int round = 0; round < 10; round++) {
        const uint64_t p = c[0] * (uint64_t)0xD2511F53, q = c[2] * (uint64_t)0xCD9E8D57;
        const uint32_t next[4] = {(uint32_t)(q >> 32) ^ c[1] ^ k[0], (uint32_t)q, (uint32_t)(p >> 32) ^ c[3] ^ k[1],
                                  (uint32_t)p};
        for (int i = 0; i < 4; i++) c[i] = next[i];
        k[0] += 0x9E3779B9, k[1] += 0xBB67AE85;
    }
    return c[element & 3] * 0x1p-32;
}
