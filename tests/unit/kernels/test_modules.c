/* SPDX-License-Identifier: Apache-2.0 */
/* Modules on disk: found by variant and by content, not believed when damaged, written aside. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sys/stat.h>

#include "proto/hash.h"
#include "tests/unit/kernels/common.h"

static const char variant[] = "00112233445566778899aabbccddeeff";
static char folder[64];

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

static void test_put_and_find(void **state)
{
    (void)state;
    struct image in = image_of("content"), out;
    char id[HASH_HEX];
    assert_int_equal(modules_find(folder, variant, &out, NULL), MODULES_MISS);
    assert_int_equal(modules_get(folder, variant, &out, NULL), MODULES_MISS);
    assert_ok(modules_put(folder, &in, "so", err));
    hash128_hex("content", 7, id);
    assert_string_equal(in.meta.id, id);
    assert_int_equal(in.meta.size, 7);
    assert_ok(modules_put(folder, &in, "so", err)); /* again: the same */
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

    assert_ok(modules_remove(folder, id, err));
    assert_int_equal(modules_remove(folder, id, NULL), MODULES_MISS);
    assert_int_equal(modules_find(folder, variant, &out, NULL), MODULES_MISS);
    assert_int_equal(entries("variants"), 0); /* the dangling link is gone too */
    image_deinit(&in);
}

/* A variant that is compiled again may give another image: the link moves. */
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
            assert_int_equal(entries("modules"), 0); /* so the next compile writes it again */
            assert_ok(modules_put(folder, &in, "so", err));
            assert_ok(modules_find(folder, variant, &out, err));
            image_deinit(&out);
            assert_ok(modules_remove(folder, in.meta.id, err));
            image_deinit(&in);
        }
    }
}

/* Names that come over the wire: nothing but 32 hex digits reaches the file system. */
static void test_bad_names(void **state)
{
    (void)state;
    struct image out;
    assert_fails(modules_get(folder, "../../etc/passwd", &out, err), ERROR_INVALID,
                 "32 hex digits");
    assert_fails(modules_remove(folder, "", err), ERROR_INVALID, "32 hex digits");
    char path[PATH_MAX + 64];
    snprintf(path, sizeof(path), "%s/variants", folder);
    mkdir(path, 0755);
    snprintf(path, sizeof(path), "%s/variants/%s", folder, variant);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_int_equal(modules_find(folder, variant, &out, NULL), MODULES_MISS);
    assert_int_equal(entries("variants"), 0);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_put_and_find, setup, teardown),
        cmocka_unit_test_setup_teardown(test_link_moves, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_names, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_folder, setup, teardown),
        cmocka_unit_test_setup_teardown(test_race, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
