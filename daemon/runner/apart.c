/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parent and child are the same program, so what they say to one another is checked for being whole, and not for
 * versions: a variant one way, an image or an error the other, each a length and a MessagePack map.
 */
#include "daemon/runner/apart.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/runner/self.h"
#include "proto/schema.h"
#include "proto/wire.h"

static const uint64_t FRAME_MOST = 1u << 30; /* more is no length */

static bool enabled;

void apart_enable(void)
{
    enabled = true;
}

/* ---- frames ----------------------------------------------------------------------------------- */

static bool send_all(int fd, const void *data, size_t n)
{
    for (const char *at = data; n > 0;) {
        ssize_t sent = send(fd, at, n, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR) {
            return false;
        }
        at += sent > 0 ? sent : 0;
        n -= sent > 0 ? (size_t)sent : 0;
    }
    return true;
}

static bool receive_all(int fd, void *data, size_t n)
{
    for (char *at = data; n > 0;) {
        ssize_t got = recv(fd, at, n, 0);
        if (got == 0 || (got < 0 && errno != EINTR)) {
            return false;
        }
        at += got > 0 ? got : 0;
        n -= got > 0 ? (size_t)got : 0;
    }
    return true;
}

static bool send_frame(int fd, const struct wire_buf *b)
{
    uint64_t n = b->len;
    return !b->failed && send_all(fd, &n, sizeof(n)) && send_all(fd, b->data, b->len);
}

/* A frame and what is in it, which points into it. */
struct frame {
    void *data;           /* owned */
    struct wire_doc *doc; /* owned */
    const struct wire_obj *map;
};

static void frame_deinit(struct frame *f)
{
    wire_doc_free(f->doc);
    free(f->data);
    *f = (struct frame){0};
}

/* False: the other end is gone, or there is no memory for what it says. */
static bool receive_frame(int fd, struct frame *f)
{
    uint64_t n;
    *f = (struct frame){0};
    if (!receive_all(fd, &n, sizeof(n)) || n > FRAME_MOST) {
        return false;
    }
    f->data = malloc(n + 1);
    f->doc = wire_doc_new();
    if (f->data && f->doc && receive_all(fd, f->data, n) &&
        wire_decode(f->doc, f->data, n, &f->map, NULL) == 0) {
        return true;
    }
    frame_deinit(f);
    return false;
}

/* ---- what is said ------------------------------------------------------------------------------ */

static void put_variant(struct wire_buf *b, const struct variant *v)
{
    wire_put_map(b, 7);
    wire_put_kv_str(b, "family", v->family);
    wire_put_kv_str(b, "kind", v->kind);
    wire_put_kv_str(b, "arch", v->arch);
    wire_put_kv_str(b, "entry", v->entry);
    wire_put_kv_str(b, "options", v->options);
    wire_put_kv_str(b, "source_hash", v->source_hash);
    wire_put_str(b, "source"); /* with the zero at its end */
    wire_put_bin(b, v->source, strlen(v->source) + 1);
}

/* Its source is borrowed from the frame. */
static bool get_variant(const struct wire_obj *map, struct variant *v)
{
    const void *source;
    size_t n;
    if (!wire_get_bin(wire_find(map, "source"), &source, &n) || n == 0 || ((const char *)source)[n - 1]) {
        return false;
    }
    v->source = source;
#define COPY(name) wire_copy_str(wire_find(map, #name), v->name, sizeof(v->name))
    return COPY(family) && COPY(kind) && COPY(arch) && COPY(entry) && COPY(options) && COPY(source_hash);
#undef COPY
}

static void put_answer(struct wire_buf *b, int code, const struct image *image, const struct error *err)
{
    wire_put_map(b, 6);
    wire_put_kv_int(b, "code", code);
    wire_put_kv_str(b, "text", err->text);
    wire_put_kv_bool(b, "refused", image->refused);
    wire_put_kv_str(b, "log", image->log);
    wire_put_str(b, "module");
    schema_encode(b, &module_schema, &image->meta);
    wire_put_str(b, "image");
    wire_put_bin(b, image->data, image->size);
}

static int bad_answer(struct error *err)
{
    return error_set(err, ERROR_INTERNAL, "what the compiler's process answered cannot be read");
}

/* Returns what the child's compiler did. */
static int get_answer(const struct wire_obj *map, struct image *out, struct error *err)
{
    char text[ERROR_TEXT_MAX];
    const void *data;
    int64_t code;
    if (!wire_get_int(wire_find(map, "code"), &code) || !wire_copy_str(wire_find(map, "text"), text, sizeof(text)) ||
        !wire_get_bool(wire_find(map, "refused"), &out->refused) ||
        !wire_copy_str(wire_find(map, "log"), out->log, sizeof(out->log)) ||
        !wire_get_bin(wire_find(map, "image"), &data, &out->size)) {
        return bad_answer(err);
    }
    int r = schema_decode(&module_schema, SCHEMA_LENIENT, wire_find(map, "module"), &out->meta, err);
    if (r || code) {
        out->size = 0;
        return r ? r : error_set(err, (int)code, "%s", text);
    }
    out->data = malloc(out->size);
    if (!out->data) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for an image of %zu bytes", out->size);
    }
    memcpy(out->data, data, out->size);
    return 0;
}

/* ---- the child --------------------------------------------------------------------------------- */

/* A compile that never ends must not outlive who wants it. */
static void *watch(void *arg)
{
    struct pollfd f = {.fd = *(int *)arg, .events = POLLRDHUP};
    while (poll(&f, 1, -1) < 0 || !(f.revents & (POLLRDHUP | POLLHUP | POLLERR))) {
    }
    _exit(0);
    return NULL;
}

static bool answer(struct compiler *c, int fd, const struct frame *f)
{
    struct image image = {0};
    struct error err = ERROR_NULL;
    struct variant v;
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    int r = get_variant(f->map, &v) ? c->ops->compile(c, &v, &image, &err)
                                    : error_set(&err, ERROR_INTERNAL, "a compiler's process was given no variant");
    put_answer(&b, r, &image, &err);
    image_deinit(&image);
    return send_frame(fd, &b);
}

int apart_child(const char *spec, int fd)
{
    struct compiler *c = NULL;
    struct error err = ERROR_NULL;
    pthread_t watcher;
    struct frame f;
    self_begin(fd);
    int r = compiler_open(spec, &c, &err);
    if (r || pthread_create(&watcher, NULL, watch, &fd)) {
        fprintf(stderr, "gemmd-runner: a compiler's process cannot begin: %s\n", r ? err.text : "no thread");
        return 1;
    }
    bool going = true;
    while (going && receive_frame(fd, &f)) {
        going = answer(c, fd, &f);
        frame_deinit(&f);
    }
    return 0;
}

/* ---- the parent -------------------------------------------------------------------------------- */

struct worker {
    int fd;
    pid_t pid;
    struct worker *next;
};

struct apart {
    struct compiler base;    /* first; its ops are `ops` */
    struct compiler_ops ops; /* the inner one's, but for compiling and closing */
    struct compiler *inner;  /* owned */
    char *spec;              /* owned */
    pthread_mutex_t lock;
    struct worker *idle; /* owned list */
    bool complained;     /* that no child could be started */
};

/* Waits for it: its socket is closed, so it ends. Returns the status of waitpid(). */
static int end(struct worker *w)
{
    int status = 0;
    close(w->fd);
    while (waitpid(w->pid, &status, 0) < 0 && errno == EINTR) {
    }
    free(w);
    return status;
}

static struct worker *start(struct apart *a, struct error *err)
{
    struct worker *w = calloc(1, sizeof(*w));
    const char *const args[] = {"gemmd-runner", "--compile", "--device", a->spec, "--fd", SELF_FD, NULL};
    if (!w) {
        error_set(err, ERROR_NO_MEMORY, "no memory");
        return NULL;
    }
    if (self_start(args, &w->fd, &w->pid, err)) {
        free(w);
        return NULL;
    }
    return w;
}

static struct worker *take(struct apart *a, struct error *err)
{
    pthread_mutex_lock(&a->lock);
    struct worker *w = a->idle;
    a->idle = w ? w->next : NULL;
    pthread_mutex_unlock(&a->lock);
    return w ? w : start(a, err);
}

static void give(struct apart *a, struct worker *w)
{
    pthread_mutex_lock(&a->lock);
    w->next = a->idle;
    a->idle = w;
    pthread_mutex_unlock(&a->lock);
}

/* Once: the others fail for the same reason. */
static void complain(struct apart *a, const struct error *why)
{
    pthread_mutex_lock(&a->lock);
    bool first = !a->complained;
    a->complained = true;
    pthread_mutex_unlock(&a->lock);
    if (first) {
        fprintf(stderr, "gemmd-runner: compiling in this process, which takes longer: %s\n", why->text);
    }
}

/* Of a child that did not answer. Only a fault is the variant's; a killed one was in somebody's way, most often for the memory that
 * it had. */
static int died(struct apart *a, struct worker *w, const struct variant *v, struct image *out, struct error *err)
{
    struct error why;
    int status = end(w), sig = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (sig == SIGKILL || sig == SIGTERM) {
        return error_set(err, ERROR_NO_MEMORY, 
                         "the compiler's process was killed (signal %d), as it is where memory is short", sig);
    }
    if (sig) {
        return error_set(err, ERROR_CRASHED, "the compiler crashed: signal %d (%s)", sig, strsignal(sig));
    }
    error_set(&why, ERROR_IO, "a compiler's process ended with status %d", WEXITSTATUS(status));
    complain(a, &why);
    return a->inner->ops->compile(a->inner, v, out, err);
}

static int compile_apart(struct compiler *c, const struct variant *v, struct image *out, struct error *err)
{
    struct apart *a = (struct apart *)c;
    struct error why = ERROR_NULL;
    struct frame f;
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    struct worker *w = take(a, &why);
    if (!w) {
        complain(a, &why);
        return a->inner->ops->compile(a->inner, v, out, err);
    }
    *out = (struct image){0};
    put_variant(&b, v);
    if (!send_frame(w->fd, &b) || !receive_frame(w->fd, &f)) {
        return died(a, w, v, out, err);
    }
    int r = get_answer(f.map, out, err);
    frame_deinit(&f);
    give(a, w);
    return r;
}

static const char *version_apart(const struct compiler *c)
{
    const struct apart *a = (const struct apart *)c;
    return a->inner->ops->version(a->inner);
}

static void close_apart(struct compiler *c)
{
    struct apart *a = (struct apart *)c;
    while (a->idle) {
        struct worker *w = a->idle;
        a->idle = w->next;
        end(w);
    }
    a->inner->ops->close(a->inner);
    pthread_mutex_destroy(&a->lock);
    free(a->spec);
    free(a);
}

int apart_open(const char *spec, struct compiler **out, struct error *err)
{
    struct compiler *inner;
    *out = NULL;
    int r = compiler_open(spec, &inner, err);
    if (r || !enabled || !inner->ops->apart) {
        *out = inner;
        return r;
    }
    struct apart *a = calloc(1, sizeof(*a));
    char *copy = strdup(spec);
    if (!a || !copy) {
        free(a);
        free(copy);
        inner->ops->close(inner);
        return error_set(err, ERROR_NO_MEMORY, "no memory for a compiler");
    }
    a->ops = *inner->ops;
    a->ops.open = NULL;
    a->ops.close = close_apart;
    a->ops.version = version_apart;
    a->ops.compile = compile_apart;
    a->base.ops = &a->ops;
    a->inner = inner;
    a->spec = copy;
    pthread_mutex_init(&a->lock, NULL);
    *out = &a->base;
    return 0;
}
