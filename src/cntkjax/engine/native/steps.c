/* The steps of an evaluation of few samples, called through `library.py`: products and convolutions with packed
   weights, pooling, element-wise operations, loops over the steps of sequences. `program.py` writes the steps.

   Arrays are channels last. A product sums over `taps` pieces of `span` numbers that lie side by side: a dense layer
   has one piece, a convolution one for each row of its window. Weights are packed into panels of some vectors of
   outputs, in the order in which they are read, so that each is loaded once for several positions, and results stay in
   registers until they are complete. See Goto and van de Geijn, "Anatomy of high-performance matrix multiplication"
   (2008), and Georganas et al., "Anatomy of high-performance deep learning convolutions on SIMD architectures" (2018).

   A step is cut into shares. Threads take shares of their own part first, so that each core's cache keeps the weights
   of that part from call to call, and then those that others have not begun. They wait for the next step by spinning,
   for a while, since to wake a thread takes longer than most steps. */

#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "cores.h"

#define EXPORT __attribute__((visibility("default")))

enum { VERSION = 2 }; /* as in library.py */

#if defined(__AVX512F__)
enum { WIDTH = 16, TALL_4 = 6, TALL_2 = 12, TALL_1 = 16 }; /* positions of a tile, by its vectors */
#elif defined(__AVX__)
enum { WIDTH = 8, TALL_4 = 2, TALL_2 = 6, TALL_1 = 8 };
#else
enum { WIDTH = 4, TALL_4 = 6, TALL_2 = 12, TALL_1 = 16 };
#endif
enum { LONGEST_SUM = 128 }; /* products: longer sums are made of such, for their rounding */
enum { SMALLEST_SHARE = 16384 }; /* products */

typedef float Vector __attribute__((vector_size(WIDTH * 4), aligned(4), may_alias));
typedef int32_t Integers __attribute__((vector_size(WIDTH * 4), aligned(4), may_alias));

/* Where an array lies: in which buffer of the call, at which number, and how far apart images, rows, columns and, within
   a loop, steps are. */
typedef struct { int64_t buffer, first, image, row, column, step; } Place;

enum Kind { PRODUCT, LARGEST, MEAN, POINTWISE, COPY, LOOP };
enum Activation { NONE, RELU, SIGMOID, TANH };

typedef struct {
    int64_t kind, activation;
    int64_t images, rows, columns, channels; /* of the result */
    Place to, from, other;                   /* a product adds `other` if its buffer is not -1 */
    const float *weights, *bias;
    int64_t taps, tap_step, span, vectors;
    Place scratch; /* for a convolution by transforms, an image for each thread; otherwise its buffer is -1 */
    /* pooling: the window, where it begins, the operand's size, whether cells outside count */
    int64_t window[2], stride[2], before[2], size[2], counts_padding;
    int64_t multiplies;  /* pointwise: the product with `other`, not the sum */
    int64_t from_channel, to_channel; /* a copy: how far apart channels are */
    int64_t steps, body; /* a loop: so many times the next `body` steps */
} Step;

/* ---- element-wise functions */

static inline Vector spread(float x) { return x - (Vector){0}; }

static inline Vector choose(Integers mask, Vector a, Vector b) {
    return (Vector)((mask & (Integers)a) | (~mask & (Integers)b));
}

static inline Vector larger(Vector a, Vector b) { return choose(a > b, a, b); }
static inline Vector larger_or_nan(Vector a, Vector b) { return choose((a <= b) | (b != b), b, a); }

/* exp(x) for x <= 0; the polynomial is the Taylor series for |r| <= log(2) / 2, whose remainder is below 1e-8 */
static inline Vector exponential(Vector x) {
    x = larger(x, spread(-87.0f));
    Vector shifted = x * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: rounds to an integer */
    Vector n = shifted - 12582912.0f;
    Vector r = x - n * 0.693145752f - n * 1.42860677e-6f;
    Vector p = r * (1.0f / 5040) + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return (Vector)((Integers)p + (((Integers)shifted - 0x4b400000) << 23));
}

static inline Vector magnitude(Vector x) { return (Vector)((Integers)x & 0x7fffffff); }

static inline Vector sigmoid(Vector x) {
    Vector e = exponential(-magnitude(x));
    return choose(x < 0, e, spread(1.0f)) / (1.0f + e);
}

/* By cases, as `_tanh_by_cases` of primitives/elementwise.py: that takes the polynomial from Moshier's Cephes. */
static inline Vector hyperbolic_tangent(Vector x) {
    Vector a = magnitude(x), e = exponential(-2 * a), s = x * x;
    Vector p = s * -5.70498872745e-3f + 2.06390887954e-2f;
    p = p * s - 5.37397155531e-2f;
    p = p * s + 1.33314422036e-1f;
    p = p * s - 3.33332819422e-1f;
    Vector t = 1.0f - 2 * e / (1.0f + e);
    return choose(a < 0.625f, p * s * x + x, choose(x < 0, -t, t));
}

static inline Vector activated(Vector x, int64_t activation) {
    switch (activation) {
    case RELU: return choose(x < 0, spread(0), x); /* NaN stays */
    case SIGMOID: return choose(x == x, sigmoid(x), x);
    case TANH: return choose(x == x, hyperbolic_tangent(x), x);
    default: return x;
    }
}

static inline Vector load(const float *from, int64_t count) {
    Vector x = {0};
    if (count >= WIDTH) return *(const Vector *)from;
    memcpy(&x, from, (size_t)count * 4);
    return x;
}

static inline void store(float *to, Vector x, int64_t count) {
    if (count >= WIDTH) *(Vector *)to = x;
    else memcpy(to, &x, (size_t)count * 4);
}

/* ---- products */

typedef void (*Tile)(const Step *, const float *from, const float *weights, const float *bias, float *to,
                     const float *other, int64_t channels);

/* Add `other` to the sums, and activate them. */
static __attribute__((noinline)) void
finish(int tall, const Step *s, float *to, const float *other, int64_t channels) {
    for (int t = 0; t < tall; t++)
        for (int64_t c = 0; c < channels; c += WIDTH) {
            Vector x = load(to + t * s->to.column + c, channels - c);
            if (other) x += load(other + t * s->other.column + c, channels - c);
            store(to + t * s->to.column + c, activated(x, s->activation), channels - c);
        }
}

/* The sums for `tall` positions and a panel of `wide` vectors of channels. */
static inline __attribute__((always_inline)) void
tile(const int tall, const int wide, const Step *s, const float *from, const float *weights, const float *bias,
     float *to, const float *other, int64_t channels) {
    Vector sums[16][4], total[16][4]; /* of which only tall * wide are used, in registers */
    int64_t summed = 0;
#pragma GCC unroll 16
    for (int t = 0; t < tall; t++)
#pragma GCC unroll 4
        for (int v = 0; v < wide; v++) {
            sums[t][v] = (Vector){0};
            total[t][v] = load(bias + v * WIDTH, WIDTH);
        }
    for (int64_t tap = 0; tap < s->taps; tap++, from += s->tap_step)
        for (int64_t begin = 0; begin < s->span; begin += LONGEST_SUM) {
            int64_t end = begin + LONGEST_SUM < s->span ? begin + LONGEST_SUM : s->span;
            for (int64_t j = begin; j < end; j++, weights += wide * WIDTH)
#pragma GCC unroll 16
                for (int t = 0; t < tall; t++)
#pragma GCC unroll 4
                    for (int v = 0; v < wide; v++)
                        sums[t][v] += from[t * s->from.column + j] * ((const Vector *)weights)[v];
            if ((summed += end - begin) >= LONGEST_SUM) {
                summed = 0;
#pragma GCC unroll 16
                for (int t = 0; t < tall; t++)
#pragma GCC unroll 4
                    for (int v = 0; v < wide; v++) {
                        total[t][v] += sums[t][v];
                        sums[t][v] = (Vector){0};
                    }
            }
        }
#pragma GCC unroll 16
    for (int t = 0; t < tall; t++)
#pragma GCC unroll 4
        for (int v = 0; v < wide; v++)
            if (channels > v * WIDTH) store(to + t * s->to.column + v * WIDTH, total[t][v] + sums[t][v], channels - v * WIDTH);
    if (other || s->activation) finish(tall, s, to, other, channels < wide * WIDTH ? channels : wide * WIDTH);
}

#define TILE(tall, wide) \
    static void tile_##tall##_##wide(const Step *s, const float *from, const float *weights, const float *bias, \
                                     float *to, const float *other, int64_t channels) { \
        tile(tall, wide, s, from, weights, bias, to, other, channels); \
    }
#define TILES(wide) \
    TILE(1, wide) TILE(2, wide) TILE(3, wide) TILE(4, wide) TILE(5, wide) TILE(6, wide) TILE(7, wide) TILE(8, wide) \
    TILE(9, wide) TILE(10, wide) TILE(11, wide) TILE(12, wide) TILE(13, wide) TILE(14, wide) TILE(15, wide) \
    TILE(16, wide)
#define NAMES(wide) \
    {tile_1_##wide, tile_2_##wide, tile_3_##wide, tile_4_##wide, tile_5_##wide, tile_6_##wide, tile_7_##wide, \
     tile_8_##wide, tile_9_##wide, tile_10_##wide, tile_11_##wide, tile_12_##wide, tile_13_##wide, tile_14_##wide, \
     tile_15_##wide, tile_16_##wide}

TILES(1)
TILES(2)
TILE(1, 4) TILE(2, 4) TILE(3, 4) TILE(4, 4) TILE(5, 4) TILE(6, 4)

static const Tile BY_1[] = NAMES(1), BY_2[] = NAMES(2),
                  BY_4[] = {tile_1_4, tile_2_4, tile_3_4, tile_4_4, tile_5_4, tile_6_4};

static const Tile *tiles(int64_t vectors) {
    return vectors == 4 ? BY_4 : vectors == 2 ? BY_2 : BY_1;
}

static int64_t tallest(int64_t vectors) {
    return vectors == 4 ? TALL_4 : vectors == 2 ? TALL_2 : TALL_1;
}

/* ---- a call: its buffers, the step of the innermost loop, and how many threads may compute it */

typedef struct {
    float *const *buffers;
    int64_t step, threads;
    atomic_int *not_finite; /* becomes 1 if sums of transforms are not finite */
} Call;

static float *at(const Call *call, const Place *p, int64_t image, int64_t row) {
    if (p->buffer < 0) return NULL;
    return call->buffers[p->buffer] + p->first + image * p->image + row * p->row + call->step * p->step;
}

static int64_t ceiling(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* ---- the rows of each kind of step */

static void multiply(const Step *s, const Call *call, int64_t panel, int64_t image, int64_t row) {
    int64_t wide = s->vectors * WIDTH, most = tallest(s->vectors), count = ceiling(s->columns, most), column = 0;
    const float *from = at(call, &s->from, image, row), *other = at(call, &s->other, image, row);
    const float *weights = s->weights + panel * wide * s->taps * s->span, *bias = s->bias + panel * wide;
    float *to = at(call, &s->to, image, row) + panel * wide;
    for (int64_t i = 0; i < count; i++) { /* tiles of about the same height */
        int64_t tall = s->columns * (i + 1) / count - column;
        tiles(s->vectors)[tall - 1](s, from + column * s->from.column, weights, bias, to + column * s->to.column,
                                    other ? other + panel * wide + column * s->other.column : NULL,
                                    s->channels - panel * wide);
        column += tall;
    }
}

/* ---- convolutions by transforms

   For windows of 3x3 cells that move by one cell: F(2x2, 3x3) of Lavin and Gray, "Fast algorithms for convolutional
   neural networks" (2016). Squares of 4x4 cells, two cells apart, become 16 terms, of which each is multiplied by
   weights of its own, and the 16 sums become 2x2 outputs: 16 products instead of 36. Coefficients are 1 and 1/2, so
   rounding is little worse, and each output depends on the cells of its own window alone. But where a cell is infinite
   or a sum of cells overflows, infinite terms of both signs may add up to NaN: then the call says so, and `program.py`
   has another one compute the windows' own products. */

enum { TERMS = 16, SQUARES = 16 }; /* that are transformed at once */
enum { FEWEST_SQUARES = 8 };       /* of a share */

static inline __attribute__((always_inline)) void
forward_terms(const Step *s, const float *from, const int rows, const int columns, float *to, int64_t apart) {
    Vector cells[4][4], half[4][4];
    int64_t row = s->from.row, column = s->from.column;
#pragma GCC unroll 4
    for (int y = 0; y < 4; y++)
#pragma GCC unroll 4
        for (int x = 0; x < 4; x++)
            cells[y][x] = y < rows && x < columns ? load(from + y * row + x * column, WIDTH) : spread(0);
#pragma GCC unroll 4
    for (int x = 0; x < 4; x++) {
        half[0][x] = cells[0][x] - cells[2][x];
        half[1][x] = cells[1][x] + cells[2][x];
        half[2][x] = cells[2][x] - cells[1][x];
        half[3][x] = cells[1][x] - cells[3][x];
    }
#pragma GCC unroll 4
    for (int y = 0; y < 4; y++) {
        float *term = to + 4 * y * apart;
        store(term, half[y][0] - half[y][2], WIDTH);
        store(term + apart, half[y][1] + half[y][2], WIDTH);
        store(term + 2 * apart, half[y][2] - half[y][1], WIDTH);
        store(term + 3 * apart, half[y][1] - half[y][3], WIDTH);
    }
}

/* The terms of all channels of a square, of which so many rows and columns lie in the image with its border. */
static void forward(const Step *s, const float *from, int rows, int columns, float *to, int64_t apart) {
    for (int64_t c = 0; c < s->span; c += WIDTH)
        if (rows == 4 && columns == 4) forward_terms(s, from + c, 4, 4, to + c, apart);
        else forward_terms(s, from + c, rows, columns, to + c, apart);
}

static inline __attribute__((always_inline)) void
backward_terms(const Step *s, const float *terms, int64_t apart, Vector bias, const int rows, const int columns,
               float *to, const float *other, int64_t count, Vector *check) {
    Vector half[2][4];
    int64_t row = s->to.row, column = s->to.column, other_row = s->other.row, other_column = s->other.column;
    Vector least = spread(s->activation == RELU ? 0.0f : -INFINITY);
#pragma GCC unroll 4
    for (int x = 0; x < 4; x++) {
        Vector upper = load(terms + (x + 4) * apart, WIDTH), lower = load(terms + (x + 8) * apart, WIDTH);
        half[0][x] = load(terms + x * apart, WIDTH) + upper + lower;
        half[1][x] = upper - lower - load(terms + (x + 12) * apart, WIDTH);
    }
#pragma GCC unroll 2
    for (int y = 0; y < rows; y++) {
        Vector sums[2] = {half[y][0] + half[y][1] + half[y][2] + bias, half[y][1] - half[y][2] - half[y][3] + bias};
#pragma GCC unroll 2
        for (int x = 0; x < columns; x++) {
            *check += sums[x] * 0;
            if (other) sums[x] += load(other + y * other_row + x * other_column, count);
            store(to + y * row + x * column, choose(sums[x] < least, least, sums[x]), count); /* NaN stays */
        }
    }
}

/* Up to 2x2 outputs of the channels of a panel. `check` becomes NaN where their sums are not finite. */
static void backward(const Step *s, const float *terms, int64_t apart, const float *bias, int rows, int columns,
                     float *to, const float *other, int64_t channels, Vector *check) {
    for (int64_t c = 0; c < channels; c += WIDTH) {
        const float *add = other ? other + c : NULL;
        Vector b = load(bias + c, WIDTH);
        if (rows == 2 && columns == 2 && channels - c >= WIDTH)
            backward_terms(s, terms + c, apart, b, 2, 2, to + c, add, WIDTH, check); /* most of them, without branches */
        else backward_terms(s, terms + c, apart, b, rows, columns, to + c, add, channels - c, check);
    }
}

/* Products of the terms of so many squares with a panel of weights. */
static void multiply_terms(const Step *s, const float *terms, int64_t apart, const float *weights, int64_t squares,
                           float *sums, int64_t sums_apart) {
    static const float zero[4 * WIDTH];
    int64_t wide = s->vectors * WIDTH, count = ceiling(squares, tallest(s->vectors));
    Step product = {.taps = 1, .span = s->span, .from = {.column = s->span}, .to = {.column = wide}};
    for (int64_t term = 0; term < TERMS; term++, terms += apart, sums += sums_apart, weights += s->span * wide)
        for (int64_t i = 0, first = 0; i < count; i++) {
            int64_t tall = squares * (i + 1) / count - first;
            Tile multiply = tiles(s->vectors)[tall - 1];
            multiply(&product, terms + first * s->span, weights, zero, sums + first * wide, NULL, wide);
            first += tall;
        }
}

/* The rows from an even one on. */
static void transform(const Step *s, const Call *call, int64_t self, int64_t panel, int64_t image, int64_t row,
                      int64_t end) {
    int64_t wide = s->vectors * WIDTH, left = s->channels - panel * wide, across = ceiling(s->columns, 2);
    int64_t squares = ceiling(end - row, 2) * across, count = ceiling(squares, SQUARES), first = 0;
    const float *from = at(call, &s->from, image, row), *other = at(call, &s->other, image, row);
    const float *weights = s->weights + panel * wide * TERMS * s->span, *bias = s->bias + panel * wide;
    float *to = at(call, &s->to, image, row) + panel * wide;
    /* between terms a cache line more, so that they do not lie in one set of the cache */
    int64_t apart = SQUARES * s->span + WIDTH, sums_apart = SQUARES * wide + WIDTH;
    float *terms = at(call, &s->scratch, self, 0), *sums = terms + TERMS * apart;
    Vector check = {0};
    for (int64_t i = 0; i < count; i++) {
        int64_t number = squares * (i + 1) / count - first;
        for (int64_t t = 0; t < number; t++) {
            int64_t y = (first + t) / across * 2, x = (first + t) % across * 2;
            forward(s, from + y * s->from.row + x * s->from.column, s->rows - row - y > 1 ? 4 : 3,
                    s->columns - x > 1 ? 4 : 3, terms + t * s->span, apart);
        }
        multiply_terms(s, terms, apart, weights, number, sums, sums_apart);
        for (int64_t t = 0; t < number; t++) {
            int64_t y = (first + t) / across * 2, x = (first + t) % across * 2;
            int rows = s->rows - row - y > 1 ? 2 : 1, columns = s->columns - x > 1 ? 2 : 1;
            float *outputs = to + y * s->to.row + x * s->to.column;
            const float *add = other ? other + panel * wide + y * s->other.row + x * s->other.column : NULL;
            backward(s, sums + t * wide, sums_apart, bias, rows, columns, outputs, add, left < wide ? left : wide,
                     &check);
            for (y = 0; s->activation > RELU && y < rows; y++)
                finish(columns, s, outputs + y * s->to.row, NULL, left < wide ? left : wide);
        }
        first += number;
    }
    for (int i = 0; i < WIDTH; i++)
        if (check[i] != check[i]) atomic_store_explicit(call->not_finite, 1, memory_order_relaxed);
}

static void range_of(const Step *s, int axis, int64_t position, int64_t *begin, int64_t *end) {
    *begin = position * s->stride[axis] - s->before[axis];
    *end = *begin + s->window[axis] < s->size[axis] ? *begin + s->window[axis] : s->size[axis];
    if (*begin < 0) *begin = 0;
}

static void pool(const Step *s, const Call *call, int64_t image, int64_t row) {
    const float *operand = at(call, &s->from, image, 0);
    float *to = at(call, &s->to, image, row);
    int64_t top, bottom, left, right;
    range_of(s, 0, row, &top, &bottom);
    for (int64_t column = 0; column < s->columns; column++) {
        range_of(s, 1, column, &left, &right);
        int64_t cells = (bottom - top) * (right - left), all = s->window[0] * s->window[1];
        if (s->counts_padding || cells < 1) cells = all;
        for (int64_t c = 0; c < s->channels; c += WIDTH) {
            Vector result = spread(s->kind == MEAN ? 0.0f : -INFINITY);
            for (int64_t y = top; y < bottom; y++)
                for (int64_t x = left; x < right; x++) {
                    Vector cell = load(operand + y * s->from.row + x * s->from.column + c, s->channels - c);
                    if (s->kind == MEAN) result += cell;
                    else result = larger_or_nan(cell, result);
                }
            if (s->kind == MEAN) result /= spread((float)cells);
            store(to + column * s->to.column + c, activated(result, s->activation), s->channels - c);
        }
    }
}

static void pointwise(const Step *s, const Call *call, int64_t image, int64_t row) {
    const float *from = at(call, &s->from, image, row), *other = at(call, &s->other, image, row);
    float *to = at(call, &s->to, image, row);
    for (int64_t column = 0; column < s->columns; column++)
        for (int64_t c = 0; c < s->channels; c += WIDTH) {
            int64_t left = s->channels - c;
            Vector x = load(from + column * s->from.column + c, left);
            if (other) {
                Vector y = load(other + column * s->other.column + c, left);
                x = s->multiplies ? x * y : x + y;
            }
            store(to + column * s->to.column + c, activated(x, s->activation), left);
        }
}

static void copy(const Step *s, const Call *call, int64_t image, int64_t row) {
    const float *from = at(call, &s->from, image, row);
    float *to = at(call, &s->to, image, row);
    for (int64_t c = 0; c < s->channels; c++)
        for (int64_t column = 0; column < s->columns; column++)
            to[column * s->to.column + c * s->to_channel] = from[column * s->from.column + c * s->from_channel];
}

/* ---- shares: some rows of an image, and of a product one panel of weights; those of one panel lie side by side */

static int64_t panels(const Step *s) { return s->kind == PRODUCT ? ceiling(s->channels, s->vectors * WIDTH) : 1; }

static int64_t rows_of_share(const Step *s) {
    int64_t work = s->columns; /* of a row, about so many products */
    if (s->scratch.buffer >= 0) return 2 * ceiling(FEWEST_SQUARES, ceiling(s->columns, 2));
    if (s->kind == PRODUCT) work *= s->vectors * WIDTH * s->taps * s->span;
    else work *= s->channels * (s->kind == LARGEST || s->kind == MEAN ? 4 * s->window[0] * s->window[1] : 16);
    return work >= SMALLEST_SHARE || work < 1 ? 1 : ceiling(SMALLEST_SHARE, work);
}

static int64_t shares(const Step *s) { return panels(s) * s->images * ceiling(s->rows, rows_of_share(s)); }

static void compute(const Step *s, const Call *call, int64_t self, int64_t share) {
    int64_t rows = rows_of_share(s), of_image = ceiling(s->rows, rows);
    int64_t panel = share / (of_image * s->images), image = share / of_image % s->images;
    int64_t row = share % of_image * rows, end = row + rows < s->rows ? row + rows : s->rows;
    if (s->scratch.buffer >= 0) transform(s, call, self, panel, image, row, end);
    else for (; row < end; row++) switch (s->kind) {
        case PRODUCT: multiply(s, call, panel, image, row); break;
        case POINTWISE: pointwise(s, call, image, row); break;
        case COPY: copy(s, call, image, row); break;
        default: pool(s, call, image, row);
        }
}

/* ---- threads

   One call at a time has the helpers; others, from other threads, compute alone. The caller publishes a step by the
   next number of `turn`, and each part's shares as (turn, next share). It gives the parts that turn before it changes
   anything else: a helper that comes late finds another turn there, and takes nothing. So what it has read of the step
   is still true whenever it takes a share. */

enum { MOST_THREADS = 16 };
static const int64_t SPINNING = 100000; /* ns that a helper waits for the next step before it sleeps */
static const int64_t ALONE = 10000000; /* ns without helpers, after one was on the core of the call that it helped */

static struct {
    _Alignas(64) atomic_int busy;
    atomic_int core; /* where the caller runs */
    _Atomic int64_t alone; /* the time until which helpers are left asleep */
    _Alignas(64) _Atomic uint32_t turn;
    _Atomic(const Step *) step;
    Call call;
    _Atomic int64_t shares;
    _Alignas(64) _Atomic int64_t finished;
    struct { _Alignas(64) _Atomic uint64_t next; } parts[MOST_THREADS];
    int threads; /* with the caller's */
    int sleeping, listens_for_forks;
    pthread_mutex_t lock;
    pthread_cond_t wake;
} pool_ = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER, .threads = 1};

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000 + t.tv_nsec;
}

/* A helper on its caller's core would take its time: it steps aside, unless it has just done so, since then other
   processes keep the other cores busy. */
static int is_in_the_way(int64_t *aside) {
    if (core() < 0 || core() != atomic_load(&pool_.core) || !atomic_load(&pool_.busy)) return 0;
    int64_t before = *aside;
    *aside = now();
    if (*aside - before > ALONE && steps_aside(atomic_load(&pool_.core))) return 0;
    atomic_store(&pool_.alone, *aside + ALONE);
    return 1;
}

/* Take shares of a part while there are any in this turn. */
static void take(int self, int part, uint32_t turn, int64_t count, const Step *step, const Call *call) {
    int64_t end = count * (part + 1) / call->threads;
    _Atomic uint64_t *next = &pool_.parts[part].next;
    for (uint64_t seen = atomic_load(next); seen >> 32 == turn && (int64_t)(uint32_t)seen < end;)
        if (atomic_compare_exchange_weak(next, &seen, seen + 1)) {
            compute(step, call, self, (uint32_t)seen);
            atomic_fetch_add(&pool_.finished, 1);
            seen = atomic_load(next);
        }
}

static void participate(int self, uint32_t turn) {
    const Step *step = atomic_load(&pool_.step);
    int64_t count = atomic_load(&pool_.shares);
    Call call = pool_.call;
    atomic_thread_fence(memory_order_acquire); /* shares are taken after all this was read */
    if (self >= call.threads) return;
    for (int i = 0; i < call.threads; i++) take(self, (int)((self + i) % call.threads), turn, count, step, &call);
}

static void *help(void *argument) {
    int self = (int)(intptr_t)argument;
    int64_t aside = 0;
    uint32_t seen = atomic_load(&pool_.turn);
    for (;;) {
        int64_t since = now();
        for (int i = 0; atomic_load_explicit(&pool_.turn, memory_order_acquire) == seen; i++) {
            relax();
            if (i % 64 < 63 || (now() - since < SPINNING && !is_in_the_way(&aside))) continue;
            pthread_mutex_lock(&pool_.lock);
            pool_.sleeping++;
            while (atomic_load(&pool_.turn) == seen) pthread_cond_wait(&pool_.wake, &pool_.lock);
            pool_.sleeping--;
            pthread_mutex_unlock(&pool_.lock);
        }
        seen = atomic_load(&pool_.turn);
        if (!is_in_the_way(&aside)) participate(self, seen);
    }
    return NULL;
}

static void forget_threads(void) { /* in the child of a fork, which has none of them */
    pool_.threads = 1;
    pool_.sleeping = 0;
    atomic_store(&pool_.busy, 0);
    pthread_mutex_init(&pool_.lock, NULL);
    pthread_cond_init(&pool_.wake, NULL);
}

static void start_threads(int threads) {
    if (pool_.threads >= threads || pool_.threads >= MOST_THREADS) return;
    if (!pool_.listens_for_forks) pool_.listens_for_forks = !pthread_atfork(NULL, NULL, forget_threads);
    sigset_t all, before; /* signals are for Python's threads */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool_.threads < threads && pool_.threads < MOST_THREADS) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, help, (void *)(intptr_t)pool_.threads)) break;
        pthread_detach(thread);
        pool_.threads++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void share_out(const Step *step, const Call *call, int64_t count) {
    uint32_t turn = atomic_load(&pool_.turn) + 1;
    for (int part = 0; part < pool_.threads; part++) /* none yet */
        atomic_store_explicit(&pool_.parts[part].next, (uint64_t)turn << 32 | UINT32_MAX, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    atomic_store(&pool_.core, core()); /* the system may have moved the caller */
    atomic_store(&pool_.step, step);
    pool_.call = *call;
    atomic_store(&pool_.shares, count);
    atomic_store(&pool_.finished, 0);
    for (int part = 0; part < call->threads; part++)
        atomic_store(&pool_.parts[part].next, (uint64_t)turn << 32 | (uint64_t)(count * part / call->threads));
    atomic_store(&pool_.turn, turn);
    participate(0, turn);
    for (int i = 1; atomic_load(&pool_.finished) < count; i++) {
        relax();
        if (i % 1024 == 0) sched_yield();
    }
}

static void run(const Step *steps, int64_t number, Call *call, int shared) {
    for (int64_t i = 0; i < number; i++) {
        const Step *s = &steps[i];
        if (s->kind == LOOP) {
            for (call->step = 0; call->step < s->steps; call->step++) run(s + 1, s->body, call, shared);
            call->step = 0;
            i += s->body;
            continue;
        }
        int64_t count = shares(s);
        if (shared && count > 1) share_out(s, call, count);
        else
            for (int64_t share = 0; share < count; share++) compute(s, call, 0, share);
    }
}

static void wake_threads(void) {
    pthread_mutex_lock(&pool_.lock);
    if (pool_.sleeping) {
        atomic_store(&pool_.shares, 0);
        atomic_fetch_add(&pool_.turn, 1); /* a turn without shares */
        pthread_cond_broadcast(&pool_.wake);
    }
    pthread_mutex_unlock(&pool_.lock);
}

EXPORT int64_t cntkjax_steps_version(void) { return VERSION; }

/* 0 on a processor without the vector instructions for which this was compiled. */
EXPORT int64_t cntkjax_steps_width(void) {
#if defined(__AVX512F__)
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512dq")) return 0;
#elif defined(__AVX2__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
#endif
    return WIDTH;
}

EXPORT int64_t cntkjax_steps_size(void) { return sizeof(Step); }

/* Run the steps on the buffers of a call, by up to so many threads. 1 if their results may be wrong, since numbers are
   not finite, and it takes steps without transforms. */
EXPORT int64_t cntkjax_steps_run(const Step *steps, int64_t number, float *const *buffers, int64_t threads) {
    atomic_int not_finite = 0;
    Call call = {.buffers = buffers, .threads = 1, .not_finite = &not_finite};
    int shared = threads > 1 && !atomic_exchange(&pool_.busy, 1);
    if (shared && now() < atomic_load(&pool_.alone)) {
        atomic_store(&pool_.busy, 0);
        shared = 0;
    }
    if (shared) {
        atomic_store(&pool_.core, core());
        start_threads((int)threads);
        call.threads = threads < pool_.threads ? threads : pool_.threads;
        wake_threads();
    }
    run(steps, number, &call, shared);
    if (shared) atomic_store(&pool_.busy, 0);
    return atomic_load(&not_finite);
}
