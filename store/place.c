/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "proto/trust.h"
#include "store/db.h"

int (*place_fstatfs)(int fd, struct statfs *out) = fstatfs;

/* Values of f_type in statfs(2). FUSE is in the list, since sshfs and most cluster file systems use
 * FUSE. */
static const struct {
    unsigned long magic;
    const char *name;
} network_file_systems[] = {
    {0x00006969, "NFS"},  {0x0000517b, "SMB"},     {0xfe534d42, "SMB2"},
    {0xff534d42, "CIFS"}, {0x0bd00bd0, "Lustre"},  {0x65735546, "FUSE (sshfs and others)"},
    {0x47504653, "GPFS"}, {0x19830326, "BeeGFS"},  {0x00c36400, "CephFS"},
    {0x01021997, "9p"},   {0x5346414f, "OpenAFS"}, {0x6b414653, "AFS"},
    {0x73757245, "Coda"}, {0xaad7aaea, "PanFS"},   {0x0000564c, "NCP"},
    {0x01161970, "GFS2"}, {0x7461636f, "OCFS2"},   {0x786f4256, "VirtualBox shared folder"},
};

/* Suffixes of the files that SQLite opens beside a database. It opens them by name, and would block
 * on a FIFO. */
static const char *const parts[] = {"", "-wal", "-shm", "-journal"};

static int check_parts(const char *path, struct error *err)
{
    char name[PATH_MAX + 16], whole[PATH_MAX];
    struct stat st;
    int r = 0;
    for (size_t i = 0; r >= 0 && i < sizeof(parts) / sizeof(parts[0]); i++) {
        snprintf(name, sizeof(name), "%s%s", path, parts[i]);
        if (lstat(name, &st)) {
            continue;
        }
        if (!S_ISREG(st.st_mode)) {
            r = error_set(err, ERROR_STORE, "%s is no plain file; remove it", name);
        } else if (st.st_nlink > 1) {
            r = error_set(err, ERROR_STORE,
                          "%s is another file's name, too (a hard link); remove it, or copy it",
                          name);
        } else {
            r = trust_file(name, 0, whole, err);
        }
    }
    return r < 0 ? r : 0;
}

void place_create(const char *path)
{
    PLACE_FD_AUTO fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    (void)fd;
}

void place_close_to_others(const char *path)
{
    char name[PATH_MAX + 16];
    struct stat st;
    /* Changes modes by name: closing another descriptor of the file would end SQLite's locks in
     * this process. */
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        snprintf(name, sizeof(name), "%s%s", path, parts[i]);
        if (lstat(name, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
            st.st_mode & 077) {
            chmod(name, st.st_mode & 0700);
        }
    }
}

int place_stat(const char *path, const char *suffix, struct stat *out)
{
    char name[PATH_MAX + 16];
    snprintf(name, sizeof(name), "%s%s", path, suffix);
    return stat(name, out);
}

void place_unlink(const char *path, const char *suffix)
{
    char name[PATH_MAX + 64];
    snprintf(name, sizeof(name), "%s%s", path, suffix);
    unlink(name);
}

void place_close(const int *fd)
{
    if (*fd >= 0) {
        close(*fd);
    }
}

size_t place_read(const char *path, void *out, size_t size)
{
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(out, 1, size, f) : 0;
    if (f) {
        fclose(f);
    }
    return n;
}

void place_name_aside(const char *path, const char *word, char out[PATH_MAX])
{
    char stamp[24], again[8] = "";
    struct stat st;
    struct tm tm;
    time_t now = time(NULL);
    strftime(stamp, sizeof(stamp), "%Y%m%dT%H%M%SZ", gmtime_r(&now, &tm));
    int i = 2;
    do {
        snprintf(out, PATH_MAX, "%s.%s-%s%s", path, word, stamp, again);
        snprintf(again, sizeof(again), "-%d", i++);
    } while (i < 1000 && (lstat(out, &st) == 0 || place_stat(out, "-wal", &st) == 0));
}

int place_rename(const char *from, const char *to, const char *suffix, struct error *err)
{
    char old[PATH_MAX + 16], new[PATH_MAX + 16];
    snprintf(old, sizeof(old), "%s%s", from, suffix);
    snprintf(new, sizeof(new), "%s%s", to, suffix);
    return rename(old, new) && errno != ENOENT ? place_fail_io("renaming", old, err) : 0;
}

int64_t place_time_ns(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

static int check_folder(const char *path, struct error *err)
{
    char dir[PATH_MAX];
    struct stat st;
    strcpy(dir, path);
    const char *folder = dirname(dir);
    if (stat(folder, &st)) {
        return error_set(err, ERROR_STORE, "database %s: folder %s: %s", path, folder,
                         strerror(errno));
    }
    return S_ISDIR(st.st_mode)
               ? 0
               : error_set(err, ERROR_STORE, "database %s: %s is not a folder", path, folder);
}

int place_resolve(const char *path, char **out, struct error *err)
{
    char whole[PATH_MAX];
    struct stat st;
    *out = NULL;
    if (!path || !*path || strlen(path) >= PATH_MAX - 64) {
        return error_set(err, ERROR_STORE, "the database needs a path of 1 to %d bytes",
                         PATH_MAX - 64);
    }
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        return error_set(err, ERROR_STORE, "database %s: it is %s, not a plain file", path,
                         S_ISDIR(st.st_mode) ? "a folder" : "a device, pipe or socket");
    }
    int r = check_folder(path, err);
    if (r) {
        return r;
    }
    r = trust_file(path, 0, whole, err);
    r = r < 0 ? r : check_parts(whole, err);
    if (r < 0) {
        error_prefix(err, "database %s", path);
        return err ? err->code = ERROR_STORE : ERROR_STORE;
    }
    *out = strdup(whole);
    return *out ? 0 : error_set(err, ERROR_NO_MEMORY, "no memory to open database %s", path);
}

int place_refuse_network(const char *path, struct error *err)
{
    char dir[PATH_MAX];
    struct statfs fs;
    snprintf(dir, sizeof(dir), "%s", path);
    int fd = open(dirname(dir), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return error_set(err, ERROR_STORE, "database %s: its folder: %s", path, strerror(errno));
    }
    int r = place_fstatfs(fd, &fs);
    close(fd);
    size_t n = sizeof(network_file_systems) / sizeof(network_file_systems[0]);
    for (size_t i = 0; r == 0 && i < n; i++) {
        if ((unsigned long)fs.f_type % (1ul << 32) == network_file_systems[i].magic) {
            return error_set(err, ERROR_STORE,
                             "database %s is on a network file system, %s, where SQLite's WAL is "
                             "not safe: give --database on a local disk (or "
                             "--force-network-fs)",
                             path, network_file_systems[i].name);
        }
    }
    return 0;
}

/* ---- locks of other programs ----------------------------------------------------------------- */

enum {
    WAL_LOCKS = 120,
    /* the bytes of <path>-shm that SQLite locks: write, checkpoint, recover, readers
     * (sqlite.org/walformat.html) */
    WAL_LOCKS_END = 128,
    READ_LOCKS = 123,
};

/* A line of /proc/locks: "1: POSIX  ADVISORY  WRITE 1234 08:02:5678 120 120". */
struct lock_line {
    char access[8];
    long pid;
    unsigned major, minor;
    unsigned long long file;
    unsigned long long first;
};

static bool read_lock(FILE *f, struct lock_line *out)
{
    char line[256];
    while (fgets(line, sizeof(line), f)) {
        if (sscanf(line, "%*u: POSIX %*s %7s %ld %x:%x:%llu %llu", out->access, &out->pid,
                   &out->major, &out->minor, &out->file, &out->first) == 6) {
            return true;
        }
    }
    return false;
}

static bool place_is_lock_of(const struct lock_line *l, const struct stat *st)
{
    return l->file == st->st_ino && l->major == major(st->st_dev) && l->minor == minor(st->st_dev);
}

/* True when the lock can block gemmd. Readers hold a shared lock on the file and on a reader's byte
 * of -shm; these locks block nobody. */
static bool is_in_the_way(const struct lock_line *l, const struct stat *file,
                          const struct stat *shm)
{
    const bool writes = strcmp(l->access, "WRITE") == 0;
    return (place_is_lock_of(l, file) && writes) ||
           (place_is_lock_of(l, shm) && l->first >= WAL_LOCKS && l->first < WAL_LOCKS_END &&
            (writes || l->first < READ_LOCKS));
}

void place_name_process(long pid, char out[PLACE_LOCKER_MAX])
{
    char path[40], name[20] = "";
    snprintf(path, sizeof(path), "/proc/%ld/comm", pid);
    const bool named = place_read(path, name, sizeof(name) - 1) > 0;
    name[strcspn(name, "\n")] = '\0';
    snprintf(out, PLACE_LOCKER_MAX, named ? "pid %ld (%s)" : "pid %ld", pid, name);
}

/* Does not use fcntl(F_GETLK): closing the descriptor for the call would end SQLite's own locks. */
bool place_locker(const char *path, char out[PLACE_LOCKER_MAX])
{
    struct stat file = {0}, shm = {0};
    struct lock_line l;
    bool found = false;
    FILE *f = fopen("/proc/locks", "re");
    stat(path, &file);
    place_stat(path, "-shm", &shm);
    while (f && !found && read_lock(f, &l)) {
        found = l.pid > 0 && l.pid != (long)getpid() && is_in_the_way(&l, &file, &shm);
    }
    if (f) {
        fclose(f);
    }
    if (found) {
        place_name_process(l.pid, out);
    }
    return found;
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Gives a file the owner and mode of `like`. Only root can change the owner. A group that gemmd is
 * not a member of gets no rights. The owner may always write, also when `like` is read-only. */
static int share_like(int fd, const struct stat *like)
{
    mode_t mode = (like->st_mode & 0777) | S_IRUSR | S_IWUSR;
    if (fchown(fd, (uid_t)-1, like->st_gid)) {
        mode &= ~(mode_t)070;
    }
    if (fchown(fd, like->st_uid, (gid_t)-1) && errno != EPERM) {
        return -1;
    }
    return fchmod(fd, mode);
}

int place_create_like(const char *path, const struct stat *like)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return -1;
    }
    int r = share_like(fd, like), why = errno;
    close(fd);
    if (r) {
        unlink(path);
    }
    errno = why;
    return r;
}

static int place_sync_path(const char *path, int flags)
{
    PLACE_FD_AUTO fd = open(path, flags | O_CLOEXEC);
    return fd < 0 ? -1 : fsync(fd);
}

int place_sync_folder(const char *path)
{
    char dir[PATH_MAX];
    snprintf(dir, sizeof(dir), "%s", path);
    return place_sync_path(dirname(dir), O_RDONLY | O_DIRECTORY);
}

int place_sync(const char *path)
{
    int r = place_sync_path(path, O_RDWR);
    return r ? r : place_sync_folder(path);
}

int place_fail_io(const char *doing, const char *path, struct error *err)
{
    return error_set(err, errno == ENOSPC || errno == EDQUOT ? ERROR_DISK_FULL : ERROR_STORE,
                     "%s %s: %s", doing, path, strerror(errno));
}

int place_copy_bytes(const char *from, const char *to, struct error *err)
{
    struct stat file;
    ssize_t n = -1;
    PLACE_FD_AUTO in = open(from, O_RDONLY | O_CLOEXEC), out = -1;
    if (in >= 0 && fstat(in, &file) == 0 && place_create_like(to, &file) == 0) {
        out = open(to, O_WRONLY | O_CLOEXEC);
    }
    while (out >= 0 && (n = sendfile(out, in, NULL, 1 << 30)) > 0) {
    }
    return n == 0 ? 0 : place_fail_io("copying", from, err);
}
