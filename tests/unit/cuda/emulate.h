/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The section "hardware" of portable.cu and reference.cu for the CPU: a block of threads as fibers,
 * the warp's instructions as meetings of 32 of them. What a GPU may do late is done as late as it
 * may be, and what it may overwrite at once is overwritten at once:
 *
 *   copy16       poisons its destination when issued; the bytes arrive at the copy_wait that asks
 *                for them, for the thread that issued them
 *   scheduling   a warp runs until it meets a barrier before another warp runs; which is next is
 *                drawn from a seed
 *
 * so a missing wait or barrier, or a stage written too early, shows as NaN in the result. A warp
 * whose lanes meet in different instructions, an address outside shared memory, a global access
 * outside the ranges that the test allows: all end the run with a sentence in emulate_error.
 */
#ifndef GEMMD_TESTS_EMULATE_H
#define GEMMD_TESTS_EMULATE_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "tests/unit/cuda/emulate_launch.h"

enum {
    EMULATE_THREADS_MAX = 512,
    EMULATE_SHARED_MAX = 256 * 1024,
    EMULATE_STACK = 64 * 1024,
    EMULATE_WORDS = 12,
    EMULATE_COPIES_MAX = 1024
};

/* ---- fibers --------------------------------------------------------------------------------- */

/* swapcontext makes a system call each time; a few instructions do where we know the machine. */
#ifdef __x86_64__
struct emulate_fiber {
    void *stack_pointer;
};

void emulate_switch(struct emulate_fiber *from, const struct emulate_fiber *to);
__asm__(".text\n"
        "emulate_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n"
        "    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq (%rsi), %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n"
        "    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n");

static void emulate_make(struct emulate_fiber *f, char *stack, void (*entry)(void))
{
    void **top = (void **)(stack + EMULATE_STACK - 56);
    top[0] = NULL; /* where entry would return to; at its first instruction rsp is 16 n + 8 */
    *--top = (void *)entry;
    f->stack_pointer = top - 6;
}
#else
struct emulate_fiber {
    ucontext_t context;
};

static void emulate_switch(struct emulate_fiber *from, const struct emulate_fiber *to)
{
    swapcontext(&from->context, &to->context);
}

static void emulate_make(struct emulate_fiber *f, char *stack, void (*entry)(void))
{
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = stack;
    f->context.uc_stack.ss_size = EMULATE_STACK;
    f->context.uc_link = NULL;
    makecontext(&f->context, entry, 0);
}
#endif

/* ---- state ---------------------------------------------------------------------------------- */

struct emulate_copy {
    uint32_t to;
    const char *from;
    int bytes;
    int group;
};

/* A meeting: of a warp (an instruction) or of the whole block (a barrier). */
struct emulate_meeting {
    uint32_t arrived, round;
    const char *what;
};

struct emulate_thread {
    struct emulate_fiber fiber;
    char *stack;
    int done;
    const struct emulate_meeting *waits_for; /* NULL: can run */
    uint32_t round;                          /* waits until it is over */
    int groups;                              /* committed */
    uint32_t n_copies;
    struct emulate_copy copies[EMULATE_COPIES_MAX];
};

struct emulate_warp {
    struct emulate_meeting meeting;
    uint32_t in[32][EMULATE_WORDS], out[32][EMULATE_WORDS];
};

static struct {
    struct emulate_launch l;
    struct emulate_thread *threads;
    struct emulate_warp warps[EMULATE_THREADS_MAX / 32];
    struct emulate_meeting barrier;
    struct emulate_fiber scheduler;
    int current;
    int block[3];
    uint64_t random;
    int failed;
} emulate;

char emulate_error[256];
static char shared_memory[EMULATE_SHARED_MAX] __attribute__((aligned(128)));

/* What goes on by itself beside the threads (copy engines): called between rounds of the warps, and
 * says whether there is anything that it may still do. */
#ifdef EMULATE_ASYNC
static void emulate_async_begin(void);
static int emulate_async(void);
#else
static void emulate_async_begin(void)
{
}
static int emulate_async(void)
{
    return 0;
}
#endif

#define THREAD    (emulate.current)
#define BLOCK     (emulate.block[0])
#define BLOCKS    ((int)emulate.l.grid[0])
#define INLINE    static inline
#define HIDE32(v) ((void)(v))
#define HIDE64(v) ((void)(v))
#define KERNEL    void
#define PARAMS    struct portable_params

/* ---- scheduling ----------------------------------------------------------------------------- */

static void emulate_fail(const char *format, ...)
{
    if (!emulate.failed) {
        va_list args;
        va_start(args, format);
        int n = snprintf(emulate_error, sizeof(emulate_error),
                         "block %d thread %d: ", emulate.block[0], emulate.current);
        vsnprintf(emulate_error + n, sizeof(emulate_error) - (size_t)n, format, args);
        va_end(args);
    }
    emulate.failed = 1;
    emulate_switch(&emulate.threads[emulate.current].fiber, &emulate.scheduler); /* never back */
}

static void emulate_meet(struct emulate_meeting *m, uint32_t members, const char *what)
{
    struct emulate_thread *t = &emulate.threads[emulate.current];
    if (m->arrived == 0) {
        m->what = what;
    } else if (m->what != what) {
        emulate_fail("meets in %s while others are in %s", what, m->what);
    }
    m->arrived++;
    if (m->arrived == members) {
        m->arrived = 0;
        m->round++;
        return; /* the last one did not wait: it goes on and the others follow */
    }
    t->waits_for = m;
    t->round = m->round;
    emulate_switch(&t->fiber, &emulate.scheduler);
}

/* All lanes have put their words in; the last to come computes for all. */
static uint32_t *emulate_exchange(const char *what, const uint32_t *in, int n,
                                  void (*compute)(struct emulate_warp *w))
{
    struct emulate_warp *w = &emulate.warps[emulate.current / 32];
    int lane = emulate.current % 32;
    memcpy(w->in[lane], in, (size_t)n * sizeof(in[0]));
    if (w->meeting.arrived == 31 && w->meeting.what == what) {
        compute(w);
    }
    emulate_meet(&w->meeting, 32, what);
    return w->out[lane];
}

static uint64_t emulate_random(void)
{
    emulate.random = emulate.random * 6364136223846793005u + 1442695040888963407u;
    return emulate.random >> 33;
}

static int emulate_can_run(int i)
{
    struct emulate_thread *t = &emulate.threads[i];
    return !t->done && (!t->waits_for || t->waits_for->round != t->round);
}

static void emulate_resume(int i)
{
    emulate.current = i;
    emulate.threads[i].waits_for = NULL;
    emulate_switch(&emulate.scheduler, &emulate.threads[i].fiber);
}

/* Runs a warp until none of its lanes can go on. Returns whether any could. */
static int emulate_run_warp(int warp)
{
    int ran = 0;
    for (int again = 1; again && !emulate.failed;) {
        again = 0;
        for (int i = warp * 32; i < warp * 32 + 32 && !emulate.failed; i++) {
            if (emulate_can_run(i)) {
                emulate_resume(i);
                again = ran = 1;
            }
        }
    }
    return ran;
}

static void emulate_entry(void); /* calls the kernel with emulate.l.params */

static void emulate_begin(void)
{
    emulate_entry();
    emulate.threads[emulate.current].done = 1;
    emulate_switch(&emulate.threads[emulate.current].fiber, &emulate.scheduler);
}

static void emulate_block(void)
{
    int n = (int)emulate.l.threads, warps = n / 32;
    memset(shared_memory, 0xff, sizeof(shared_memory));
    memset(emulate.warps, 0, sizeof(emulate.warps));
    emulate.barrier = (struct emulate_meeting){0};
    emulate_async_begin();
    for (int i = 0; i < n; i++) {
        struct emulate_thread *t = &emulate.threads[i];
        t->done = t->groups = 0;
        t->n_copies = 0;
        t->waits_for = NULL;
        emulate_make(&t->fiber, t->stack, emulate_begin);
    }
    for (int ran = 1; ran && !emulate.failed;) {
        ran = emulate_async();
        int first = (int)(emulate_random() % (uint64_t)warps), back = (int)(emulate_random() & 1);
        for (int i = 0; i < warps && !emulate.failed; i++) {
            ran |= emulate_run_warp((back ? first + warps - i : first + i) % warps);
        }
    }
    for (int i = 0; i < n && !emulate.failed; i++) {
        if (!emulate.threads[i].done) {
            emulate.failed = 1;
            snprintf(emulate_error, sizeof(emulate_error),
                     "block %d thread %d waits for ever in %s", emulate.block[0], i,
                     emulate.threads[i].waits_for->what);
        }
    }
}

int emulate_launch(const struct emulate_launch *l)
{
    emulate.l = *l;
    emulate.failed = 0;
    emulate.random = l->seed;
    emulate.threads = calloc(l->threads, sizeof(emulate.threads[0]));
    for (uint32_t i = 0; i < l->threads; i++) {
        emulate.threads[i].stack = malloc(EMULATE_STACK);
    }
    for (uint32_t y = 0; y < l->grid[1] && !emulate.failed; y++) {
        for (uint32_t x = 0; x < l->grid[0] && !emulate.failed; x++) {
            emulate.block[0] = (int)x;
            emulate.block[1] = (int)y;
            emulate_block();
        }
    }
    for (uint32_t i = 0; i < l->threads; i++) {
        free(emulate.threads[i].stack);
    }
    free(emulate.threads);
    return emulate.failed ? -1 : 0;
}

static void barrier(void)
{
    emulate_meet(&emulate.barrier, emulate.l.threads, "barrier");
}

/* ---- memory --------------------------------------------------------------------------------- */

static void emulate_allowed(const char *at, size_t bytes, const char *what)
{
    for (uint32_t i = 0; i < emulate.l.n_ranges; i++) {
        if (at >= emulate.l.ranges[i].begin && at + bytes <= emulate.l.ranges[i].end) {
            if ((uintptr_t)at % bytes != 0) {
                emulate_fail("%s of %zu bytes is not aligned: %p", what, bytes, (const void *)at);
            }
            return;
        }
    }
    emulate_fail("%s of %zu bytes outside the operands: %p", what, bytes, (const void *)at);
}

static uint32_t shared_base(void)
{
    return 0;
}

static void emulate_shared(uint32_t at, const char *what)
{
    if (at % 16 || at + 16 > emulate.l.shared_bytes) {
        emulate_fail("%s at %u of %u bytes of shared memory", what, at, emulate.l.shared_bytes);
    }
}

static void copy16(uint32_t to, const char *from, int bytes)
{
    struct emulate_thread *t = &emulate.threads[emulate.current];
    emulate_shared(to, "copy");
    if (bytes) {
        emulate_allowed(from, 16, "copy");
    }
    if (t->n_copies == EMULATE_COPIES_MAX) {
        emulate_fail("too many copies in flight");
    }
    memset(shared_memory + to, 0xff, 16);
    t->copies[t->n_copies++] = (struct emulate_copy){to, from, bytes, t->groups};
}

static void copy_commit(void)
{
    emulate.threads[emulate.current].groups++;
}

/* Until all but the newest `pending` groups have arrived. */
static void emulate_wait(int pending)
{
    struct emulate_thread *t = &emulate.threads[emulate.current];
    uint32_t kept = 0;
    for (uint32_t i = 0; i < t->n_copies; i++) {
        struct emulate_copy *c = &t->copies[i];
        if (c->group >= t->groups - pending) {
            t->copies[kept++] = *c;
        } else if (c->bytes) {
            memcpy(shared_memory + c->to, c->from, 16);
        } else {
            memset(shared_memory + c->to, 0, 16);
        }
    }
    t->n_copies = kept;
}

static void store16(char *to, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    emulate_allowed(to, 16, "store");
    memcpy(to, (uint32_t[]){a, b, c, d}, 16);
}

static void store8(char *to, float a, float b)
{
    emulate_allowed(to, 8, "store");
    memcpy(to, (float[]){a, b}, 8);
}

/* ---- numbers -------------------------------------------------------------------------------- */

static float bits_to_float(uint32_t v)
{
    float f;
    memcpy(&f, &v, sizeof(f));
    return f;
}

static uint32_t float_to_bits(float v)
{
    uint32_t b;
    memcpy(&b, &v, sizeof(b));
    return b;
}

static float emulate_bf16_to_float(uint16_t v)
{
    return bits_to_float((uint32_t)v << 16);
}

static uint16_t emulate_float_to_bf16(float v)
{
    uint32_t b = float_to_bits(v);
    return v != v ? 0x7fff : (uint16_t)((b + 0x7fff + (b >> 16 & 1)) >> 16);
}

static float half_to_float(uint16_t v)
{
    uint32_t sign = (uint32_t)(v & 0x8000) << 16, exponent = v >> 10 & 31, mantissa = v & 1023;
    if (exponent == 31) {
        return bits_to_float(sign | 0x7f800000 | mantissa << 13);
    }
    float size = exponent ? bits_to_float((exponent + 112) << 23 | mantissa << 13)
                          : (float)mantissa * 0x1p-24f;
    return sign ? -size : size;
}

static uint16_t float_to_half(float v)
{
    uint32_t bits = float_to_bits(v), sign = bits >> 16 & 0x8000;
    float size = bits_to_float(bits & 0x7fffffff);
    if (v != v) {
        return 0x7fff;
    }
    if (size >= 65520) {
        return (uint16_t)(sign | 0x7c00);
    }
    if (size < 0x1p-14f) { /* a multiple of 2^-24; adding 2^-1 rounds to it */
        return (uint16_t)(sign | (float_to_bits(size + 0.5f) - float_to_bits(0.5f)));
    }
    bits = float_to_bits(size);
    bits += 0xfff + (bits >> 13 & 1);
    return (uint16_t)(sign | (bits - (112u << 23)) >> 13);
}

#ifdef IN_BF16
static float widen(uint16_t v)
{
    return IN_BF16 ? emulate_bf16_to_float(v) : half_to_float(v);
}

static uint32_t round_pair(float low, float high)
{
    return IN_BF16 ? emulate_float_to_bf16(low) | (uint32_t)emulate_float_to_bf16(high) << 16
                   : float_to_half(low) | (uint32_t)float_to_half(high) << 16;
}

static void copy_wait(void)
{
    emulate_wait(NUM_STAGES - 2);
}

/* ---- the warp's instructions ---------------------------------------------------------------- */

static uint16_t emulate_matrix(const struct emulate_warp *w, int matrix, int row, int column)
{
    uint16_t v;
    memcpy(&v, shared_memory + w->in[matrix * 8 + row][0] + column * 2, sizeof(v));
    return v;
}

static void emulate_ldmatrix(struct emulate_warp *w, int transposed)
{
    for (int lane = 0; lane < 32; lane++) {
        for (int m = 0; m < 4; m++) {
            uint32_t word = 0;
            for (int half = 0; half < 2; half++) {
                int major = lane / 4, minor = lane % 4 * 2 + half;
                uint16_t v = transposed ? emulate_matrix(w, m, minor, major)
                                        : emulate_matrix(w, m, major, minor);
                word |= (uint32_t)v << (16 * half);
            }
            w->out[lane][m] = word;
        }
    }
}

static void emulate_ldmatrix_plain(struct emulate_warp *w)
{
    emulate_ldmatrix(w, 0);
}

static void emulate_ldmatrix_trans(struct emulate_warp *w)
{
    emulate_ldmatrix(w, 1);
}

static void load_matrix(uint32_t r[4], uint32_t at)
{
    emulate_shared(at, "ldmatrix");
    memcpy(r, emulate_exchange("ldmatrix", &at, 1, emulate_ldmatrix_plain), 16);
}

static void load_matrix_transposed(uint32_t r[4], uint32_t at)
{
    emulate_shared(at, "ldmatrix.trans");
    memcpy(r, emulate_exchange("ldmatrix.trans", &at, 1, emulate_ldmatrix_trans), 16);
}

/* m16n8k16: words 0-3 of a lane are A, 4-5 B, 6-9 the accumulators. */
static void emulate_mma(struct emulate_warp *w)
{
    float a[16][16], b[16][8];
    for (int lane = 0; lane < 32; lane++) {
        int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 4; i++) {
            for (int half = 0; half < 2; half++) {
                a[g + i % 2 * 8][t * 2 + half + i / 2 * 8] =
                    widen((uint16_t)(w->in[lane][i] >> (16 * half)));
            }
        }
        for (int i = 0; i < 2; i++) {
            for (int half = 0; half < 2; half++) {
                b[t * 2 + half + i * 8][g] = widen((uint16_t)(w->in[lane][4 + i] >> (16 * half)));
            }
        }
    }
    for (int lane = 0; lane < 32; lane++) {
        int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 4; i++) {
            float sum = bits_to_float(w->in[lane][6 + i]);
            for (int k = 0; k < 16; k++) {
                sum += a[g + i / 2 * 8][k] * b[k][t * 2 + i % 2];
            }
            w->out[lane][i] = float_to_bits(sum);
        }
    }
}

static void multiply(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    uint32_t in[10] = {a[0], a[1], a[2], a[3], b0, b1};
    memcpy(in + 6, d, 16);
    memcpy(d, emulate_exchange("mma", in, 10, emulate_mma), 16);
}

static void emulate_xor(struct emulate_warp *w)
{
    for (int lane = 0; lane < 32; lane++) {
        w->out[lane][0] = w->in[lane ^ (int)w->in[lane][1]][0];
    }
}

static uint32_t shuffle_xor(uint32_t v, int mask)
{
    return *emulate_exchange("shfl.bfly", (uint32_t[]){v, (uint32_t)mask}, 2, emulate_xor);
}

static void emulate_up(struct emulate_warp *w)
{
    for (int lane = 0; lane < 32; lane++) {
        int from = lane - (int)w->in[lane][1];
        w->out[lane][0] = w->in[from < 0 ? lane : from][0];
    }
}

static int shuffle_up(int v, int by)
{
    return (int)*emulate_exchange("shfl.up", (uint32_t[]){(uint32_t)v, (uint32_t)by}, 2,
                                  emulate_up);
}

static void emulate_from(struct emulate_warp *w)
{
    for (int lane = 0; lane < 32; lane++) {
        w->out[lane][0] = w->in[w->in[lane][1]][0];
    }
}

static int shuffle_from(int v, int lane)
{
    return (int)*emulate_exchange("shfl.idx", (uint32_t[]){(uint32_t)v, (uint32_t)lane}, 2,
                                  emulate_from);
}

static void emulate_count(struct emulate_warp *w)
{
    uint32_t n = 0;
    for (int lane = 0; lane < 32; lane++) {
        n += w->in[lane][0] != 0;
    }
    for (int lane = 0; lane < 32; lane++) {
        w->out[lane][0] = n;
    }
}

static int count_lanes(int yes)
{
    return (int)*emulate_exchange("vote", (uint32_t[]){(uint32_t)yes}, 1, emulate_count);
}
#endif

#endif
