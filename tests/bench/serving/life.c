/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures gemmd's start, and the memory of idle connections. Each command prints a line of JSON.
 *
 *   life start SOCKET PROBLEM GEMMD OPTION...   ms from exec to the first hello, to the right
 *                                               answer to PROBLEM, to the end of loading; then
 *                                               stops gemmd
 *   life idle SOCKET COUNT PID                  opens COUNT connections; KiB of memory that process
 *                                               PID uses for each
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/gemmd.h"
#include "tests/bench/serving/problems.h"
#include "tests/bench/serving/socket.h"

/* NULL: no daemon answers. */
static struct gemmd *connected(const char *socket)
{
    struct gemmd_options o = GEMMD_OPTIONS_INIT;
    struct gemmd_error err;
    struct gemmd *g;
    o.socket = socket;
    return gemmd_connect(&g, &o, &err) ? NULL : g;
}

static void check_answer(struct gemmd *g, int problem)
{
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_query q = GEMMD_QUERY_INIT;
    struct gemmd_error err;
    q.wait = GEMMD_WAIT_CACHED;
    struct gemmd_problem p = bench_problem(problem);
    int r = gemmd_get(g, &p, &q, &a, &err);
    gemmd_close(g);
    if (r || strcmp(a.tier, "exact") != 0 || a.time_us != bench_time_us(problem)) {
        die("problem %d: %s", problem, r ? err.text : "another answer than the one it was given");
    }
}

static double cpu_ms(pid_t pid)
{
    char path[64], text[512] = "";
    unsigned long user = 0, kernel = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (f) {
        size_t n = fread(text, 1, sizeof(text) - 1, f);
        text[n] = 0;
        fclose(f);
    }
    const char *at = strrchr(text, ')');
    if (!at || sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                      &kernel) != 2) {
        die("%s cannot be read", path);
    }
    return (double)(user + kernel) * 1e3 / (double)sysconf(_SC_CLK_TCK);
}

/* Waits until the process `pid` has used no CPU time for 0.3 s. Returns the ms from `began` (us) to
 * the last use. */
static double wait_quiet(pid_t pid, double began)
{
    double quiet_since = now_us(), last = cpu_ms(pid);
    while (now_us() - quiet_since < 300e3) {
        usleep(20000);
        double cpu = cpu_ms(pid);
        if (cpu > last) {
            quiet_since = now_us();
        }
        last = cpu;
    }
    return (quiet_since - began) * 1e-3;
}

static void start(const char *socket, int problem, char **command)
{
    double began = now_us();
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 2);
        execv(command[0], command);
        _exit(127);
    }
    struct gemmd *g;
    while (access(socket, F_OK) < 0 || !(g = connected(socket))) {
        usleep(500);
        if (waitpid(pid, NULL, WNOHANG) == pid || now_us() - began > 60e6) {
            die("gemmd did not start");
        }
    }
    double ready_ms = (now_us() - began) * 1e-3;
    check_answer(g, problem);
    double first_ms = (now_us() - began) * 1e-3;
    double loaded_ms = wait_quiet(pid, began);
    kill(pid, SIGTERM);
    waitpid(pid, NULL, 0);
    printf("{\"ready_ms\": %.1f, \"first_ms\": %.1f, \"quiet_ms\": %.1f}\n", ready_ms, first_ms,
           loaded_ms);
}

/* Returns the memory of a process in KiB, from a field of /proc/PID/status. */
static long memory_kib(int pid)
{
    char path[64], line[256];
    long kib = -1;
    snprintf(path, sizeof(path), "/proc/%d/status", pid);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f)) {
        sscanf(line, "VmRSS: %ld", &kib);
    }
    if (f) {
        fclose(f);
    }
    return kib;
}

static void idle(const char *socket, int count, int pid)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < (rlim_t)count + 32) {
        files.rlim_cur = files.rlim_max < (rlim_t)count + 32 ? files.rlim_max : (rlim_t)count + 32;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    int *fds = calloc((size_t)count, sizeof(*fds));
    static const uint8_t hello[] = {0x94, 0, 1, 0xa5, 'h', 'e', 'l', 'l', 'o', 0x90};
    long before = memory_kib(pid);
    double began = now_us();
    uint8_t reply[4096];
    int refused = 0;
    for (int i = 0; fds && i < count; i++) {
        fds[i] = socket_connect(socket);
        socket_write(fds[i], hello, sizeof(hello));
        ssize_t n = read(fds[i], reply, sizeof(reply));
        refused += n < 4 || reply[3] != 0xc0; /* [1, 1, nil, ...] */
    }
    double ms = (now_us() - began) * 1e-3;
    long after = memory_kib(pid);
    struct gemmd *g = connected(socket);
    bool served = g != NULL;
    if (g) {
        check_answer(g, 1);
    }
    printf("{\"connections\": %d, \"refused\": %d, \"served\": %s, \"connect_ms\": %.1f, "
           "\"rss_before_kib\": %ld, \"rss_kib\": %ld, \"bytes_each\": %.0f}\n",
           count, refused, served ? "true" : "false", ms, before, after,
           (double)(after - before) * 1024 / count);
    free(fds);
}

int main(int argc, char **argv)
{
    if (argc >= 5 && strcmp(argv[1], "start") == 0) {
        start(argv[2], atoi(argv[3]), argv + 4);
    } else if (argc == 5 && strcmp(argv[1], "idle") == 0) {
        idle(argv[2], atoi(argv[3]), atoi(argv[4]));
    } else {
        fprintf(stderr, "usage: life start SOCKET PROBLEM GEMMD OPTION...\n"
                        "       life idle SOCKET COUNT PID\n");
        return 2;
    }
    return 0;
}
