/* SPDX-License-Identifier: Apache-2.0 */
/* Trusted paths (proto/trust.h). Tests that need another owner run only as root. */
#include <fcntl.h>
#include <ftw.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common.h"
#include "proto/trust.h"

enum { OTHER = 54321 };

static char base[64], joined[PATH_MAX], out[PATH_MAX];
static struct error err;

/* Replaces libc's list of users: a single user, with another user's primary group. */
static struct passwd stranger = {.pw_name = (char[]){"stranger"}, .pw_uid = OTHER};
static bool is_listed;
static int times_asked;

void setpwent(void)
{
    is_listed = stranger.pw_gid != 0;
    times_asked++;
}

struct passwd *getpwent(void)
{
    struct passwd *next = is_listed ? &stranger : NULL;
    is_listed = false;
    return next;
}

void endpwent(void)
{
    is_listed = false;
}

static const char *in_base(const char *path)
{
    snprintf(joined, sizeof(joined), "%s%s", base, path);
    return joined;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static int set_up(void **state)
{
    (void)state;
    err = ERROR_NULL;
    umask(022);
    strcpy(base, "/tmp/gemmd-trust-XXXXXX");
    return mkdtemp(base) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    int ours = seteuid(getuid());
    return ours ? ours : nftw(base, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void make_dir(const char *path, mode_t mode)
{
    assert_int_equal(mkdir(in_base(path), 0700), 0);
    assert_int_equal(chmod(in_base(path), mode), 0);
}

static void make_file(const char *path, mode_t mode)
{
    int fd = open(in_base(path), O_CREAT | O_EXCL | O_WRONLY, 0600);
    assert_true(fd >= 0);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static void make_link(const char *path, const char *target)
{
    assert_int_equal(symlink(target, in_base(path)), 0);
}

static void give_away(const char *path, uid_t user, gid_t group)
{
    assert_int_equal(lchown(in_base(path), user, group), 0);
}

static int folder(const char *path)
{
    return trust_folder(in_base(path), 0, 0, out, &err);
}

static int file(const char *path)
{
    return trust_file(in_base(path), 0, out, &err);
}

static int opened(const char *path, int flags)
{
    int fd;
    int r = trust_open(in_base(path), flags, 0600, &fd, &err);
    if (fd >= 0) {
        close(fd);
    }
    return r;
}

static void paths_are_resolved(void **state)
{
    (void)state;
    char expected[PATH_MAX];
    make_dir("/a", 0700);
    make_dir("/a/b", 0755);
    make_file("/a/b/f", 0644);
    make_link("/up", "a/../a/./b");
    snprintf(expected, sizeof(expected), "%s/up", base);
    make_link("/far", expected);
    make_link("/a/g", "b/f");
    make_link("/loop", "loop");
    snprintf(expected, sizeof(expected), "%s/a/b", base);
    assert_ok(err, folder("/a/b"));
    assert_ok(err, folder("/far//"));
    assert_string_equal(out, expected);
    strcat(expected, "/f");
    assert_ok(err, file("/far/f"));
    assert_string_equal(out, expected);
    assert_ok(err, file("/a/g"));
    assert_string_equal(out, expected);
    assert_int_equal(folder("/a/none"), TRUST_MISSING);
    assert_int_equal(file("/a/none"), TRUST_MISSING);
    assert_error(err, ERROR_IO, "/a/none is not there", file("/a/none/f"));
    assert_error(err, ERROR_IO, "not a directory", file("/a/b/f/g"));
    assert_error(err, ERROR_DENIED, "is a directory", file("/a/b"));
    assert_error(err, ERROR_IO, "too many symbolic links", folder("/loop"));
}

static void relative_paths_begin_here(void **state)
{
    (void)state;
    char here[PATH_MAX], expected[PATH_MAX];
    make_dir("/a", 0700);
    snprintf(expected, sizeof(expected), "%s/a", base);
    assert_non_null(getcwd(here, sizeof(here)));
    assert_int_equal(chdir(base), 0);
    assert_ok(err, trust_folder("a", 0, 0, out, &err));
    assert_string_equal(out, expected);
    int fd;
    assert_ok(err, trust_open("f", O_RDWR | O_CREAT, 0600, &fd, &err));
    close(fd);
    assert_int_equal(access(in_base("/f"), F_OK), 0);
    assert_int_equal(chdir(here), 0);
}

/* Other users may write to a folder above: they can replace a folder of the path. */
static void a_folder_above_that_others_may_write_to_is_refused(void **state)
{
    (void)state;
    make_dir("/open", 0777);
    make_dir("/open/mine", 0700);
    make_file("/open/mine/f", 0600);
    assert_error(err, ERROR_DENIED, "/open may be written to by others", folder("/open/mine"));
    assert_error(err, ERROR_DENIED, "chmod go-w", file("/open/mine/f"));
    assert_error(err, ERROR_DENIED, "(mode 0777)", opened("/open/mine/f", O_RDONLY));
    assert_int_equal(chmod(in_base("/open"), 01777), 0); /* as /tmp is */
    assert_ok(err, folder("/open/mine"));
    assert_ok(err, file("/open/mine/f"));
    make_file("/open/f", 0600);
    assert_error(err, ERROR_DENIED, "use a directory of your own", file("/open/f"));
    assert_ok(err, opened("/open/f", O_RDONLY)); /* an open file cannot be replaced in its folder */
    assert_ok(err, trust_folder(in_base("/open"), TRUST_SHARED, 0, NULL, &err));
}

static void parts_of_another_user_are_refused(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        skip();
    }
    make_dir("/his", 0755);
    make_dir("/his/mine", 0700);
    make_file("/his/mine/f", 0600);
    make_dir("/mine", 0700);
    make_file("/mine/his", 0644);
    make_link("/link", "mine");
    give_away("/his", OTHER, OTHER);
    give_away("/mine/his", OTHER, OTHER);
    give_away("/link", OTHER, OTHER);
    assert_error(err, ERROR_DENIED, "/his belongs to user 54321, not to us (0)", folder("/his"));
    assert_error(err, ERROR_DENIED, "belongs to user 54321", folder("/his/mine"));
    assert_error(err, ERROR_DENIED, "belongs to user 54321", file("/his/mine/f"));
    assert_error(err, ERROR_DENIED, "belongs to user 54321", opened("/his/mine/f", O_RDONLY));
    assert_error(err, ERROR_DENIED, "belongs to user 54321", file("/mine/his"));
    assert_error(err, ERROR_DENIED, "belongs to user 54321", opened("/mine/his", O_RDONLY));
    assert_error(err, ERROR_DENIED, "symbolic link of user 54321", folder("/link"));
}

static void roots_group_is_not_private(void **state)
{
    (void)state;
    make_dir("/home", 0775);
    if (geteuid() != 0) {
        skip();
    }
    assert_error(err, ERROR_DENIED, "/home may be written to by others", folder("/home"));
}

/* A system user with a group of the same name. */
static const struct passwd *user_with_group(const char *name)
{
    const struct passwd *user = getpwnam(name);
    const struct group *own = user ? getgrgid(user->pw_gid) : NULL;
    if (geteuid() != 0 || !own || strcmp(own->gr_name, user->pw_name) != 0 || own->gr_mem[0]) {
        skip();
    }
    return user;
}

static void a_private_group_counts_as_its_owner(void **state)
{
    (void)state;
    const struct passwd *user = user_with_group("daemon");
    make_dir("/home", 0775); /* the mode under a umask of 002 */
    make_file("/home/f", 0664);
    make_file("/home/shared", 0664);
    give_away("/home", user->pw_uid, user->pw_gid);
    give_away("/home/f", user->pw_uid, user->pw_gid);
    give_away("/home/shared", user->pw_uid, OTHER);
    assert_int_equal(chmod(base, 0755), 0);
    assert_int_equal(seteuid(user->pw_uid), 0);
    assert_ok(err, file("/home/f"));
    assert_ok(err, opened("/home/f", O_RDONLY));
    assert_error(err, ERROR_DENIED, "chmod go-w",
                 trust_folder(in_base("/home"), TRUST_STRICT, 0, NULL, &err));
    assert_error(err, ERROR_DENIED, "/home/shared may be written to by others",
                 file("/home/shared"));
}

/* The group's list of members does not name a user whose primary group it is. */
static void a_group_that_is_another_users_primary_group_is_not_private(void **state)
{
    (void)state;
    const struct passwd *user = user_with_group("bin");
    stranger.pw_gid = user->pw_gid;
    make_dir("/home", 0775);
    make_file("/home/f", 0664);
    give_away("/home", user->pw_uid, user->pw_gid);
    give_away("/home/f", user->pw_uid, user->pw_gid);
    assert_int_equal(chmod(base, 0755), 0);
    assert_int_equal(seteuid(user->pw_uid), 0);
    times_asked = 0;
    assert_error(err, ERROR_DENIED, "/home may be written to by others", folder("/home"));
    assert_error(err, ERROR_DENIED, "/home may be written to by others", file("/home/f"));
    /* the list of users is read once: a large site has many users */
    assert_int_equal(times_asked, 1);
    stranger.pw_gid = 0;
}

static void only_plain_files_are_opened_and_nothing_waits(void **state)
{
    (void)state;
    make_file("/f", 0600);
    make_link("/link", "f");
    assert_int_equal(mkfifo(in_base("/fifo"), 0600), 0);
    static const int ways[] = {O_RDONLY, O_WRONLY | O_CREAT, O_RDWR | O_CREAT};
    for (int i = 0; i < 3; i++) {
        assert_error(err, ERROR_DENIED, "no plain file; remove it", opened("/fifo", ways[i]));
        assert_error(err, ERROR_DENIED, "is a symbolic link; remove it", opened("/link", ways[i]));
    }
    assert_error(err, ERROR_DENIED, "no plain file", file("/fifo"));
    assert_int_equal(opened("/none", O_RDONLY), TRUST_MISSING);
    assert_int_equal(opened("/none/f", O_RDONLY), TRUST_MISSING);
    assert_error(err, ERROR_IO, "No such file", opened("/none/f", O_WRONLY | O_CREAT));
    assert_error(err, ERROR_INVALID, "names no file", opened("/", O_RDONLY));
}

static void a_file_with_two_names_is_not_written_to(void **state)
{
    (void)state;
    char first[PATH_MAX];
    make_file("/f", 0600);
    snprintf(first, sizeof(first), "%s/f", base);
    assert_int_equal(link(first, in_base("/g")), 0);
    assert_ok(err, opened("/g", O_RDONLY));
    assert_error(err, ERROR_DENIED, "also another file's name", opened("/g", O_WRONLY | O_CREAT));
}

static void a_file_of_ours_is_closed_to_others(void **state)
{
    (void)state;
    struct stat st;
    make_file("/f", 0666);
    assert_error(err, ERROR_DENIED, "may be written to by others", opened("/f", O_RDONLY));
    assert_ok(err, opened("/f", O_RDWR | O_CREAT));
    assert_int_equal(stat(in_base("/f"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
}

/* The file is closed to other users for any requested mode. Otherwise a later call would refuse
 * the file, which would stay. */
static void a_file_that_is_made_is_closed_to_others_under_any_umask(void **state)
{
    (void)state;
    struct stat st;
    static const mode_t masks[] = {0, 002, 022, 077}, left[] = {0644, 0644, 0644, 0600};
    for (int i = 0; i < 4; i++) {
        int fd = -1;
        umask(masks[i]);
        assert_ok(err, trust_open(in_base("/f"), O_WRONLY | O_CREAT, 0666, &fd, &err));
        assert_int_equal(fstat(fd, &st), 0);
        assert_int_equal(st.st_mode & 07777, left[i]);
        close(fd);
        assert_int_equal(unlink(in_base("/f")), 0);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(paths_are_resolved),
        TEST(relative_paths_begin_here),
        TEST(a_folder_above_that_others_may_write_to_is_refused),
        TEST(parts_of_another_user_are_refused),
        TEST(roots_group_is_not_private),
        TEST(a_private_group_counts_as_its_owner),
        TEST(a_group_that_is_another_users_primary_group_is_not_private),
        TEST(only_plain_files_are_opened_and_nothing_waits),
        TEST(a_file_with_two_names_is_not_written_to),
        TEST(a_file_of_ours_is_closed_to_others),
        TEST(a_file_that_is_made_is_closed_to_others_under_any_umask),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
