/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A compiler whose compiles run in child processes, one compile at a time in each child. The number
 * of children is the largest number of parallel calls so far.
 *
 * Threads of one process wait for each other in NVRTC. A kernel that takes 1.4 to 2.0 s alone takes
 * 2.7 s beside fifteen threads, and 2.1 s beside fifteen processes. A compiler that crashes ends
 * its child, not the runner.
 *
 * A C compiler is a process anyway, but leaves files when it is killed or orphaned. The child stops
 * the C compiler and removes its files when the runner ends, also by SIGKILL from gemmd.
 */
#ifndef GEMMD_RUNNER_COMPILE_APART_H
#define GEMMD_RUNNER_COMPILE_APART_H

#include "kernels/device.h"

/* Says that this program is gemmd-runner, whose main() can run as a child. Without this call
 * apart_open() uses no children: tests that link this code have another main(). */
void apart_enable(void);
/* Like compiler_open(), with children where the compiler wants them (compiler_ops.apart). When
 * children cannot start, or have another compiler by now, this process compiles from then on, with
 * a line on stderr. Errors of a compile: ERROR_CRASHED: every child that tries crashes;
 * ERROR_NO_MEMORY: children are killed from outside; ERROR_HUNG: stop() was called. */
int apart_open(const char *spec, struct compiler **out, struct error *err);
/* Main function of the child: gemmd-runner --compile --device SPEC --fd N. The child ends when its
 * socket closes, also during a compile: a compile that can be stopped is stopped and removes its
 * files. Returns an exit status. */
int apart_child(const char *spec, int fd);
/* For a process that ends without closing its compiler: ends idle children and waits for them, at
 * most a second. Busy children end by themselves when the process's sockets close. */
void apart_quit(void);

/* ---- messages -------------------------------------------------------------------------------- */

/* A message is a struct and a body: a variant and its source in one direction, an answer and the
 * image's bytes in the other. Both ends are the same program, so a struct is sent as its bytes, and
 * the receiver ignores its pointers. */
struct apart_answer {
    char compiler[128];        /* the compiler's version */
    int code;                  /* the compiler's result: 0 or ERROR_* */
    char text[ERROR_TEXT_MAX]; /* of the error */
    struct image image;        /* without data, which are the body */
};

/* False: the other end has closed the socket. */
bool apart_send(int fd, const void *head, size_t size, const void *body, size_t n);
/* *body: owned by the caller, n bytes and a zero. False: the other end has closed the socket, or no
 * memory. */
bool apart_receive(int fd, void *head, size_t size, void **body, size_t *n);

#endif
