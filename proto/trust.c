/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk of trust.h: from / down, part by part. Each part is opened below the part before
 * (openat, O_NOFOLLOW) and checked by its descriptor, so the check is about the very file that the
 * next step starts from. The text of a link is put in front of the rest of the path, and walked by
 * the same rule.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "proto/trust.h"

enum { LINKS_MAX = 40, NAMES_MAX = 4096, OVERFLOW_UID = 65534 };

/* ---- trusted users --------------------------------------------------------------------------- */

/* The kernel shows every unmapped user of the namespace as OVERFLOW_UID. */
static bool is_unmapped(uid_t uid)
{
    FILE *f = uid == OVERFLOW_UID ? fopen("/proc/self/uid_map", "re") : NULL;
    unsigned long long first, outside, count, mapped = 0;
    bool known = false;
    while (f && fscanf(f, "%llu %llu %llu", &first, &outside, &count) == 3) {
        mapped += count;
        known = known || (uid >= first && uid - first < count);
    }
    if (f) {
        fclose(f);
    }
    return mapped > 0 && !known;
}

static bool is_trusted_owner(uid_t uid, bool in_shared)
{
    return uid == 0 || uid == geteuid() || (!in_shared && is_unmapped(uid));
}

static bool has_no_other_member(const struct group *g, const char *name)
{
    return !g->gr_mem[0] || (strcmp(g->gr_mem[0], name) == 0 && !g->gr_mem[1]);
}

/* True when another user has the group as primary group. The group's member list lacks such users,
 * so this searches all users of the name service: once, since that can take seconds. */
static bool is_primary_of_another(uid_t uid, gid_t gid)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects `last` and getpwent */
    static struct {
        uid_t uid;
        gid_t gid;
        bool known, shared;
    } last;
    pthread_mutex_lock(&lock);
    if (!last.known || last.uid != uid || last.gid != gid) {
        last.uid = uid;
        last.gid = gid;
        last.shared = false;
        setpwent();
        for (const struct passwd *p; !last.shared && (p = getpwent());) {
            last.shared = p->pw_gid == gid && p->pw_uid != uid && p->pw_uid != 0;
        }
        endpwent();
        last.known = true;
    }
    const bool shared = last.shared;
    pthread_mutex_unlock(&lock);
    return shared;
}

/* True for a private group, as useradd makes one for each user (trust.h): with a umask of 002, all
 * files of the user are writable by that group. Root's group is never private: in some containers
 * every process has root's group. */
static bool is_private_group(uid_t uid, gid_t gid)
{
    char user_text[NAMES_MAX], group_text[NAMES_MAX];
    struct passwd user, *u = NULL;
    struct group group, *g = NULL;
    return uid != 0 && getpwuid_r(uid, &user, user_text, sizeof(user_text), &u) == 0 && u &&
           getgrgid_r(gid, &group, group_text, sizeof(group_text), &g) == 0 && g &&
           u->pw_gid == gid && strcmp(u->pw_name, g->gr_name) == 0 &&
           has_no_other_member(g, u->pw_name) && !is_primary_of_another(uid, gid);
}

/* True for a file with an access control list. The group's mode bits are then only the upper limit
 * for all users and groups in the list. */
static bool has_access_list(const char *path)
{
    return lgetxattr(path, "system.posix_acl_access", NULL, 0) > 0;
}

static bool is_open_to_others(const char *path, const struct stat *st, bool strict)
{
    return st->st_mode & S_IWOTH ||
           (st->st_mode & S_IWGRP &&
            (strict || !is_private_group(st->st_uid, st->st_gid) || has_access_list(path)));
}

static int refuse_owner(const char *path, const struct stat *st, struct error *err)
{
    return error_set(err, ERROR_DENIED,
                     "%s belongs to user %u, not to us (%u); use another place, or run this as "
                     "that user",
                     path, (unsigned)st->st_uid, (unsigned)geteuid());
}

static int refuse_mode(const char *path, const struct stat *st, bool can_close, struct error *err)
{
    return error_set(err, ERROR_DENIED, "%s may be written to by others (mode %04o); %s%s", path,
                     (unsigned)(st->st_mode & 07777),
                     can_close ? "run: chmod go-w " : "use a directory of your own",
                     can_close ? path : "");
}

static int refuse_call(const char *doing, const char *path, struct error *err)
{
    int code = errno == EACCES || errno == EPERM    ? ERROR_DENIED
               : errno == ENOSPC || errno == EDQUOT ? ERROR_DISK_FULL
                                                    : ERROR_IO;
    return error_set(err, code, "%s%s: %s", doing, path, strerror(errno));
}

/* ---- the walk -------------------------------------------------------------------------------- */

struct walk {
    int at;              /* the folder that was reached */
    struct stat st;      /* of the folder `at` */
    bool shared;         /* `at` is sticky: other users may create files in it */
    char done[PATH_MAX]; /* path of `at`; "" is / */
    char rest[PATH_MAX]; /* the rest of the path */
    size_t given;        /* last bytes of `rest`, from the caller; the bytes before: from a link */
    unsigned links;
    unsigned make_mode;
};

static int trust_refuse_long(const char *path, struct error *err)
{
    return error_set(err, ERROR_INVALID, "the path %.64s... is longer than %d bytes", path,
                     PATH_MAX - 1);
}

/* `fd` becomes w->at; the former w->at is closed. Fails unless the folder follows the rule. */
static int walk_enter(struct walk *w, int fd, struct error *err)
{
    const char *path = w->done[0] ? w->done : "/";
    int r = fstat(fd, &w->st) ? refuse_call("", path, err) : 0;
    if (r == 0 && !is_trusted_owner(w->st.st_uid, w->shared)) {
        r = refuse_owner(path, &w->st, err);
    }
    w->shared = r == 0 && is_open_to_others(path, &w->st, false);
    if (w->shared && !(w->st.st_mode & S_ISVTX)) {
        r = refuse_mode(path, &w->st, w->st.st_uid == geteuid(), err);
    }
    if (w->at >= 0) {
        close(w->at);
    }
    w->at = fd;
    return r;
}

static int walk_root(struct walk *w, struct error *err)
{
    w->done[0] = '\0';
    w->shared = false;
    int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? refuse_call("", "/", err) : walk_enter(w, fd, err);
}

static int walk_begin(struct walk *w, const char *path, unsigned make_mode, struct error *err)
{
    *w = (struct walk){.at = -1, .make_mode = make_mode};
    char here[PATH_MAX] = "";
    if (!path[0]) {
        return error_set(err, ERROR_INVALID, "a path is empty");
    }
    if (path[0] != '/' && !getcwd(here, sizeof(here))) {
        return refuse_call("the current directory: ", path, err);
    }
    if (snprintf(w->rest, PATH_MAX, "%s/%s", here, path) >= PATH_MAX) {
        return trust_refuse_long(path, err);
    }
    w->given = strlen(w->rest);
    return walk_root(w, err);
}

static void walk_end(struct walk *w)
{
    if (w->at >= 0) {
        close(w->at);
    }
    w->at = -1;
}

/* Takes the next part off the rest of the path; false at the end. `linked`: the part is from a
 * link. */
static bool walk_cut(struct walk *w, char name[PATH_MAX], bool *linked)
{
    const char *begin = w->rest + strspn(w->rest, "/");
    size_t n = strcspn(begin, "/");
    *linked = strlen(begin) > w->given;
    if (n == 0) {
        return false;
    }
    memcpy(name, begin, n);
    name[n] = '\0';
    memmove(w->rest, begin + n, strlen(begin + n) + 1);
    w->given = strlen(w->rest) < w->given ? strlen(w->rest) : w->given;
    return true;
}

static int walk_follow(struct walk *w, int link, const char *path, struct error *err)
{
    char text[PATH_MAX], whole[PATH_MAX];
    struct stat st;
    ssize_t n = fstat(link, &st) ? -1 : readlinkat(link, "", text, sizeof(text) - 1);
    if (n < 0) {
        return refuse_call("", path, err);
    }
    text[n] = '\0';
    if (!is_trusted_owner(st.st_uid, w->shared)) {
        return error_set(err, ERROR_DENIED, "%s is a symbolic link of user %u; remove it", path,
                         (unsigned)st.st_uid);
    }
    if (++w->links > LINKS_MAX) {
        return error_set(err, ERROR_IO, "%s: too many symbolic links", path);
    }
    if (snprintf(whole, PATH_MAX, "%s/%s", text, w->rest) >= PATH_MAX) {
        return trust_refuse_long(path, err);
    }
    memcpy(w->rest, whole, strlen(whole) + 1);
    return text[0] == '/' ? walk_root(w, err) : 0;
}

static int walk_up(struct walk *w, struct error *err)
{
    char *slash = strrchr(w->done, '/');
    int fd = openat(w->at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (slash) {
        *slash = '\0';
    }
    w->shared = false; /* the walk down has already checked the owner of the folder above */
    return fd < 0 ? refuse_call("", w->done, err) : walk_enter(w, fd, err);
}

/* Opens the next part, of any kind. `make`: creates a missing folder. The caller never creates the
 * target of a link, because a dangling link is a mistake. */
static int trust_open_part(struct walk *w, const char *name, bool make, int *fd)
{
    enum { FLAGS = O_PATH | O_NOFOLLOW | O_CLOEXEC };
    *fd = openat(w->at, name, FLAGS);
    if (*fd < 0 && errno == ENOENT && make) {
        if (mkdirat(w->at, name, (mode_t)w->make_mode) && errno != EEXIST) {
            return -1;
        }
        *fd = openat(w->at, name, FLAGS);
    }
    return *fd < 0 ? -1 : 0;
}

enum { WALK_FILE = 2 }; /* the part is neither a folder nor a link */

/* Walks over the next part of the path. With WALK_FILE and TRUST_MISSING `path` names that part. */
static int walk_step(struct walk *w, const char *name, bool linked, char path[PATH_MAX],
                     struct error *err)
{
    struct stat st = {0};
    const bool make = w->make_mode && !linked;
    int fd;
    if (strcmp(name, ".") == 0) {
        return 0;
    }
    if (strcmp(name, "..") == 0) {
        return walk_up(w, err);
    }
    if (snprintf(path, PATH_MAX, "%s/%s", w->done, name) >= PATH_MAX) {
        return trust_refuse_long(w->done, err);
    }
    if (trust_open_part(w, name, make, &fd)) {
        return errno == ENOENT && !make
                   ? TRUST_MISSING
                   : refuse_call(make ? "cannot create the directory " : "", path, err);
    }
    if (fstat(fd, &st) || !S_ISDIR(st.st_mode)) {
        int r = S_ISLNK(st.st_mode) ? walk_follow(w, fd, path, err) : WALK_FILE;
        close(fd);
        return r;
    }
    memcpy(w->done, path, strlen(path) + 1);
    return walk_enter(w, fd, err);
}

/* Walks to the end of the path, or to the first part that is missing or not a folder; `path` names
 * that part. *last: no part follows. */
static int trust_walk_all(struct walk *w, char path[PATH_MAX], bool *last, struct error *err)
{
    char name[PATH_MAX];
    bool linked;
    int r = 0;
    path[0] = '\0';
    while (r == 0 && walk_cut(w, name, &linked)) {
        r = walk_step(w, name, linked, path, err);
    }
    *last = w->rest[strspn(w->rest, "/")] == '\0';
    return r;
}

static int check_last(const struct walk *w, int flags, struct error *err)
{
    const char *path = w->done[0] ? w->done : "/";
    const bool strict = flags & TRUST_STRICT;
    const bool open = is_open_to_others(path, &w->st, strict);
    return open && !(flags & TRUST_SHARED)
               ? refuse_mode(path, &w->st, w->st.st_uid == geteuid() && !(w->st.st_mode & S_ISVTX),
                             err)
               : 0;
}

int trust_folder(const char *path, int flags, unsigned make_mode, char out[PATH_MAX],
                 struct error *err)
{
    struct walk w;
    char part[PATH_MAX];
    bool last = false;
    int r = walk_begin(&w, path, make_mode, err);
    r = r ? r : trust_walk_all(&w, part, &last, err);
    if (r == WALK_FILE) {
        r = last ? error_set(err, ERROR_DENIED, "%s is not a directory; remove it", part)
                 : error_set(err, ERROR_IO, "%s%s: %s is not a directory",
                             make_mode ? "cannot create the directory " : "", path, part);
    } else if (r == TRUST_MISSING && make_mode) {
        r = error_set(err, ERROR_IO, "%s: a symbolic link leads to %s, which is not there", path,
                      part);
    }
    r = r ? r : check_last(&w, flags, err);
    if (r == 0 && out) {
        snprintf(out, PATH_MAX, "%s", w.done[0] ? w.done : "/");
    }
    walk_end(&w);
    return r;
}

/* ---- files ----------------------------------------------------------------------------------- */

static int check_file(const char *path, const struct stat *st, bool in_shared, struct error *err)
{
    if (!S_ISREG(st->st_mode)) {
        return error_set(err, ERROR_DENIED, "%s is a %s; remove it", path,
                         S_ISDIR(st->st_mode) ? "directory, no plain file"
                                              : "device, pipe or socket, no plain file");
    }
    if (!is_trusted_owner(st->st_uid, in_shared)) {
        return refuse_owner(path, st, err);
    }
    return is_open_to_others(path, st, false) ? refuse_mode(path, st, true, err) : 0;
}

int trust_opened(const char *path, int fd, struct error *err)
{
    struct stat st;
    return fstat(fd, &st) ? refuse_call("", path, err) : check_file(path, &st, false, err);
}

int trust_file(const char *path, int flags, char out[PATH_MAX], struct error *err)
{
    struct walk w;
    struct stat st;
    bool last = false;
    int r = walk_begin(&w, path, 0, err);
    r = r ? r : trust_walk_all(&w, out, &last, err);
    if (r == 0) {
        r = error_set(err, ERROR_DENIED, "%s is a directory, no plain file", path);
    } else if (r > 0 && !last) {
        r = error_set(err, ERROR_IO, "%s: %s is %s", path, out,
                      r == WALK_FILE ? "not a directory" : "not there");
    } else if (r > 0) {
        int folder = check_last(&w, flags, err);
        r = folder ? folder : r;
    }
    if (r == WALK_FILE) {
        r = fstatat(w.at, strrchr(out, '/') + 1, &st, AT_SYMLINK_NOFOLLOW)
                ? refuse_call("", out, err)
                : check_file(out, &st, w.shared, err);
    }
    walk_end(&w);
    return r;
}

/* Splits a path before its last part; false when the last part is no file name. */
static bool trust_split_path(const char *path, char folder[PATH_MAX], const char **name)
{
    const char *slash = strrchr(path, '/');
    *name = slash ? slash + 1 : path;
    int n = slash ? (int)(*name - path) : 0;
    return **name && strcmp(*name, ".") != 0 && strcmp(*name, "..") != 0 &&
           snprintf(folder, PATH_MAX, "%.*s", n, path) < PATH_MAX &&
           (n > 0 || snprintf(folder, PATH_MAX, ".") == 1);
}

static int open_below(const struct walk *w, const char *path, const char *name, int flags,
                      unsigned mode, int *fd, struct error *err)
{
    struct stat st;
    mode &= ~(unsigned)(S_IWGRP | S_IWOTH); /* for any umask: the rule refuses other writers */
    *fd = openat(w->at, name, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, (mode_t)mode);
    if (*fd < 0 && errno == ELOOP) {
        return error_set(err, ERROR_DENIED, "%s is a symbolic link; remove it", path);
    }
    if (*fd < 0 && errno == ENXIO) { /* a FIFO without a reader, or a socket */
        return error_set(err, ERROR_DENIED, "%s is no plain file; remove it", path);
    }
    if (*fd < 0) {
        return errno == ENOENT && !(flags & O_CREAT) ? TRUST_MISSING : refuse_call("", path, err);
    }
    int r = fstat(*fd, &st) ? refuse_call("", path, err) : 0;
    if (r == 0 && flags & O_CREAT && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
        st.st_nlink == 1 && st.st_mode & 07777 & ~(mode_t)mode) {
        st.st_mode &= S_IFMT | (mode_t)mode; /* an older gemmd made the file */
        fchmod(*fd, st.st_mode & 07777);
    }
    r = r ? r : check_file(path, &st, w->shared, err);
    if (r == 0 && (flags & O_ACCMODE) != O_RDONLY && st.st_nlink > 1) {
        r = error_set(err, ERROR_DENIED, "%s is also another file's name; remove it", path);
    }
    return r;
}

int trust_open(const char *path, int flags, unsigned mode, int *fd, struct error *err)
{
    struct walk w = {.at = -1};
    char folder[PATH_MAX], part[PATH_MAX];
    const char *name;
    bool last;
    *fd = -1;
    int r = trust_split_path(path, folder, &name)
                ? 0
                : error_set(err, ERROR_INVALID, "'%s' names no file", path);
    r = r ? r : walk_begin(&w, folder, 0, err);
    r = r ? r : trust_walk_all(&w, part, &last, err);
    if (r == WALK_FILE || (r == TRUST_MISSING && flags & O_CREAT)) {
        errno = r == WALK_FILE ? ENOTDIR : ENOENT;
        r = refuse_call("", path, err);
    }
    r = r ? r : open_below(&w, path, name, flags, mode, fd, err);
    if (r && *fd >= 0) {
        close(*fd);
        *fd = -1;
    }
    walk_end(&w);
    return r;
}
