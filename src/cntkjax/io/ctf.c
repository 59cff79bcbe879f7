/* Parsing of CNTK text format, called through `_ctf_native.py`.

   The functions take arrays of NumPy's and allocate nothing. Whatever the bytes are, nothing is read or written outside
   the arrays: text is bounded by its size, results by the capacities that the caller states. `_ctf_vectorized.py`
   computes the same results with NumPy, to the bit. A row that is not well-formed is left to `_ctf_rows.py`. */

#include <stdint.h>
#include <string.h>

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

enum { VERSION = 1 };               /* as in _ctf_native.py */
enum { LONGEST = 512 };             /* characters of a number */
enum { LONGEST_INDEX = 18 };        /* digits of an index */
enum { MAX_EXPONENT = 308 };
static const uint64_t EXACT = (((uint64_t)1 << 53) - 10) / 10; /* times ten plus a digit is exact in a double */

typedef const uint8_t *Text;

typedef struct {
    Text name;
    int64_t name_size, width, is_sparse;
    /* results, with room for `max_samples` and `max_entries` */
    int64_t *rows, *counts; /* of each sample: its row, and how many values it has in the text */
    float *values;          /* [samples, width], or [entries] if sparse */
    int32_t *indices;       /* [entries] */
    int64_t max_samples, max_entries, samples, entries;
    int64_t entries_before; /* this row */
    int64_t is_canonical; /* indices ascend in every sample and no value is zero */
} Field;

EXPORT int64_t cntkjax_ctf_version(void) { return VERSION; }

static int is_digit(uint8_t c) { return (uint8_t)(c - '0') < 10; }

static const uint8_t SEPARATORS[256] = {[' '] = 1, ['\t'] = 1, ['\r'] = 1, ['\n'] = 1, ['|'] = 1};

static int separates(uint8_t c) { return SEPARATORS[c]; }

static Text find(Text begin, Text end, int character) {
    Text at = begin < end ? memchr(begin, character, (size_t)(end - begin)) : NULL;
    return at ? at : end;
}

static Text word_end(Text at, Text end) {
    while (at < end && !separates(*at)) at++;
    return at;
}

static Text skip_separators(Text at, Text end) {
    while (at < end && separates(*at)) at++;
    return at;
}

/* ---- numbers: [+-] digits [. [digits]] [e [+-] digits] */

typedef struct {
    uint64_t whole; /* as long as it is exact in a double */
    double rounded; /* from then on, digit by digit */
    int is_rounded;
} Digits;

static Text read_digits(Text at, Text end, Digits *digits) {
    uint64_t whole = digits->whole;
    for (; at < end && is_digit(*at) && whole <= EXACT; at++) whole = whole * 10 + (*at - '0');
    digits->whole = whole;
    for (; at < end && is_digit(*at); at++) {
        if (!digits->is_rounded) digits->rounded = (double)whole, digits->is_rounded = 1;
        digits->rounded *= 10;
        digits->rounded += *at - '0';
    }
    return at;
}

typedef struct {
    double value;
    int64_t places; /* digits after the point */
    int has_point;
} Decimal;

/* Reads a number without exponent; where it ends, or NULL. */
static inline Text read_decimal(Text at, Text end, Decimal *decimal) {
    Text begin = at;
    Digits digits = {0, 0, 0};
    int is_negative = at < end && *at == '-';
    if (is_negative || (at < end && *at == '+')) at++;
    Text first = at;
    at = read_digits(at, end, &digits);
    if (at == first) return NULL;
    decimal->places = 0;
    decimal->has_point = at < end && *at == '.';
    if (decimal->has_point) {
        Text point = at++;
        at = read_digits(at, end, &digits);
        decimal->places = at - point - 1;
    }
    if (at - begin > LONGEST) return NULL;
    double value = digits.is_rounded ? digits.rounded : (double)digits.whole;
    decimal->value = is_negative ? -value : value;
    return at;
}

/* Reads a number that a separator follows; where it ends, or NULL. */
static inline Text read_number(Text at, Text end, const double *powers, float *number) {
    Decimal mantissa, exponent;
    at = read_decimal(at, end, &mantissa);
    if (!at) return NULL;
    double scale = -(double)mantissa.places;
    if (at < end && (*at | 32) == 'e') {
        at = read_decimal(at + 1, end, &exponent);
        if (!at || exponent.has_point) return NULL;
        scale += exponent.value;
    }
    if (at < end && !separates(*at)) return NULL;
    if (scale > MAX_EXPONENT) scale = MAX_EXPONENT;
    if (scale < -MAX_EXPONENT) scale = -MAX_EXPONENT;
    int power = (int)scale;
    *number = (float)(power < 0 ? mantissa.value / powers[-power] : mantissa.value * powers[power]);
    return at;
}

static Text read_index(Text at, Text end, int64_t width, int32_t *index) {
    Text begin = at;
    int64_t value = 0;
    for (; at < end && is_digit(*at); at++) {
        if (at - begin == LONGEST_INDEX) return NULL;
        value = value * 10 + (*at - '0');
    }
    if (at == begin || at == end || *at != ':' || value >= width) return NULL;
    *index = (int32_t)value;
    return at + 1;
}

/* ---- samples: the text between the name of a field and the next bar */

static int read_dense(Text at, Text end, const double *powers, Field *field) {
    float *sample = field->values + field->samples * field->width;
    int64_t count = 0;
    for (at = skip_separators(at, end); at < end; at = skip_separators(at, end)) {
        if (count == field->width) return 0;
        at = read_number(at, end, powers, &sample[count++]);
        if (!at) return 0;
    }
    field->counts[field->samples] = count;
    for (; count < field->width; count++) sample[count] = 0;
    return 1;
}

static int read_sparse(Text at, Text end, const double *powers, Field *field) {
    int64_t first = field->entries;
    int32_t before = -1;
    for (at = skip_separators(at, end); at < end; at = skip_separators(at, end)) {
        int32_t index;
        float value;
        at = read_index(at, end, field->width, &index);
        if (!at || field->entries == field->max_entries) return 0;
        at = read_number(at, end, powers, &value);
        if (!at) return 0;
        if (index <= before || value == 0) field->is_canonical = 0;
        before = index;
        field->indices[field->entries] = index;
        field->values[field->entries++] = value;
    }
    field->counts[field->samples] = field->entries - first;
    return 1;
}

/* ---- rows */

static Field *field_named(Text name, Text end, Field *fields, int64_t num_fields) {
    for (Field *field = fields; field < fields + num_fields; field++)
        if (field->name_size == end - name && !memcmp(field->name, name, (size_t)field->name_size)) return field;
    return NULL;
}

/* Whether nothing precedes the first bar but a sequence id in the first column. */
static int is_prefix(Text at, Text end) {
    while (at < end && is_digit(*at)) at++;
    return skip_separators(at, end) == end;
}

/* Appends the samples of a row without its newline; 0 if it is not well-formed, then some may have been appended. */
static int read_row(Text at, Text end, int64_t row, const double *powers, Field *fields, int64_t num_fields) {
    int has_sample = 0;
    Text bar = find(at, end, '|');
    if (bar == end || !is_prefix(at, bar)) return 0;
    while (bar < end) {
        Text name = bar + 1, name_end = word_end(name, end), next = find(name_end, end, '|');
        if (name == name_end) return 0;
        Field *field = field_named(name, name_end, fields, num_fields);
        if (field) {
            if (field->samples == field->max_samples) return 0;
            if (field->samples && field->rows[field->samples - 1] == row) return 0; /* twice in a row */
            if (!(field->is_sparse ? read_sparse : read_dense)(name_end, next, powers, field)) return 0;
            field->rows[field->samples++] = row;
            has_sample = 1;
        }
        bar = next;
    }
    return has_sample;
}

/* Counts the samples and, of sparse fields, the colons in a text, which ends with a newline; returns its rows. */
EXPORT int64_t cntkjax_ctf_count(Text text, int64_t size, Field *fields, int64_t num_fields) {
    Text end = text + size;
    int64_t rows = 0;
    for (Text at = text; at < end; rows++) {
        Text row_end = find(at, end, '\n');
        for (Text bar = find(at, row_end, '|'); bar < row_end;) {
            Text name_end = word_end(bar + 1, row_end), next = find(name_end, row_end, '|');
            Field *field = field_named(bar + 1, name_end, fields, num_fields);
            if (field) {
                field->max_samples++;
                if (field->is_sparse)
                    for (Text c = name_end; c < next; c++) field->max_entries += *c == ':';
            }
            bar = next;
        }
        at = row_end + 1;
    }
    return rows;
}

/* Parses a text, which ends with a newline. Rows that are not well-formed are skipped: their numbers and the offsets
   of their first characters are stored in `malformed` [max_malformed, 2]. Returns how many there are. */
EXPORT int64_t cntkjax_ctf_parse(Text text, int64_t size, int64_t first_row, const double *powers, Field *fields,
                                 int64_t num_fields, int64_t *malformed, int64_t max_malformed) {
    Text end = text + size;
    int64_t row = first_row, num_malformed = 0;
    for (Text at = text; at < end; row++) {
        Text row_end = find(at, end, '\n');
        for (Field *field = fields; field < fields + num_fields; field++) field->entries_before = field->entries;
        if (!read_row(at, row_end, row, powers, fields, num_fields)) {
            for (Field *field = fields; field < fields + num_fields; field++) {
                if (field->samples && field->rows[field->samples - 1] == row) field->samples--;
                field->entries = field->entries_before;
            }
            if (num_malformed < max_malformed) {
                malformed[2 * num_malformed] = row;
                malformed[2 * num_malformed + 1] = at - text;
            }
            num_malformed++;
        }
        at = row_end + 1;
    }
    return num_malformed;
}
