/* -- a plan as a list of jobs ------------------------------------------------------------------------------------ */
typedef struct { int base; size_t offset; } place; /* an address: bytes from the memory, the weights or an argument */
typedef void driver(int64_t *status, const int64_t *numbers, void *const *arrays);
typedef struct { driver *run; const int64_t *numbers; const place *places; int count; } job; /* `count` places */

/* Copy runs of bytes. Numbers: bytes of a run; then for each of three axes the count of runs, and the bytes from one run
   to the next in the source and in the target. Arrays: target, source. */
static inline void copy_box(int64_t *status, const int64_t *n, void *const *arrays) {
    (void)status;
    for (int64_t i = 0; i < n[1]; i++)
        for (int64_t j = 0; j < n[4]; j++)
            for (int64_t k = 0; k < n[7]; k++)
                memmove((char *)arrays[0] + i * n[3] + j * n[6] + k * n[9],
                        (const char *)arrays[1] + i * n[2] + j * n[5] + k * n[8], (size_t)n[0]);
}

/* Set bytes to zero. */
static inline void clear(int64_t *status, const int64_t *numbers, void *const *arrays) {
    (void)status;
    memset(arrays[0], 0, (size_t)numbers[0]);
}

/* Steps of a row: its length, but at most `most`. A length is an integer of `bytes` bytes. */
static inline int64_t lasting(const void *lengths, int64_t bytes, int64_t row, int64_t most) {
    const int64_t length = bytes == 4 ? ((const int32_t *)lengths)[row] : ((const int64_t *)lengths)[row];
    return length < most ? length : most;
}

/* The order of rows, and where each ends. Numbers: count of rows, bytes of a length, steps, the first timestep, the most
   steps of a row. Arrays: lengths, order, ends, and `places`: count of longer rows -> place in the order. */
static inline void order_rows(int64_t *status, const int64_t *n, void *const *arrays) {
    const void *lengths = arrays[0];
    int64_t *order = (int64_t *)arrays[1], *ends = (int64_t *)arrays[2];
    const int64_t *places = (const int64_t *)arrays[3], rows = n[0], bytes = n[1], most = n[4];
    bool different = false;
    (void)status;
    for (int64_t row = 0; row < rows; row++)
        different = different || lasting(lengths, bytes, row, most) != lasting(lengths, bytes, 0, most);
    for (int64_t row = 0; row < rows; row++) {
        const int64_t own = lasting(lengths, bytes, row, most), left = own - n[3];
        int64_t longer = 0; /* rows before this one when the longest come first; equal rows keep their order */
        for (int64_t other = 0; other < rows && different; other++) {
            const int64_t length = lasting(lengths, bytes, other, most);
            longer += length > own || (length == own && other < row);
        }
        const int64_t at = different ? places[longer] : row;
        order[at] = row, ends[at] = left < n[2] ? left : n[2];
    }
}

/* Do all jobs up to the first one without a driver. Returns 1 if an index or a label was out of range, else 0. */
static inline int perform(const job *jobs, char *const *bases) {
    int64_t status[4] = {0};
    for (; jobs->run; jobs++) {
        void *arrays[MOST_PLACES];
        for (int i = 0; i < jobs->count; i++) arrays[i] = bases[jobs->places[i].base] + jobs->places[i].offset;
        jobs->run(status, jobs->numbers, arrays);
    }
    return status[0] != 0;
}
