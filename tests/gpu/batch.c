/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/batch.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS_MAX = 128 };

struct slot {
    struct variant variant;
    uint64_t hash;
    struct image image;
    bool tried;
};

struct batch {
    struct compiler *compiler;
    pthread_mutex_t lock;
    int n, size, next, failed;
    struct slot **slots; /* owned, each */
};

struct batch *batch_open(const char *spec)
{
    struct error err = ERROR_NULL;
    struct batch *p = calloc(1, sizeof(*p));
    if (compiler_open(spec, &p->compiler, &err)) {
        printf("SKIP: %s\n", err.text);
        exit(77);
    }
    pthread_mutex_init(&p->lock, NULL);
    return p;
}

void batch_close(struct batch *p)
{
    for (int i = 0; i < p->n; i++) {
        image_deinit(&p->slots[i]->image);
        free(p->slots[i]);
    }
    free(p->slots);
    p->compiler->ops->close(p->compiler);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

int batch_add(struct batch *p, const struct variant *v)
{
    uint64_t hash = hash64(v->options, strlen(v->options)) ^ hash64(v->entry, strlen(v->entry));
    for (int i = 0; i < p->n; i++) {
        if (p->slots[i]->hash == hash && strcmp(p->slots[i]->variant.options, v->options) == 0) {
            return i;
        }
    }
    if (p->n == p->size) {
        p->size = p->size ? 2 * p->size : 64;
        p->slots = realloc(p->slots, (size_t)p->size * sizeof(*p->slots));
    }
    struct slot *s = calloc(1, sizeof(*s));
    s->variant = *v;
    s->hash = hash;
    p->slots[p->n] = s;
    return p->n++;
}

static void *work(void *arg)
{
    struct batch *p = arg;
    for (;;) {
        pthread_mutex_lock(&p->lock);
        struct slot *s = p->next < p->n ? p->slots[p->next++] : NULL;
        pthread_mutex_unlock(&p->lock);
        if (!s) {
            return NULL;
        }
        struct error err = ERROR_NULL;
        s->tried = true;
        if (p->compiler->ops->compile(p->compiler, &s->variant, &s->image, &err)) {
            pthread_mutex_lock(&p->lock);
            p->failed++;
            printf("FAIL compile %s: %s\n", s->variant.options, err.text);
            pthread_mutex_unlock(&p->lock);
        }
    }
}

int batch_run(struct batch *p)
{
    pthread_t threads[THREADS_MAX];
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    n = n < 1 ? 1 : n > THREADS_MAX ? THREADS_MAX : n;
    int before = p->failed;
    for (long i = 0; i < n; i++) {
        if (pthread_create(&threads[i], NULL, work, p)) {
            perror("pthread_create");
            exit(1);
        }
    }
    for (long i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
    }
    return p->failed - before;
}

const struct image *batch_image(const struct batch *p, int which)
{
    return p->slots[which]->image.data ? &p->slots[which]->image : NULL;
}

int batch_count(const struct batch *p)
{
    return p->n;
}
