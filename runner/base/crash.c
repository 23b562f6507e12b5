/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signal handlers with last words. Everything in the handler is async-signal-safe: atomics, send,
 * nanosleep. A handler's stack is its own, since the fault may be an overflow of the thread's.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <time.h>

#include "runner/base/crash.h"

static const int fatal[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};

static _Thread_local struct {
    int fd;
    const void *bytes; /* borrowed */
    size_t n;
} note;

static atomic_bool writing;

/* Waits a second at most: the writer may be this thread, or wait for a peer that never reads. */
static void crash_take_turn(void)
{
    for (int i = 0; i < 1000 && atomic_exchange(&writing, true); i++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

static void crash_write_last_words(int sig)
{
    if (note.bytes) {
        crash_take_turn();
        const uint8_t *at = note.bytes;
        for (size_t left = note.n; left > 0;) {
            ssize_t n = send(note.fd, at, left, MSG_NOSIGNAL);
            if (n <= 0) {
                break;
            }
            at += n;
            left -= (size_t)n;
        }
    }
    signal(sig, SIG_DFL);
    raise(sig);
}

void crash_install(void)
{
    struct sigaction a = {.sa_handler = crash_write_last_words,
                          .sa_flags = SA_ONSTACK | SA_NODEFER};
    sigemptyset(&a.sa_mask);
    for (size_t i = 0; i < sizeof(fatal) / sizeof(fatal[0]); i++) {
        sigaction(fatal[i], &a, NULL);
    }
}

/* A stack for the handler, unless somebody (a sanitizer) has given this thread one. */
static void ensure_stack(void)
{
    static _Thread_local _Alignas(16) uint8_t stack[16 * 1024];
    stack_t s;
    if (sigaltstack(NULL, &s) == 0 && (s.ss_flags & SS_DISABLE)) {
        s = (stack_t){.ss_sp = stack, .ss_size = sizeof(stack)};
        sigaltstack(&s, NULL);
    }
}

void crash_note(int fd, const void *bytes, size_t n)
{
    ensure_stack();
    note.bytes = NULL; /* never bytes of one call with the size of another */
    atomic_signal_fence(memory_order_seq_cst);
    note.fd = fd;
    note.n = n;
    atomic_signal_fence(memory_order_seq_cst);
    note.bytes = bytes;
}

void crash_write_begin(void)
{
    while (atomic_exchange(&writing, true)) { /* only last words hold it longer: we are dying */
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

void crash_write_end(void)
{
    atomic_store(&writing, false);
}
