/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that own rows of `lease` and `wanted`. Reading /proc for each row takes longer than all
 * else that a waiting daemon does. So a store keeps descriptors of the owners that it has seen: a
 * poll tells at once, and without an error, that such a process has ended. Where there is no
 * descriptor (an old kernel, too many open files) each row reads /proc.
 *
 * /proc tells nothing of a process in another container. So each owner locks a byte of
 * <database>.lock, which its name decides. The kernel frees the byte when the process ends. Names
 * of older gemmds, which lock no byte, lack the ending LOCKS.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/hash.h"
#include "store/inner.h"

#define LOCKS ".lock"

struct owner {
    long pid;
    unsigned long long began; /* the start time tells reused pids apart */
    unsigned long long space; /* namespace of process numbers */
};

/* Reads state and start time of a process from /proc. */
static bool read_process(long pid, char *state, unsigned long long *began)
{
    char path[40], text[1024] = {0};
    snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
    const size_t n = place_read(path, text, sizeof(text) - 1);
    /* "<pid> (<name>) S <ppid> ...": the name may contain any byte; field 20 after the name */
    const char *rest = n ? strrchr(text, ')') : NULL;
    if (!rest || sscanf(rest, ") %c", state) != 1) {
        return false;
    }
    for (int i = 0; rest && i < 20; i++) {
        rest = strchr(rest + 1, ' ');
    }
    return rest && sscanf(rest, " %llu", began) == 1;
}

/* A process keeps its own namespace of process numbers for life. */
static unsigned long long process_namespace(void)
{
    static _Atomic unsigned long long number;
    struct stat st;
    if (number == 0 && stat("/proc/self/ns/pid", &st) == 0) {
        number = (unsigned long long)st.st_ino;
    }
    return number;
}

void store_owner(char out[STORE_OWNER_MAX])
{
    char state;
    unsigned long long began = 0;
    read_process((long)getpid(), &state, &began);
    snprintf(out, STORE_OWNER_MAX, "%ld.%llu.%llu" LOCKS, (long)getpid(), began,
             process_namespace());
}

static struct flock owner_byte(const char *name)
{
    enum { TEXT_AT_MOST = 4096 }; /* the lock file's own bytes (commit.c) */
    return (struct flock){.l_type = F_WRLCK,
                          .l_whence = SEEK_SET,
                          .l_start = TEXT_AT_MOST + (off_t)(hash64(name, strlen(name)) >> 2),
                          .l_len = 1};
}

void owner_lock_byte(const struct store *s)
{
    struct flock byte = owner_byte(s->owner);
    fcntl(s->lock_fd, F_OFD_SETLK, &byte); /* a file system without such locks frees no byte */
}

static bool owner_byte_is_free(const struct store *s, const char *name)
{
    struct flock byte = owner_byte(name);
    const size_t n = strlen(name), end = strlen(LOCKS);
    return n > end && strcmp(name + n - end, LOCKS) == 0 && s->lock_fd >= 0 &&
           fcntl(s->lock_fd, F_OFD_GETLK, &byte) == 0 && byte.l_type == F_UNLCK;
}

static bool owner_read(const char *text, struct owner *o)
{
    return sscanf(text, "%ld.%llu.%llu", &o->pid, &o->began, &o->space) == 3 && o->pid > 0;
}

/* True when a process of this namespace has ended, by /proc. */
static bool process_has_ended(const struct owner *o)
{
    unsigned long long began = 0;
    char state = 0;
    if (!read_process(o->pid, &state, &began)) {
        return kill((pid_t)o->pid, 0) < 0 && errno == ESRCH;
    }
    return began != o->began || state == 'Z' || state == 'X';
}

bool store_owner_is_lost(const char *text)
{
    struct owner o;
    if (!owner_read(text, &o)) {
        return true;
    }
    return o.space == process_namespace() && process_has_ended(&o);
}

static void owner_forget(struct owner_seen *seen)
{
    if (seen->name[0]) {
        close(seen->fd);
        seen->name[0] = 0;
    }
}

static struct owner_seen *owner_find(struct store *s, const char *name)
{
    for (size_t i = 0; name[0] && i < STORE_OWNERS_SEEN; i++) {
        if (strcmp(s->seen_owners[i].name, name) == 0) {
            return &s->seen_owners[i];
        }
    }
    return NULL;
}

static bool owner_has_ended(const struct owner_seen *seen)
{
    struct pollfd p = {.fd = seen->fd, .events = POLLIN};
    return poll(&p, 1, 0) != 0;
}

/* The place for another owner: that of an ended process, or else the oldest. */
static struct owner_seen *owner_place(struct store *s)
{
    for (size_t i = 0; i < STORE_OWNERS_SEEN; i++) {
        struct owner_seen *seen = &s->seen_owners[i];
        if (!seen->name[0] || owner_has_ended(seen)) {
            return seen;
        }
    }
    return &s->seen_owners[s->next_owner++ % STORE_OWNERS_SEEN];
}

/* Looks at a process that this store has not seen, and keeps its descriptor while the process
 * lives. */
static bool owner_look(struct store *s, const char *name)
{
    struct owner o;
    if (s->flags & STORE_READ_ONLY || !owner_read(name, &o)) {
        return store_owner_is_lost(name); /* a store for lists looks seldom */
    }
    if (o.space != process_namespace()) {
        return owner_byte_is_free(s, name);
    }
    /* The descriptor comes first: if the process ends later, another process can get its number,
     * but not its start time. */
    const int fd = (int)syscall(SYS_pidfd_open, (pid_t)o.pid, 0);
    const bool ended = process_has_ended(&o);
    if (ended && fd >= 0) {
        close(fd);
    } else if (fd >= 0) {
        struct owner_seen *seen = owner_place(s);
        owner_forget(seen);
        snprintf(seen->name, sizeof(seen->name), "%s", name);
        seen->fd = fd;
    }
    return ended;
}

static bool owner_is_lost(struct store *s, const char *name)
{
    struct owner_seen *seen = owner_find(s, name);
    if (!seen) {
        return owner_look(s, name);
    }
    if (!owner_has_ended(seen)) {
        return false;
    }
    owner_forget(seen);
    return store_owner_is_lost(name);
}

void owner_is_gone(sqlite3_context *ctx, int n, sqlite3_value **args)
{
    struct store *s = sqlite3_user_data(ctx);
    const char *owner = (const char *)sqlite3_value_text(args[0]),
               *boot = (const char *)sqlite3_value_text(args[1]);
    sqlite3_result_int(ctx,
                       !owner || !boot || strcmp(boot, s->boot) != 0 || owner_is_lost(s, owner));
}

void owners_forget(struct store *s)
{
    for (size_t i = 0; i < STORE_OWNERS_SEEN; i++) {
        owner_forget(&s->seen_owners[i]);
    }
}
