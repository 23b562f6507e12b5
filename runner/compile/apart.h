/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A compiler whose compiles are done by child processes, one at a time each; there are as many of
 * them as there have been calls at the same time.
 *
 * Threads of one process wait for one another in NVRTC: a kernel that takes one of them 1.4 to 2.0
 * seconds takes 2.7 beside fifteen others, and in one of sixteen processes 2.1
 * (tests/gpu/results/2026-11-25-h100-compile_apart.txt). And a compiler that crashes takes its
 * child along, not the runner. A C compiler is a process anyway, and leaves files when it is killed
 * or orphaned: the child is there to stop it and to remove them when the runner ends, which may be
 * by SIGKILL (gemmd stops it so).
 */
#ifndef GEMMD_RUNNER_COMPILE_APART_H
#define GEMMD_RUNNER_COMPILE_APART_H

#include "proto/wire.h"
#include "kernels/device.h"

/* Says that this program is gemmd-runner, of which children can be started. Without that there are
 * none: who uses all this as a library has another main(). */
void apart_enable(void);
/* As compiler_open(), and with children where the compiler wants that (compiler_ops.apart). Where
 * none can be had, or theirs is another compiler by now, it compiles here from then on, and says so
 * once on stderr. Of a compile: ERROR_CRASHED: it is the end of each child that tries;
 * ERROR_NO_MEMORY: children are killed, from outside; ERROR_HUNG: somebody has called stop(). */
int apart_open(const char *spec, struct compiler **out, struct error *err);
/* The child's whole life: gemmd-runner --compile --device SPEC --fd N. It ends when its socket
 * does, also while it compiles: what can be stopped is, and removes its files. An exit status. */
int apart_child(const char *spec, int fd);
/* Before this process ends without closing its compiler: children that have nothing to do end, and
 * are waited for, a second at most. Those that compile end when the process has. */
void apart_quit(void);

/*
 * What a process that compiles and the one that wants it say to one another (apart.h): a variant
 * one way, an image or an error the other, each a length and a MessagePack map. Both are the same
 * program, so what is read is checked for being whole, and not for versions.
 */

/* A message and what is in it, which points into it. */
struct apart_frame {
    void *data;           /* owned */
    struct wire_doc *doc; /* owned */
    const struct wire_obj *map;
};

/* False: the other end is gone; or there is no memory for what is said. */
bool apart_send(int fd, const struct wire_buf *b);
bool apart_receive(int fd, struct apart_frame *f); /* *f: to be deinitialised when true */
void apart_frame_deinit(struct apart_frame *f);

void apart_put_variant(struct wire_buf *b, const struct variant *v);
/* Its source is borrowed from the frame. False: it is no variant. */
bool apart_get_variant(const struct wire_obj *map, struct variant *out);

/* `compiler`: which one it was; `code` and `err`: what it returned. */
void apart_put_answer(struct wire_buf *b, const char *compiler, int code, const struct image *image,
                      const struct error *err);
bool apart_is_from(const struct wire_obj *map, const char *compiler);
/* Returns what the compiler did, or ERROR_INTERNAL: it is no answer. */
int apart_get_answer(const struct wire_obj *map, struct image *out, struct error *err);

#endif
