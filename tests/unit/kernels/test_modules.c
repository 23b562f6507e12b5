/* SPDX-License-Identifier: Apache-2.0 */
/* Modules on disk: found by variant and by content, with the compiler's messages; refused when
 * damaged; complete before they get their name; bounded by the limit. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include "proto/hash.h"
#include "kernels/modules.h"
#include "tests/unit/kernels/common.h"

static const char variant[] = "00112233445566778899aabbccddeeff";
static char folder[64];

enum { OTHER = 54321 };

static int setup(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/gemmd-modules-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command);
}

static struct image image_of(const char *content)
{
    struct image i = {.data = strdup(content), .size = strlen(content)};
    strcpy(i.meta.variant, variant);
    return i;
}

static int entries(const char *name)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    DIR *d = opendir(path);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        n += e->d_name[0] != '.';
    }
    if (d) {
        closedir(d);
    }
    return n;
}

static void path_of(char out[PATH_MAX], const char *id)
{
    snprintf(out, PATH_MAX, "%s/modules/%s.so", folder, id);
}

static void remove_image(const char *id)
{
    char path[PATH_MAX];
    path_of(path, id);
    assert_int_equal(unlink(path), 0);
}

static void test_put_and_find(void **state)
{
    (void)state;
    struct image in = image_of("content"), out;
    char id[HASH_HEX];
    assert_int_equal(modules_find(folder, variant, &out, NULL), MODULES_MISS);
    assert_int_equal(modules_get(folder, variant, &out, NULL), MODULES_MISS);
    assert_false(modules_has(folder, variant));
    assert_ok(modules_put(folder, &in, "so", err));
    assert_true(modules_has(folder, variant));
    hash128_hex("content", 7, id);
    assert_string_equal(in.meta.id, id);
    assert_int_equal(in.meta.size, 7);
    assert_ok(modules_put(folder, &in, "so", err)); /* the same image again: no new file */
    assert_int_equal(entries("modules"), 1);
    assert_int_equal(entries("variants"), 1);

    assert_ok(modules_find(folder, variant, &out, err));
    assert_int_equal(out.size, 7);
    assert_memory_equal(out.data, "content", 7);
    assert_string_equal(out.meta.variant, variant);
    assert_string_equal(out.meta.id, id);
    image_deinit(&out);
    assert_ok(modules_get(folder, id, &out, err));
    assert_memory_equal(out.data, "content", 7);
    image_deinit(&out);
    image_deinit(&out);

    remove_image(id);
    assert_false(modules_has(folder, variant));
    assert_int_equal(modules_find(folder, variant, &out, NULL), MODULES_MISS);
    assert_int_equal(entries("variants"), 0); /* modules_find has removed the dangling link */
    image_deinit(&in);
}

/* A variant that is compiled again may give another image, which the variant's link then names. */
static void test_link_moves(void **state)
{
    (void)state;
    struct image a = image_of("first"), b = image_of("second"), out;
    assert_ok(modules_put(folder, &a, "so", err));
    assert_ok(modules_put(folder, &b, "so", err));
    assert_ok(modules_find(folder, variant, &out, err));
    assert_memory_equal(out.data, "second", 6);
    image_deinit(&out);
    assert_ok(modules_get(folder, a.meta.id, &out, err));
    image_deinit(&out);
    image_deinit(&a);
    image_deinit(&b);
}

static void damage(const char *id, bool cut)
{
    char path[PATH_MAX];
    path_of(path, id);
    if (cut) {
        assert_int_equal(truncate(path, 3), 0);
        return;
    }
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "X", 1, 2), 1);
    close(fd);
}

static void test_damaged(void **state)
{
    (void)state;
    for (int cut = 0; cut < 2; cut++) {
        for (int by_id = 0; by_id < 2; by_id++) {
            struct image in = image_of("precious"), out;
            assert_ok(modules_put(folder, &in, "so", err));
            damage(in.meta.id, cut);
            int r = by_id ? modules_get(folder, in.meta.id, &out, NULL)
                          : modules_find(folder, variant, &out, NULL);
            assert_int_equal(r, MODULES_MISS);
            assert_null(out.data);
            assert_int_equal(entries("modules"), 0); /* the damaged image is removed */
            assert_ok(modules_put(folder, &in, "so", err));
            assert_ok(modules_find(folder, variant, &out, err));
            image_deinit(&out);
            remove_image(in.meta.id);
            image_deinit(&in);
        }
    }
}

/* Names of modules come from other processes: only 32 hex digits may reach the file system. */
static void test_bad_names(void **state)
{
    (void)state;
    struct image out;
    assert_fails(modules_get(folder, "../../etc/passwd", &out, err), ERROR_INVALID,
                 "32 hex digits");
    assert_fails(modules_get(folder, "", &out, err), ERROR_INVALID, "32 hex digits");
    char path[PATH_MAX + 64];
    snprintf(path, sizeof(path), "%s/variants", folder);
    mkdir(path, 0755);
    snprintf(path, sizeof(path), "%s/variants/%s", folder, variant);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_int_equal(modules_find(folder, variant, &out, NULL), MODULES_MISS);
}

static void test_no_folder(void **state)
{
    (void)state;
    struct image in = image_of("content"), out;
    assert_fails(modules_put("/proc/no-such-folder", &in, "so", err), ERROR_IO,
                 "/proc/no-such-folder/modules");
    assert_int_equal(modules_find("/proc/no-such-folder", variant, &out, NULL), MODULES_MISS);
    assert_int_equal(modules_get("/proc/no-such-folder", variant, &out, NULL), MODULES_MISS);
    image_deinit(&in);
}

static void refuses_all(const char *id, const char *why)
{
    struct image in = image_of("content"), out;
    struct chunk chunk;
    struct modules_usage u;
    assert_fails(modules_check(folder, err), ERROR_DENIED, why);
    assert_fails(modules_put(folder, &in, "so", err), ERROR_DENIED, why);
    assert_fails(modules_find(folder, variant, &out, err), ERROR_DENIED, why);
    assert_fails(modules_get(folder, id, &out, err), ERROR_DENIED, why);
    assert_fails(modules_read(folder, id, 0, 7, &chunk, err), ERROR_DENIED, why);
    modules_count(folder, &u);
    assert_int_equal(u.modules, 0);
    image_deinit(&in);
}

/* A user who could once write to the cache replaces our kernel by another. */
static void test_a_folder_of_another_user_in_the_cache_is_refused(void **state)
{
    (void)state;
    struct image in = image_of("content");
    char path[128], his[128];
    if (geteuid() != 0) {
        skip();
    }
    assert_ok(modules_put(folder, &in, "so", err));
    snprintf(path, sizeof(path), "%s/modules", folder);
    snprintf(his, sizeof(his), "%s/his", folder);
    assert_int_equal(lchown(path, OTHER, OTHER), 0);
    refuses_all(in.meta.id, "modules belongs to user 54321");
    assert_int_equal(rename(path, his), 0);
    assert_int_equal(symlink("his", path), 0); /* our own link to that user's file */
    refuses_all(in.meta.id, "his belongs to user 54321");
    assert_int_equal(lchown(path, OTHER, OTHER), 0);
    refuses_all(in.meta.id, "modules is a symbolic link of user 54321");
    image_deinit(&in);
}

static void test_a_folder_of_the_cache_that_others_may_write_to_is_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"modules", "variants", "records", "serving"};
    struct image in = image_of("content");
    char path[PATH_MAX];
    assert_ok(modules_put(folder, &in, "so", err));
    assert_ok(modules_serve(folder, "/a.db", NULL, 0, err));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        assert_int_equal(chmod(path, 0777), 0);
        assert_fails(modules_check(folder, err), ERROR_DENIED, names[i]);
        if (strcmp(names[i], "serving") == 0) {
            assert_fails(modules_serve(folder, "/a.db", NULL, 0, err), ERROR_DENIED, "chmod go-w");
        } else {
            assert_fails(modules_put(folder, &in, "so", err), ERROR_DENIED, "chmod go-w");
        }
        assert_int_equal(chmod(path, 0755), 0);
    }
    image_deinit(&in);
}

/* A write fails, as on a full disk: no file is left behind, and the error names a remedy. */
static void test_limited_files(void **state)
{
    (void)state;
    struct image in = image_of("content"), out;
    struct rlimit before, small;
    getrlimit(RLIMIT_FSIZE, &before);
    small = (struct rlimit){.rlim_cur = 4, .rlim_max = before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    struct error why = ERROR_NULL;
    int status = modules_put(folder, &in, "so", &why);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(status, ERROR_DISK_FULL);
    assert_non_null(strstr(why.text, "File too large; free space"));
    assert_int_equal(modules_find(folder, variant, &out, NULL), MODULES_MISS);
    assert_int_equal(entries("modules"), 0);
    image_deinit(&in);
}

static void *put_often(void *arg)
{
    struct image in = image_of(arg);
    for (int i = 0; i < 20; i++) {
        if (modules_put(folder, &in, "so", NULL) != 0) {
            image_deinit(&in);
            return arg;
        }
    }
    image_deinit(&in);
    return NULL;
}

static void test_race(void **state)
{
    (void)state;
    pthread_t threads[4];
    static char content[4][4] = {"one", "two", "one", "two"};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, put_often, content[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    struct image out;
    assert_int_equal(entries("modules"), 2);
    assert_int_equal(entries("variants"), 1);
    assert_ok(modules_find(folder, variant, &out, err));
    assert_int_equal(out.size, 3);
    image_deinit(&out);
}

/* ---- records -------------------------------------------------------------------------------- */

static void record_path(char out[PATH_MAX])
{
    snprintf(out, PATH_MAX, "%s/records/%s", folder, variant);
}

static void test_record(void **state)
{
    (void)state;
    struct image in = image_of("content"), out;
    in.meta.registers = 168;
    in.meta.spill_bytes = 8;
    in.meta.smem_static = 1024;
    in.meta.compile_ms = 1234.5;
    in.meta.created_s = 77;
    strcpy(in.meta.flags, "-DA=1");
    strcpy(in.log, "ptxas info: \xff cut"); /* no UTF-8: made readable */
    assert_ok(modules_put(folder, &in, "so", err));
    assert_ok(modules_find(folder, variant, &out, err));
    assert_int_equal(out.meta.registers, 168);
    assert_int_equal(out.meta.spill_bytes, 8);
    assert_int_equal(out.meta.smem_static, 1024);
    assert_true(out.meta.compile_ms == 1234.5);
    assert_int_equal(out.meta.created_s, 77);
    assert_true(out.meta.used_s >= time(NULL) - 60);
    assert_string_equal(out.meta.flags, "-DA=1");
    assert_string_equal(out.meta.id, in.meta.id);
    assert_memory_equal(out.log, "ptxas info: ", 12);
    image_deinit(&out);
    image_deinit(&in);
}

/* With any byte of a record changed, or with any shorter length, the module is not found. */
static void test_damaged_record(void **state)
{
    (void)state;
    struct image in = image_of("content"), out;
    struct stat st;
    char path[PATH_MAX];
    record_path(path);
    assert_ok(modules_put(folder, &in, "so", err));
    assert_int_equal(stat(path, &st), 0);
    for (off_t at = 0; at < st.st_size; at++) {
        char byte;
        int fd = open(path, O_RDWR);
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 0x11;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        if (at % 3 == 0) {
            assert_int_equal(ftruncate(fd, at), 0);
        }
        close(fd);
        assert_int_equal(modules_find(folder, variant, &out, NULL), MODULES_MISS);
        assert_int_equal(entries("records"), 0);
        assert_ok(modules_put(folder, &in, "so", err)); /* replaces the damaged record */
        assert_ok(modules_find(folder, variant, &out, err));
        image_deinit(&out);
    }
    image_deinit(&in);
}

static void test_record_of_another_variant(void **state)
{
    (void)state;
    static const char other[] = "ffffffffffffffffffffffffffffffff";
    struct image in = image_of("content"), out;
    char from[PATH_MAX], to[PATH_MAX];
    assert_ok(modules_put(folder, &in, "so", err));
    record_path(from);
    snprintf(to, sizeof(to), "%s/records/%s", folder, other);
    assert_int_equal(rename(from, to), 0);
    assert_int_equal(modules_find(folder, other, &out, NULL), MODULES_MISS);
    assert_int_equal(entries("records"), 0);
    image_deinit(&in);
}

static void test_refusal(void **state)
{
    (void)state;
    struct image in = {.log = "line 1"}, out;
    struct error why = ERROR_NULL, e = ERROR_NULL;
    strcpy(in.meta.variant, variant);
    error_set(&why, ERROR_RESOURCE, "ptxas spills 96 bytes");
    assert_ok(modules_put_refusal(folder, &in, &why, err));
    assert_int_equal(modules_find(folder, variant, &out, &e), MODULES_REFUSED);
    assert_null(out.data);
    assert_int_equal(e.code, ERROR_RESOURCE);
    assert_string_equal(e.text, "ptxas spills 96 bytes");
    /* a later successful compile replaces the refusal */
    struct image good = image_of("good after all");
    assert_ok(modules_put(folder, &good, "so", err));
    assert_ok(modules_find(folder, variant, &out, err));
    image_deinit(&out);
    image_deinit(&good);
}

/* ---- the limit ------------------------------------------------------------------------------ */

static void name_variant(char out[HASH_HEX], int i)
{
    snprintf(out, HASH_HEX, "%032x", i + 1);
}

/* Puts image i of 8 KiB, last used age_s seconds ago. */
static void put_aged(int i, int64_t age_s, char id[HASH_HEX])
{
    char path[PATH_MAX], *data = calloc(1, 8192);
    snprintf(data, 8192, "image %d", i);
    struct image in = {.data = data, .size = 8192};
    name_variant(in.meta.variant, i);
    assert_ok(modules_put(folder, &in, "so", err));
    strcpy(id, in.meta.id);
    path_of(path, id);
    const struct timespec then[2] = {{.tv_sec = time(NULL) - age_s},
                                     {.tv_sec = time(NULL) - age_s}};
    assert_int_equal(utimensat(AT_FDCWD, path, then, 0), 0);
    image_deinit(&in);
}

static bool is_there(int i)
{
    char name[HASH_HEX];
    struct image out;
    name_variant(name, i);
    int r = modules_find(folder, name, &out, NULL);
    image_deinit(&out);
    return r == 0;
}

static void test_limit(void **state)
{
    (void)state;
    char ids[10][HASH_HEX];
    struct modules_usage u;
    for (int i = 0; i < 10; i++) { /* 0 is the oldest */
        put_aged(i, 100000 - i * 1000, ids[i]);
    }
    modules_count(folder, &u);
    assert_int_equal(u.modules, 10);
    assert_int_equal(u.bytes, 10 * (8192 + 4096));
    assert_ok(modules_trim(folder, u.bytes, &u, err)); /* the limit just holds all */
    assert_int_equal(u.removed, 0);
    assert_ok(modules_trim(folder, 0, &u, err)); /* 0: no limit */
    assert_int_equal(u.removed, 0);
    assert_true(is_there(1)); /* is_there() uses module 1, and a used module counts as new */
    char database[128];
    snprintf(database, sizeof(database), "%s/a.db", folder);
    close(open(database, O_CREAT | O_WRONLY, 0600));
    assert_ok(modules_serve(folder, database, (const char(*)[HASH_HEX])ids[2], 1, err));
    assert_ok(modules_trim(folder, 6 * 12288, &u, err));
    assert_false(is_there(0));
    assert_true(is_there(1));
    assert_true(is_there(2)); /* a database's best names it */
    assert_false(is_there(3));
    assert_true(is_there(9));
    assert_true(u.bytes <= 6 * 12288);
    assert_int_equal(u.modules, 10 - u.removed);
    assert_int_equal(entries("modules"), u.modules);
    assert_int_equal(entries("records"), u.modules); /* no dangling record */
    assert_int_equal(entries("variants"), u.modules);
}

/* True: the file exists. Unlike is_there(), this does not count as a use of the module. */
static bool has_file(const char *id)
{
    char path[PATH_MAX];
    path_of(path, id);
    return access(path, F_OK) == 0;
}

/* Makes all lists of served modules `days` old. */
static void age_lists(int days)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/serving", folder);
    DIR *d = opendir(path);
    assert_non_null(d);
    const struct timespec then = {.tv_sec = time(NULL) - (time_t)days * 24 * 3600};
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] != '.') {
            assert_int_equal(
                utimensat(dirfd(d), e->d_name, (const struct timespec[]){then, then}, 0), 0);
        }
    }
    closedir(d);
}

/* A module used just now stays under any limit. Modules that a deleted database served are not
 * served. */
static void test_limit_spares(void **state)
{
    (void)state;
    char ids[3][HASH_HEX];
    struct modules_usage u;
    put_aged(0, 100000, ids[0]);
    put_aged(1, 100000, ids[1]);
    put_aged(2, 10, ids[2]);
    char database[128];
    snprintf(database, sizeof(database), "%s/a.db", folder);
    close(open(database, O_CREAT | O_WRONLY, 0600));
    assert_ok(modules_serve(folder, database, (const char(*)[HASH_HEX])ids, 1, err));
    assert_ok(modules_trim(folder, 1, &u, err));
    assert_int_equal(u.removed, 1);
    assert_false(is_there(1));
    assert_int_equal(unlink(database), 0);
    assert_ok(modules_trim(folder, 1, &u, err));
    assert_int_equal(u.removed, 0); /* the database may be another container's, and hidden here */
    assert_true(has_file(ids[0]));
    age_lists(29);
    assert_ok(modules_trim(folder, 1, &u, err));
    assert_int_equal(u.removed, 0);
    age_lists(31);
    assert_ok(modules_trim(folder, 1, &u, err));
    assert_int_equal(u.removed, 1);
    assert_int_equal(u.modules, 1);
    assert_false(is_there(0));
    assert_true(is_there(2));
    assert_int_equal(entries("serving"), 0);
}

/* A time in the future does not count as a use. Copied files have such times, and files from
 * before a clock was set right. */
static void test_limit_of_times_to_come(void **state)
{
    (void)state;
    char ids[2][HASH_HEX];
    struct modules_usage u;
    put_aged(0, -5 * 365 * 24 * 3600, ids[0]);
    put_aged(1, 100000, ids[1]);
    assert_ok(modules_trim(folder, 20000, &u, err));
    assert_int_equal(u.removed, 1);
    assert_false(has_file(ids[0]));
    assert_true(has_file(ids[1]));
}

/* A file that is no list neither prevents a trim nor gives a message. */
static void test_limit_ignores_files_that_are_no_lists(void **state)
{
    (void)state;
    char id[HASH_HEX], path[PATH_MAX];
    struct modules_usage u;
    put_aged(0, 100000, id);
    snprintf(path, sizeof(path), "%s/serving", folder);
    assert_int_equal(mkdir(path, 0755), 0);
    snprintf(path, sizeof(path), "%s/serving/%032d", folder, 1);
    assert_int_equal(mkfifo(path, 0600), 0);
    snprintf(path, sizeof(path), "%s/serving/%032d", folder, 2);
    assert_int_equal(symlink("/dev/zero", path), 0);
    assert_ok(modules_trim(folder, 1, &u, err));
    assert_int_equal(u.removed, 1);
}

/* Containers that share the cache may have different databases at the same path. */
static void test_limit_of_databases_alike(void **state)
{
    (void)state;
    char ids[3][HASH_HEX], database[128], other[128];
    struct modules_usage u;
    for (int i = 0; i < 3; i++) {
        put_aged(i, 100000, ids[i]);
    }
    snprintf(database, sizeof(database), "%s/a.db", folder);
    snprintf(other, sizeof(other), "%s/b.db", folder);
    close(open(database, O_CREAT | O_WRONLY, 0600));
    assert_ok(modules_serve(folder, database, (const char(*)[HASH_HEX])ids, 1, err));
    assert_int_equal(rename(database, other), 0);
    close(open(database, O_CREAT | O_WRONLY, 0600));
    assert_ok(modules_serve(folder, database, (const char(*)[HASH_HEX])ids[1], 1, err));
    assert_ok(modules_serve(folder, database, (const char(*)[HASH_HEX])ids[1], 1, err));
    assert_int_equal(entries("serving"), 2);
    assert_ok(modules_trim(folder, 1, &u, err));
    assert_true(has_file(ids[0]) && has_file(ids[1]));
    assert_false(has_file(ids[2]));
    age_lists(31); /* the list of an existing file stays, however old */
    assert_ok(modules_trim(folder, 1, &u, err));
    assert_int_equal(entries("serving"), 1);
    assert_false(has_file(ids[0]));
    assert_true(has_file(ids[1]));
}

static void test_limit_of_refusals(void **state)
{
    (void)state;
    struct image in = {.size = 0};
    struct error why = ERROR_NULL;
    struct modules_usage u;
    char path[PATH_MAX];
    const struct timespec then[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    strcpy(in.meta.variant, variant);
    error_set(&why, ERROR_COMPILE, "no");
    assert_ok(modules_put_refusal(folder, &in, &why, err));
    record_path(path);
    assert_int_equal(utimensat(AT_FDCWD, path, then, 0), 0);
    modules_count(folder, &u);
    assert_int_equal(u.refusals, 1);
    assert_int_equal(u.bytes, 4096);
    struct image out;
    assert_int_equal(modules_find(folder, variant, &out, &why), MODULES_REFUSED);
    assert_ok(modules_trim(folder, 100, &u, err));
    assert_int_equal(u.refusals, 1); /* the refusal was used just now */
    assert_int_equal(utimensat(AT_FDCWD, path, then, 0), 0);
    assert_ok(modules_trim(folder, 100, &u, err));
    assert_int_equal(u.refusals, 0);
    assert_int_equal(entries("records"), 0);
    modules_count("/nowhere", &u);
    assert_int_equal(u.bytes, 0);
    assert_ok(modules_trim("/nowhere", 1, &u, err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_put_and_find, setup, teardown),
        cmocka_unit_test_setup_teardown(test_link_moves, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_names, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_folder, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_folder_of_another_user_in_the_cache_is_refused,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_a_folder_of_the_cache_that_others_may_write_to_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_limited_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_race, setup, teardown),
        cmocka_unit_test_setup_teardown(test_record, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged_record, setup, teardown),
        cmocka_unit_test_setup_teardown(test_record_of_another_variant, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refusal, setup, teardown),
        cmocka_unit_test_setup_teardown(test_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_limit_of_databases_alike, setup, teardown),
        cmocka_unit_test_setup_teardown(test_limit_spares, setup, teardown),
        cmocka_unit_test_setup_teardown(test_limit_of_times_to_come, setup, teardown),
        cmocka_unit_test_setup_teardown(test_limit_ignores_files_that_are_no_lists, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_limit_of_refusals, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
