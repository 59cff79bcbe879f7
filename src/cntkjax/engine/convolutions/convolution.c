/* Convolutions and gradients of their filters, called by XLA's foreign function interface.

   The operand of some rows of positions is copied to scratch memory, channels last and with its padding, whatever the
   order of its axes. There the cells of a window lie in few segments without gaps. A tile of the result stays in
   registers: of a convolution some positions and one or two vectors of outputs, of a gradient some cells of the window
   and as many vectors. See Georganas et al., "Anatomy of high-performance deep learning convolutions on SIMD
   architectures" (2018).

   Shares are taken by the thread that calls and by XLA's own. Nothing waits for a thread that has not begun. */

#define _GNU_SOURCE
#include <immintrin.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../native/cores.h"

#define EXPORT __attribute__((visibility("default")))

enum { VERSION = 2 }; /* as in library.py */

/* A tile: at most so many rows of one or two vectors, in 18 and 28 of 32 registers, or 12 of 16. */
#ifdef __AVX512F__
enum { WIDTH = 16, TALL_1 = 18, TALL_2 = 14 };
#define IS_SUPPORTED __builtin_cpu_supports("avx512f")
#define EACH_1(f) TO_14(f, 1) f(15, 1) f(16, 1) f(17, 1) f(18, 1)
#define EACH_2(f) TO_14(f, 2)
#else
enum { WIDTH = 8, TALL_1 = 12, TALL_2 = 6 };
#define IS_SUPPORTED (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
#define EACH_1(f) TO_12(f, 1)
#define EACH_2(f) TO_6(f, 2)
#endif
#define TO_6(f, wide) f(1, wide) f(2, wide) f(3, wide) f(4, wide) f(5, wide) f(6, wide)
#define TO_12(f, wide) TO_6(f, wide) f(7, wide) f(8, wide) f(9, wide) f(10, wide) f(11, wide) f(12, wide)
#define TO_14(f, wide) TO_12(f, wide) f(13, wide) f(14, wide)

enum {
    BLOCK = 64,               /* positions that are transposed for all channels before the next ones */
    BAND = 3 << 14,           /* numbers that are copied at once, or one row of positions; they stay in a core's cache */
    PART = 1 << 17,           /* gradients that one thread sums, or those of one panel; they do so too */
    TOGETHER = 8,             /* planes of positions that follow one another; each plane of the operand is copied once */
    GROUPS = 16,              /* of samples, whose gradients are summed on their own: at most so many */
    SUMS = 1 << 21,           /* gradients of all groups, so that they take 8 MiB whatever the number of cores */
    LINE = 16,                /* numbers of a cache line */
    FEWEST_PRODUCTS = 1 << 18, /* for each thread: to wake one takes longer than fewer */
    LOOKS = 1 << 11            /* for the end of the last shares before a thread sleeps, which takes longer than most */
};

typedef float Vector __attribute__((vector_size(WIDTH * 4), aligned(4), may_alias));

/* How far apart neighbours are along each axis: samples (or outputs), channels, and three more. */
typedef struct { int64_t outer, channel, axis[3]; } Strides;

typedef struct {
    int64_t is_gradient; /* of the filters */
    int64_t samples, inputs, outputs;
    int64_t size[3], positions[3], window[3], stride[3], dilation[3], before[3];
    Strides x, w, y;
    int64_t first_filter, first_result; /* where those of this task begin, which is no gradient */
} Task; /* as rewriting.py writes it; some sizes of a window may be 0, for results that are 0 */

typedef struct {
    const Task *t;
    const float *x, *y; /* the operand, and, for a gradient, that of the result */
    float *to;          /* the result of a convolution */
    float *packed;      /* filters, or gradients of each group: [panel, segment, term, wide], outputs in panels */
    float *scratch;     /* of all threads */
    int64_t *places;    /* where each segment of a window begins, in scratch memory */
    int64_t wide, tall;                      /* outputs of a panel, rows of a tile */
    int64_t panels, part;                    /* panels, and how many of them one share has */
    int64_t segments, terms;                 /* of a window */
    int64_t rows, bands, units;              /* of positions, in a unit; units of a plane, and of everything */
    int64_t columns, row, height, planes, overlap; /* of an operand in scratch memory; planes that two units share */
    int64_t for_thread;                            /* numbers of scratch memory */
    int64_t groups, shares;
    int64_t most_threads;
    int core; /* the caller's */
    atomic_long next, threads, users, finished;
    pthread_mutex_t lock;
    pthread_cond_t all_finished;
} Job;

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t ceiling(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* ---- tiles */

typedef void (*Tile)(const Job *, const float *x, int64_t step, const float *other, int64_t rows, float *to, int64_t apart);

/* One row of a tile for each of `tall` positions, `step` numbers apart: the sum of their segments with the filters. */
static inline __attribute__((always_inline)) void
convolve(const int tall, const int wide, const Job *j, const float *x, int64_t step, const float *filters, float *to,
         int64_t apart) {
    Vector sums[TALL_1][2];
    const int64_t bytes = step * 4;
#pragma GCC unroll 18
    for (int t = 0; t < tall; t++)
#pragma GCC unroll 2
        for (int v = 0; v < wide; v++) sums[t][v] = (Vector){0};
    for (int64_t s = 0; s < j->segments; s++) {
        const char *from = (const char *)(x + j->places[s]), *at[6]; /* from each three positions are reached */
#pragma GCC unroll 6
        for (int g = 0; g < 6; g++) {
            at[g] = from + 3 * g * bytes;
            __asm__("" : "+r"(at[g])); /* or else the compiler has 18 addresses, for which there are no registers */
        }
        for (int64_t i = 0; i < j->terms; i++, filters += wide * WIDTH) {
#pragma GCC unroll 18
            for (int t = 0; t < tall; t++)
#pragma GCC unroll 2
                for (int v = 0; v < wide; v++)
                    sums[t][v] += *(const float *)(at[t / 3] + t % 3 * bytes) * ((const Vector *)filters)[v];
#pragma GCC unroll 6
            for (int g = 0; g < 6; g++) at[g] += 4;
        }
    }
#pragma GCC unroll 18
    for (int t = 0; t < tall; t++)
#pragma GCC unroll 2
        for (int v = 0; v < wide; v++) *(Vector *)(to + t * apart + v * WIDTH) = sums[t][v];
}

/* One row of a tile for each of `tall` cells of a window: what all positions add to its gradients. */
static inline __attribute__((always_inline)) void
correlate(const int tall, const int wide, const Job *j, const float *x, int64_t step, const float *y, int64_t rows,
          float *to, int64_t apart) {
    Vector sums[TALL_1][2];
    const int64_t columns = j->t->positions[2], row = j->row * j->t->stride[1];
#pragma GCC unroll 18
    for (int t = 0; t < tall; t++)
#pragma GCC unroll 2
        for (int v = 0; v < wide; v++) sums[t][v] = ((const Vector *)(to + t * wide * WIDTH))[v];
    for (int64_t r = 0; r < rows; r++) {
        const float *from = x + r * row;
        for (int64_t i = 0; i < columns; i++, from += step, y += apart)
#pragma GCC unroll 18
            for (int t = 0; t < tall; t++)
#pragma GCC unroll 2
                for (int v = 0; v < wide; v++) sums[t][v] += from[t] * ((const Vector *)y)[v];
    }
#pragma GCC unroll 18
    for (int t = 0; t < tall; t++)
#pragma GCC unroll 2
        for (int v = 0; v < wide; v++) ((Vector *)(to + t * wide * WIDTH))[v] = sums[t][v];
}

#define TILE(tall, wide) \
    static void convolve_##tall##_##wide(const Job *j, const float *x, int64_t step, const float *filters, \
                                         int64_t rows, float *to, int64_t apart) { \
        (void)rows; \
        convolve(tall, wide, j, x, step, filters, to, apart); \
    } \
    static void correlate_##tall##_##wide(const Job *j, const float *x, int64_t step, const float *y, int64_t rows, \
                                          float *to, int64_t apart) { \
        correlate(tall, wide, j, x, step, y, rows, to, apart); \
    }
#define CONVOLVE(tall, wide) convolve_##tall##_##wide,
#define CORRELATE(tall, wide) correlate_##tall##_##wide,

EACH_1(TILE)
EACH_2(TILE)
static const Tile TILES[2][2][TALL_1] = {{{EACH_1(CONVOLVE)}, {EACH_2(CONVOLVE)}},
                                       {{EACH_1(CORRELATE)}, {EACH_2(CORRELATE)}}};

/* ---- copies */

/* A matrix in memory: how far apart its rows are, and its columns. */
typedef struct { int64_t row, column; } Order;

/* Eight numbers of each of eight rows become columns. */
static void transpose(const float *from, int64_t row, float *to, int64_t column) {
    for (int64_t half = 0; half < 8; half += 4, from += 4, to += 4 * column) {
        __m256 r[4];
        for (int64_t i = 0; i < 4; i++)
            r[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(from + i * row)),
                                        _mm_loadu_ps(from + (i + 4) * row), 1);
        __m256 a = _mm256_unpacklo_ps(r[0], r[1]), b = _mm256_unpackhi_ps(r[0], r[1]);
        __m256 c = _mm256_unpacklo_ps(r[2], r[3]), d = _mm256_unpackhi_ps(r[2], r[3]);
        _mm256_storeu_ps(to, _mm256_shuffle_ps(a, c, 0x44));
        _mm256_storeu_ps(to + column, _mm256_shuffle_ps(a, c, 0xee));
        _mm256_storeu_ps(to + 2 * column, _mm256_shuffle_ps(b, d, 0x44));
        _mm256_storeu_ps(to + 3 * column, _mm256_shuffle_ps(b, d, 0xee));
    }
}

/* Copy a matrix. The last rows and columns may be copied twice, as parts of whole tiles. */
static void copy(const float *from, Order of, int64_t rows, int64_t columns, float *to, Order into) {
    int is_transposed = of.row == 1 && into.column == 1;
    if (of.column == 1 && into.column == 1) {
        int64_t at_once = of.row == columns && into.row == columns ? rows : 1;
        for (int64_t r = 0; r < rows; r += at_once)
            memcpy(to + r * into.row, from + r * of.row, (size_t)(at_once * columns) * 4);
    } else if (rows >= 8 && columns >= 8 && (is_transposed || (of.column == 1 && into.row == 1))) {
        for (int64_t block = 0; block < rows; block += BLOCK)
            for (int64_t c = 0; c < columns; c += 8)
                for (int64_t r = block; r < smaller(block + BLOCK, rows); r += 8) {
                    int64_t row = smaller(r, rows - 8), column = smaller(c, columns - 8);
                    const float *tile = from + row * of.row + column * of.column;
                    float *place = to + row * into.row + column * into.column;
                    if (is_transposed) transpose(tile, of.column, place, into.row);
                    else transpose(tile, of.row, place, into.column);
                }
    } else
        for (int64_t r = 0; r < rows; r += LINE)
            for (int64_t c = 0; c < columns; c++)
                for (int64_t k = r; k < smaller(r + LINE, rows); k++)
                    to[k * into.row + c * into.column] = from[k * of.row + c * of.column];
}

/* Planes of the operand for some rows of positions, with zeros around it: [planes, height, columns, inputs]. */
static void take_operand(const Job *j, int64_t sample, int64_t plane, int64_t planes, int64_t first, float *to) {
    const Task *t = j->t;
    int64_t before = t->before[2] > 0 ? smaller(t->before[2], j->columns) : 0;
    int64_t begin = t->before[2] < 0 ? smaller(-t->before[2], t->size[2]) : 0;
    int64_t count = smaller(t->size[2] - begin, j->columns - before), after = j->columns - before - count;
    for (int64_t i = 0; i < planes * j->height; i++, to += j->row) {
        int64_t depth = plane + i / j->height * t->dilation[0] - t->before[0];
        int64_t row = first * t->stride[1] + i % j->height - t->before[1];
        if (depth < 0 || depth >= t->size[0] || row < 0 || row >= t->size[1]) {
            memset(to, 0, (size_t)j->row * 4);
            continue;
        }
        const float *from = j->x + sample * t->x.outer + depth * t->x.axis[0] + row * t->x.axis[1] + begin * t->x.axis[2];
        memset(to, 0, (size_t)(before * t->inputs) * 4);
        copy(from, (Order){t->x.axis[2], t->x.channel}, count, t->inputs, to + before * t->inputs, (Order){t->inputs, 1});
        memset(to + (before + count) * t->inputs, 0, (size_t)(after * t->inputs) * 4);
    }
}

/* ---- shares */

/* Where part `i` ends, if so many things are divided into `n` about equal parts. */
static int64_t end_of(int64_t i, int64_t n, int64_t count) { return count * (i + 1) / n; }

/* One if rows of results follow one another in memory without gaps, and else their number. */
static int64_t lines_of(const Task *t, int64_t rows) { return t->y.axis[1] == t->positions[2] * t->y.axis[2] ? 1 : rows; }

/* Add to the gradients of some panels what the positions of a unit give. */
static void add_gradients(const Job *j, const float *x, const float *of_result, int64_t rows, int64_t panel,
                          int64_t panels, float *y, float *to) {
    const Task *t = j->t;
    int64_t step = t->stride[2] * t->inputs, columns = t->positions[2], apart = panels * j->wide, n = ceiling(j->terms, j->tall);
    int64_t lines = lines_of(t, rows), positions = rows * columns / lines;
    for (int64_t r = 0; r < lines; r++)
        copy(of_result + r * t->y.axis[1] + panel * j->wide * t->y.channel, (Order){t->y.axis[2], t->y.channel}, positions,
             smaller(apart, t->outputs - panel * j->wide), y + r * positions * apart, (Order){apart, 1});
    for (int64_t p = 0; p < panels; p++, y += j->wide)
        for (int64_t s = 0; s < j->segments; s++)
            for (int64_t i = 0, term = 0; i < n; term = end_of(i++, n, j->terms)) {
                int64_t tall = end_of(i, n, j->terms) - term;
                TILES[1][j->wide / WIDTH - 1][tall - 1](j, x + j->places[s] + term, step, y, rows, to, apart);
                to += tall * j->wide;
            }
}

/* The results at the positions of a unit. Rows of whole vectors are written in place. */
static void convolve_rows(const Job *j, const float *x, int64_t rows, float *y, float *to) {
    const Task *t = j->t;
    int64_t step = t->stride[2] * t->inputs, columns = t->positions[2], n = ceiling(columns, j->tall);
    int64_t padded = j->panels * j->wide, in_place = t->y.channel == 1 && t->outputs == padded;
    int64_t apart = in_place ? t->y.axis[2] : padded;
    for (int64_t panel = 0; panel < j->panels; panel++)
        for (int64_t r = 0; r < rows; r++) {
            float *row = (in_place ? to + r * t->y.axis[1] : y + r * columns * padded) + panel * j->wide;
            for (int64_t i = 0, column = 0; i < n; column = end_of(i++, n, columns)) {
                int64_t tall = end_of(i, n, columns) - column;
                TILES[0][j->wide / WIDTH - 1][tall - 1](
                    j, x + r * t->stride[1] * j->row + column * step, step,
                    j->packed + panel * j->segments * j->terms * j->wide, 0, row + column * apart, apart);
            }
        }
    if (in_place) return;
    int64_t lines = lines_of(t, rows), positions = rows * columns / lines;
    for (int64_t r = 0; r < lines; r++)
        copy(y + r * positions * padded, (Order){padded, 1}, positions, t->outputs, to + r * t->y.axis[1],
             (Order){t->y.axis[2], t->y.channel});
}

static void compute(const Job *j, int64_t share, float *scratch) {
    const Task *t = j->t;
    int64_t group = share % j->groups, panel = share / j->groups * j->part, size = j->segments * j->terms * j->wide;
    int64_t area = j->height * j->row, at = 0, kept = 0; /* planes before the unit's, and those that it has already */
    float *y = scratch + j->planes * area;
    for (int64_t unit = j->units * group / j->groups; unit < end_of(group, j->groups, j->units); unit++) {
        int64_t plane = unit % t->positions[0], first = unit / t->positions[0] % j->bands * j->rows;
        int64_t rows = smaller(j->rows, t->positions[1] - first), sample = unit / t->positions[0] / j->bands;
        int64_t place = sample * t->y.outer + plane * t->y.axis[0] + first * t->y.axis[1];
        at += t->stride[0];
        if (plane == 0 || kept == 0 || at + t->window[0] > j->planes) at = kept = 0;
        float *x = scratch + at * area;
        take_operand(j, sample, plane * t->stride[0] + kept, t->window[0] - kept, first, x + kept * area);
        kept = j->overlap;
        if (t->is_gradient)
            add_gradients(j, x, j->y + place, rows, panel, smaller(j->part, j->panels - panel), y,
                          j->packed + (group * j->panels + panel) * size);
        else convolve_rows(j, x, rows, y, j->to + place);
    }
}

static void release(Job *j) {
    if (atomic_fetch_sub(&j->users, 1) > 1) return;
    pthread_mutex_destroy(&j->lock);
    pthread_cond_destroy(&j->all_finished);
    free(j->packed);
    free(j);
}

/* Take shares until there are none. */
static void participate(Job *j) {
    int64_t finished = 0;
    float *scratch = j->scratch + atomic_fetch_add(&j->threads, 1) * j->for_thread;
    for (int64_t share; (share = atomic_fetch_add(&j->next, 1)) < j->shares; finished++) {
        compute(j, share, scratch);
        /* A thread that the system has woken near its caller, and that waits for this core, begins: see `help`. */
        if (!finished && atomic_load(&j->threads) < j->most_threads) sched_yield();
    }
    pthread_mutex_lock(&j->lock);
    if (atomic_fetch_add(&j->finished, finished) + finished == j->shares) pthread_cond_signal(&j->all_finished);
    pthread_mutex_unlock(&j->lock);
}

static void help(void *job) {
    int callers = ((const Job *)job)->core;
    if (callers >= 0 && core() == callers) steps_aside(callers); /* or both take turns, while another core is idle */
    participate(job);
    release(job);
}

/* Copy filters to panels, or the sums of all groups' gradients from there. */
static void exchange(const Job *j, float *w) {
    const Task *t = j->t;
    const Order of_filters = {t->w.channel, t->w.outer};
    int64_t size = j->panels * j->segments * j->terms * j->wide;
    for (int64_t cell = 0; cell < t->window[0] * t->window[1] * t->window[2]; cell++) {
        int64_t row = cell / t->window[2];
        float *of_cell = w + row / t->window[1] * t->w.axis[0] + row % t->window[1] * t->w.axis[1]
                         + cell % t->window[2] * t->w.axis[2];
        for (int64_t panel = 0; panel < j->panels; panel++, of_cell += j->wide * t->w.outer) {
            int64_t count = smaller(j->wide, t->outputs - panel * j->wide);
            float *packed = j->packed + (panel * j->segments * j->terms + cell * t->inputs) * j->wide;
            if (!t->is_gradient) {
                copy(of_cell, of_filters, t->inputs, count, packed, (Order){j->wide, 1});
                continue;
            }
            for (int64_t g = 1; g < j->groups; g++)
                for (int64_t i = 0; i < t->inputs * j->wide; i++) packed[i] += packed[g * size + i];
            copy(packed, (Order){j->wide, 1}, t->inputs, count, of_cell, of_filters);
        }
    }
}

/* ---- XLA's foreign function interface (xla/ffi/api/c_api.h of jaxlib), as far as it is used */

typedef struct { size_t size; void *extension; void *context; void (*task)(void *); void *data; } Schedule;
typedef struct { size_t size; void *extension; void *context; int64_t *count; } Threads;
typedef struct { size_t size; void *extension; const char *message; int code; } Failure;
typedef struct { size_t size; void *extension; int major, minor; } Version;
typedef struct {
    size_t size;
    void *extension;
    Version version;
    const void *internal;
    void *(*fail)(Failure *);
    void *others[10];
    void *(*schedule)(Schedule *);
    void *(*threads)(Threads *);
} Interface;
typedef struct { size_t size; void *extension; int type; void *data; } Buffer;
typedef struct { size_t size; void *extension; int64_t count; int *types; Buffer **buffers; } Buffers;
typedef struct { int type; size_t count; const void *data; } Array;
typedef struct { size_t size; void *extension; int64_t count; int *types; void *names; Array **values; } Attributes;
typedef struct { size_t size; int type; void *next; struct { size_t size; Version version; } *description; } Extension;
typedef struct {
    size_t size;
    Extension *extension;
    const Interface *interface;
    void *context;
    int stage;
    Buffers arguments, results;
    Attributes attributes;
} Frame;

/* How the work is divided, which depends on the sizes alone: results are the same with any number of threads. */
static void divide(Job *j) {
    const Task *t = j->t;
    int64_t columns = t->positions[2], gap = t->dilation[2] == 1 ? 1 : t->window[2];
    j->wide = t->outputs > WIDTH ? 2 * WIDTH : WIDTH;
    j->tall = j->wide > WIDTH ? TALL_2 : TALL_1;
    j->panels = ceiling(t->outputs, j->wide);
    j->columns = (columns - 1) * t->stride[2] + (t->window[2] - 1) * t->dilation[2] + 1;
    j->row = j->columns * t->inputs;
    j->segments = t->window[0] * t->window[1] * gap;
    j->terms = t->window[2] / gap * t->inputs;
    int64_t for_row = t->window[0] * j->row * t->stride[1] + columns * j->panels * j->wide;
    j->bands = ceiling(t->positions[1], for_row < BAND ? BAND / for_row : 1);
    j->rows = ceiling(t->positions[1], j->bands);
    j->bands = ceiling(t->positions[1], j->rows);
    j->height = (j->rows - 1) * t->stride[1] + (t->window[1] - 1) * t->dilation[1] + 1;
    j->units = t->samples * t->positions[0] * j->bands;
    j->overlap = t->dilation[0] == 1 && t->stride[0] < t->window[0] ? t->window[0] - t->stride[0] : 0;
    int64_t together = j->overlap ? smaller(t->positions[0], smaller(TOGETHER, ceiling(j->units, GROUPS))) : 1;
    j->planes = (together - 1) * t->stride[0] + t->window[0];
    j->for_thread = ceiling(j->planes * j->height * j->row + j->rows * columns * j->panels * j->wide, 16) * 16;
    int64_t size = j->segments * j->terms * j->wide;
    j->part = t->is_gradient && size * j->panels > PART ? ceiling(PART, size) : j->panels;
    int64_t most = size * j->panels < SUMS / GROUPS ? GROUPS : SUMS / (size * j->panels) + 1;
    j->groups = t->is_gradient ? smaller(j->units, most) : ceiling(j->units, together);
    j->shares = j->groups * ceiling(j->panels, j->part);
}

static void find_places(Job *j, int64_t *places) {
    const Task *t = j->t;
    int64_t columns = t->dilation[2] == 1 ? 1 : t->window[2];
    for (int64_t segment = 0; segment < j->segments; segment++) {
        int64_t row = segment / columns;
        places[segment] = (row / t->window[1] * j->height + row % t->window[1] * t->dilation[1]) * j->row
                          + segment % columns * t->dilation[2] * t->inputs;
    }
    j->places = places;
}

/* 0 on a processor without the vector instructions for which this was compiled. */
EXPORT int cntkjax_convolution_version(void) { return IS_SUPPORTED ? VERSION : 0; }

/* Do a task. Returned is an error, or NULL. */
static void *do_task(const Frame *frame, const Task *t) {
    const Interface *interface = frame->interface;
    int64_t threads = 1;
    void *failure = interface->threads(&(Threads){sizeof(Threads), NULL, frame->context, &threads});
    if (failure) return failure;
    Job *j = calloc(1, sizeof(Job));
    float *result = (float *)frame->results.buffers[0]->data + t->first_result;
    float *second = (float *)frame->arguments.buffers[1]->data + t->first_filter;
    if (j) {
        j->t = t;
        divide(j);
        int64_t products = j->units * j->rows * t->positions[2] * t->outputs * j->segments * j->terms;
        int64_t size = j->panels * j->segments * j->terms * j->wide * (t->is_gradient ? j->groups : 1);
        threads = smaller(smaller(threads, j->shares), products / FEWEST_PRODUCTS + 1);
        j->packed = aligned_alloc(LINE * 4, (size_t)ceiling(size + threads * j->for_thread + 2 * j->segments, LINE) * LINE * 4);
        if (j->packed) { /* numbers that are not used may not be of a kind that slows the others */
            j->scratch = j->packed + size;
            if (t->is_gradient || t->outputs % j->wide) memset(j->packed, 0, (size_t)size * 4);
            if (t->outputs % j->wide) memset(j->scratch, 0, (size_t)(threads * j->for_thread) * 4);
            find_places(j, (int64_t *)(j->scratch + threads * j->for_thread));
        }
    }
    if (!j || !j->packed) {
        free(j);
        return interface->fail(&(Failure){sizeof(Failure), NULL, "there is no memory for a convolution", 8});
    }
    j->x = frame->arguments.buffers[0]->data;
    j->y = second;
    j->to = result;
    if (!t->is_gradient) exchange(j, second);
    pthread_mutex_init(&j->lock, NULL);
    pthread_cond_init(&j->all_finished, NULL);
    atomic_store(&j->users, threads);
    j->most_threads = threads;
    j->core = core();
    for (int64_t i = 1; i < threads; i++)
        if (interface->schedule(&(Schedule){sizeof(Schedule), NULL, frame->context, help, j})) release(j);
    participate(j);
    for (int64_t i = 0; i < LOOKS && j->finished < j->shares; i++) _mm_pause();
    pthread_mutex_lock(&j->lock);
    while (j->finished < j->shares) pthread_cond_wait(&j->all_finished, &j->lock);
    pthread_mutex_unlock(&j->lock);
    if (t->is_gradient) exchange(j, result);
    release(j);
    return NULL;
}

/* The function that XLA calls. Returned is an error, or NULL. */
EXPORT void *cntkjax_convolution(Frame *frame) {
    if (frame->extension) { /* XLA asks which version this is written for */
        frame->extension->description->version.major = frame->interface->version.major;
        frame->extension->description->version.minor = frame->interface->version.minor;
        return NULL;
    }
    const Array *tasks = frame->attributes.values[0];
    void *failure = NULL;
    for (size_t i = 0; !failure && i < tasks->count * sizeof(int64_t) / sizeof(Task); i++)
        failure = do_task(frame, (const Task *)tasks->data + i);
    return failure;
}
