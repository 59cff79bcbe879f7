/* On which core a thread runs, for the libraries in C. Whoever includes it defines _GNU_SOURCE first. */

#include <sched.h>

/* -1 where the system does not say. */
static int core(void) {
#if defined(__linux__)
    return sched_getcpu();
#else
    return -1;
#endif
}

/* Go to another core than a caller's, near which the system wakes a thread; whether there was one. */
static int steps_aside(int callers) {
#if defined(__linux__)
    cpu_set_t all, others;
    if (sched_getaffinity(0, sizeof all, &all)) return 0;
    others = all;
    CPU_CLR(callers, &others);
    if (!CPU_COUNT(&others) || sched_setaffinity(0, sizeof others, &others)) return 0;
    sched_setaffinity(0, sizeof all, &all);
#endif
    return core() != callers;
}
