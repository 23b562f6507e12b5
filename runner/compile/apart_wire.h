/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process that compiles and the one that wants it say to one another (apart.h): a variant
 * one way, an image or an error the other, each a length and a MessagePack map. Both are the same
 * program, so what is read is checked for being whole, and not for versions.
 */
#ifndef GEMMD_RUNNER_COMPILE_APART_WIRE_H
#define GEMMD_RUNNER_COMPILE_APART_WIRE_H

#include "kernels/device.h"
#include "proto/wire.h"

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
