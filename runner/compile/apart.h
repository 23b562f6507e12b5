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

#include "proto/wire.h"
#include "kernels/device.h"

/* Says that this program is gemmd-runner and can be started as a child. Without this call no child
 * is used: programs that use this code as a library have another main(). */
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
 * most a second. Busy children end after the process. */
void apart_quit(void);

/* Messages between the process that compiles and the process that wants the variant: a variant in
 * one direction, an image or an error in the other. Each message is a length and a MessagePack map.
 * Both ends are the same program, so a message is checked for completeness, not for versions. */

/* A message and its decoded map, which points into the message. */
struct apart_frame {
    void *data;           /* owned */
    struct wire_doc *doc; /* owned */
    const struct wire_obj *map;
};

/* False: the other end has closed the socket, or no memory. */
bool apart_send(int fd, const struct wire_buf *b);
bool apart_receive(int fd, struct apart_frame *f); /* when true: apart_frame_deinit *f */
void apart_frame_deinit(struct apart_frame *f);

void apart_put_variant(struct wire_buf *b, const struct variant *v);
/* out->source is borrowed from the frame. False: no valid variant. */
bool apart_get_variant(const struct wire_obj *map, struct variant *out);

/* `compiler`: its version; `code` and `err`: the compiler's result. */
void apart_put_answer(struct wire_buf *b, const char *compiler, int code, const struct image *image,
                      const struct error *err);
bool apart_is_from(const struct wire_obj *map, const char *compiler);
/* Returns the compiler's result, or ERROR_INTERNAL: not a valid answer. */
int apart_get_answer(const struct wire_obj *map, struct image *out, struct error *err);

#endif
