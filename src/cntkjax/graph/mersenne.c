/* The 64-bit Mersenne Twister: Nishimura, "Tables of 64-bit Mersenne twisters", ACM TOMACS 10 (2000). */

#include <stdint.h>

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

enum { VERSION = 1, SIZE = 312, MIDDLE = 156 }; /* the version as in mersenne.py */

static const uint64_t UPPER = 0xFFFFFFFF80000000u, LOWER = 0x7FFFFFFFu, TWIST = 0xB5026F5AA96619E9u;

EXPORT int64_t cntkjax_mersenne_version(void) { return VERSION; }

static uint64_t twisted(uint64_t high, uint64_t low, uint64_t other) {
    uint64_t x = (high & UPPER) | (low & LOWER);
    return other ^ (x >> 1) ^ (-(x & 1) & TWIST);
}

/* The numbers of the next round, in the place of those of the last. */
static void renew(uint64_t *state) {
    for (int i = 0; i < SIZE - MIDDLE; i++) state[i] = twisted(state[i], state[i + 1], state[i + MIDDLE]);
    for (int i = SIZE - MIDDLE; i < SIZE - 1; i++) state[i] = twisted(state[i], state[i + 1], state[i + MIDDLE - SIZE]);
    state[SIZE - 1] = twisted(state[SIZE - 1], state[0], state[MIDDLE - 1]);
}

/* The next numbers. `place`: of the first of them in the state. */
EXPORT void cntkjax_mersenne_draw(uint64_t *state, int64_t *place, uint64_t *to, int64_t number) {
    while (number > 0) {
        if (*place == SIZE) {
            renew(state);
            *place = 0;
        }
        int64_t n = number < SIZE - *place ? number : SIZE - *place;
        for (int64_t i = 0; i < n; i++) {
            uint64_t x = state[*place + i];
            x ^= (x >> 29) & 0x5555555555555555u;
            x ^= (x << 17) & 0x71D67FFFEDA60000u;
            x ^= (x << 37) & 0xFFF7EEE000000000u;
            to[i] = x ^ (x >> 43);
        }
        *place += n;
        number -= n;
        to += n;
    }
}
