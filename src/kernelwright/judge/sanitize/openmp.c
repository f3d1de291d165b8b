/* SPDX-License-Identifier: Apache-2.0 */
/* Tells ThreadSanitizer what OpenMP's runtime (libgomp) orders: regions, barriers, critical sections, locks.

   libgomp synchronises with futexes that ThreadSanitizer does not see, so every region would look like a race with
   the code around it. Loaded before libgomp, each function here does what libgomp's of the same name does, with
   __tsan_release before a thread gives up what it wrote and __tsan_acquire after it was let on. The entry points are
   those that GCC emits (libgomp.map, OpenMP 4.5); the method is that of Archer (Atzeni et al. 2016) for LLVM's
   runtime. Tasks and depend clauses are not covered: a library that uses them is not judged with this. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>

extern void __tsan_acquire(void *at);
extern void __tsan_release(void *at);

typedef void (*body_t)(void *);

typedef struct region {
    body_t body;
    void *data;
    struct region *outer;
    char begin, end, barrier, single; /* their addresses name the points that are ordered */
} region;

static __thread region *here;
static char everywhere, ordered, atomic_lock;

#define REAL(name) ((__typeof__(&name))real(&cached_##name, #name))
#define CACHED(name) static void *cached_##name

static void *real(void **cached, const char *name) {
    void *found = __atomic_load_n(cached, __ATOMIC_ACQUIRE);
    if (!found) {
        found = dlsym(RTLD_NEXT, name);
        __atomic_store_n(cached, found, __ATOMIC_RELEASE);
    }
    return found;
}

static void run(void *given) {
    region *mine = given, *before = here;
    here = mine;
    __tsan_acquire(&mine->begin);
    mine->body(mine->data);
    __tsan_release(&mine->end);
    here = before;
}

#define AROUND(call)                                                                                                   \
    region mine = {body, data, here, 0, 0, 0, 0};                                                                      \
    __tsan_release(&mine.begin);                                                                                       \
    call;                                                                                                              \
    __tsan_acquire(&mine.end)

#define PARALLEL_LOOP(name)                                                                                            \
    CACHED(name);                                                                                                      \
    void name(body_t body, void *data, unsigned threads, long start, long end, long step, long chunk,                  \
              unsigned flags) {                                                                                        \
        AROUND(REAL(name)(run, &mine, threads, start, end, step, chunk, flags));                                       \
    }
#define PARALLEL_LOOP_RUNTIME(name)                                                                                    \
    CACHED(name);                                                                                                      \
    void name(body_t body, void *data, unsigned threads, long start, long end, long step, unsigned flags) {            \
        AROUND(REAL(name)(run, &mine, threads, start, end, step, flags));                                              \
    }

CACHED(GOMP_parallel);
void GOMP_parallel(body_t body, void *data, unsigned threads, unsigned flags) {
    AROUND(REAL(GOMP_parallel)(run, &mine, threads, flags));
}

CACHED(GOMP_parallel_sections);
void GOMP_parallel_sections(body_t body, void *data, unsigned threads, unsigned count, unsigned flags) {
    AROUND(REAL(GOMP_parallel_sections)(run, &mine, threads, count, flags));
}

PARALLEL_LOOP(GOMP_parallel_loop_static)
PARALLEL_LOOP(GOMP_parallel_loop_dynamic)
PARALLEL_LOOP(GOMP_parallel_loop_guided)
PARALLEL_LOOP(GOMP_parallel_loop_nonmonotonic_dynamic)
PARALLEL_LOOP(GOMP_parallel_loop_nonmonotonic_guided)
PARALLEL_LOOP_RUNTIME(GOMP_parallel_loop_runtime)
PARALLEL_LOOP_RUNTIME(GOMP_parallel_loop_nonmonotonic_runtime)
PARALLEL_LOOP_RUNTIME(GOMP_parallel_loop_maybe_nonmonotonic_runtime)

/* Everything before a barrier comes before everything after it. */
#define BARRIER(name)                                                                                                  \
    CACHED(name);                                                                                                      \
    void name(void) {                                                                                                  \
        void *at = here ? &here->barrier : &everywhere;                                                                \
        __tsan_release(at);                                                                                            \
        REAL(name)();                                                                                                  \
        __tsan_acquire(at);                                                                                            \
    }

BARRIER(GOMP_barrier)
BARRIER(GOMP_loop_end)
BARRIER(GOMP_sections_end)

CACHED(GOMP_single_copy_start);
void *GOMP_single_copy_start(void) {
    void *found = REAL(GOMP_single_copy_start)();
    if (found) __tsan_acquire(here ? &here->single : &everywhere);
    return found;
}

CACHED(GOMP_single_copy_end);
void GOMP_single_copy_end(void *data) {
    __tsan_release(here ? &here->single : &everywhere);
    REAL(GOMP_single_copy_end)(data);
}

#define LOCKED(start, end, at)                                                                                         \
    CACHED(start);                                                                                                     \
    void start(void) {                                                                                                 \
        REAL(start)();                                                                                                 \
        __tsan_acquire(at);                                                                                            \
    }                                                                                                                  \
    CACHED(end);                                                                                                       \
    void end(void) {                                                                                                   \
        __tsan_release(at);                                                                                            \
        REAL(end)();                                                                                                   \
    }

LOCKED(GOMP_critical_start, GOMP_critical_end, &everywhere)
LOCKED(GOMP_atomic_start, GOMP_atomic_end, &atomic_lock)
LOCKED(GOMP_ordered_start, GOMP_ordered_end, &ordered)

CACHED(GOMP_critical_name_start);
void GOMP_critical_name_start(void **name) {
    REAL(GOMP_critical_name_start)(name);
    __tsan_acquire(name);
}

CACHED(GOMP_critical_name_end);
void GOMP_critical_name_end(void **name) {
    __tsan_release(name);
    REAL(GOMP_critical_name_end)(name);
}

#define LOCK(set, unset, test)                                                                                         \
    CACHED(set);                                                                                                       \
    void set(void *lock) {                                                                                             \
        REAL(set)(lock);                                                                                               \
        __tsan_acquire(lock);                                                                                          \
    }                                                                                                                  \
    CACHED(unset);                                                                                                     \
    void unset(void *lock) {                                                                                           \
        __tsan_release(lock);                                                                                          \
        REAL(unset)(lock);                                                                                             \
    }                                                                                                                  \
    CACHED(test);                                                                                                      \
    int test(void *lock) {                                                                                             \
        int taken = REAL(test)(lock);                                                                                  \
        if (taken) __tsan_acquire(lock);                                                                               \
        return taken;                                                                                                  \
    }

LOCK(omp_set_lock, omp_unset_lock, omp_test_lock)
LOCK(omp_set_nest_lock, omp_unset_nest_lock, omp_test_nest_lock)
