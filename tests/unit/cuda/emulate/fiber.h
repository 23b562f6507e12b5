/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fibers: each runs a thread of a thread block. swapcontext makes a system call for each switch; on
 * x86-64 a few instructions switch without a system call.
 */
#ifndef GEMMD_TESTS_EMULATE_FIBER_H
#define GEMMD_TESTS_EMULATE_FIBER_H

#include <stddef.h>
#include <ucontext.h>

enum { EMULATE_STACK = 64 * 1024 };

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
    top[0] = NULL; /* entry's return address; at entry's first instruction rsp is 16 n + 8 */
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

#endif
