/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A training job's view, through gemmd.h alone. Each program prints a line of JSON.
 *
 *   job table SOCKET PROBLEMS ROUNDS    ns of a gemmd_get that libgemmd answers from its table of
 *                                       answers already received;
 *   job many SOCKET PROBLEMS ROUNDS     ms of one gemmd_get_many of all problems, no answer from
 *                                       this table;
 *   job storm SOCKET PROCESSES QUERIES  PROCESSES processes connect and ask at once.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/gemmd.h"
#include "tests/bench/serving/problems.h"
#include "tests/bench/serving/socket.h"

static struct gemmd *open_gemmd(const char *socket)
{
    struct gemmd_options o = GEMMD_OPTIONS_INIT;
    struct gemmd_error err;
    struct gemmd *g;
    o.socket = socket;
    o.deadline_ms = 30000;
    if (gemmd_connect(&g, &o, &err)) {
        die("%s", err.text);
    }
    return g;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof(*v), by_value);
    return v[n / 2];
}

static struct gemmd_problem *problems_new(int n)
{
    struct gemmd_problem *p = malloc((size_t)n * sizeof(*p));
    int *order = bench_order(n);
    for (int i = 0; p && order && i < n; i++) {
        p[i] = bench_problem(order[i]);
    }
    free(order);
    if (!p) {
        die("no memory");
    }
    return p;
}

/* ---- table ----------------------------------------------------------------------------------- */

/* Returns nanoseconds per gemmd_get; *asked counts the answers that came from gemmd. */
static double table_round(struct gemmd *g, const struct gemmd_problem *p, int n, int *asked)
{
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_error err;
    double began = now_us();
    for (int i = 0; i < n; i++) {
        if (gemmd_get(g, &p[i], NULL, &a, &err)) {
            die("%s", err.text);
        }
        *asked += !a.local;
    }
    return (now_us() - began) * 1e3 / n;
}

static void table(const char *socket, int n, int rounds)
{
    struct gemmd *g = open_gemmd(socket);
    struct gemmd_problem *p = problems_new(n);
    double *ns = calloc((size_t)rounds, sizeof(*ns));
    int first = 0, again = 0;
    table_round(g, p, n, &first);
    for (int i = 0; ns && i < rounds; i++) {
        ns[i] = table_round(g, p, n, &again);
    }
    printf("{\"ns\": %.1f, \"problems\": %d, \"asked_first\": %d, \"asked_again\": %d}\n",
           ns ? median(ns, rounds) : 0, n, first, again);
    free(ns);
    free(p);
    gemmd_close(g);
}

/* ---- many ------------------------------------------------------------------------------------ */

static void many_check(const struct gemmd_answer *answers, const int *statuses, int n)
{
    int *order = bench_order(n);
    for (int i = 0; order && i < n; i++) {
        if (statuses[i] || strcmp(answers[i].tier, "exact") != 0 ||
            answers[i].time_us != bench_time_us(order[i])) {
            die("problem %d has another answer than the one it was given", order[i]);
        }
    }
    free(order);
}

static void many(const char *socket, int n, int rounds)
{
    struct gemmd *g = open_gemmd(socket);
    struct gemmd_problem *p = problems_new(n);
    struct gemmd_answer *answers = calloc((size_t)n, sizeof(*answers));
    int *statuses = calloc((size_t)n, sizeof(*statuses));
    double *ms = calloc((size_t)rounds, sizeof(*ms));
    struct gemmd_query q = GEMMD_QUERY_INIT;
    struct gemmd_error err;
    q.flags = GEMMD_NO_TABLE;
    q.wait = GEMMD_WAIT_CACHED;
    if (!answers || !statuses || !ms) {
        die("no memory");
    }
    for (int round = -1; round < rounds;
         round++) { /* the first round warms caches and is not timed */
        for (int i = 0; i < n; i++) {
            answers[i] = (struct gemmd_answer)GEMMD_ANSWER_INIT;
        }
        double began = now_us();
        if (gemmd_get_many(g, p, (size_t)n, &q, answers, statuses, &err)) {
            die("%s", err.text);
        }
        ms[round < 0 ? 0 : round] = (now_us() - began) * 1e-3;
        many_check(answers, statuses, n);
    }
    printf("{\"ms\": %.3f, \"problems\": %d}\n", median(ms, rounds), n);
    free(ms);
    free(statuses);
    free(answers);
    free(p);
    gemmd_close(g);
}

/* ---- storm ----------------------------------------------------------------------------------- */

/* Runs in a child process. Returns 0 when all queries were answered; prints the first failure. */
static int storm_child(const char *socket, int queries, int seed)
{
    struct gemmd_options o = GEMMD_OPTIONS_INIT;
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_query q = GEMMD_QUERY_INIT;
    struct gemmd_error err;
    struct gemmd *g;
    o.socket = socket;
    q.flags = GEMMD_NO_TABLE;
    q.wait = GEMMD_WAIT_CACHED;
    if (gemmd_connect(&g, &o, &err)) {
        fprintf(stderr, "connecting: %s\n", err.text);
        return 1;
    }
    for (int i = 0; i < queries; i++) {
        int number = (seed * 7 + i) % 100;
        struct gemmd_problem p = bench_problem(number);
        if (gemmd_get(g, &p, &q, &a, &err) || strcmp(a.tier, "exact") != 0 ||
            a.time_us != bench_time_us(number)) {
            fprintf(stderr, "query %d: %s\n", i, err.code ? err.text : "a wrong answer");
            return 1;
        }
    }
    return 0;
}

static void storm(const char *socket, int processes, int queries)
{
    int gate[2], failed = 0, status;
    if (pipe(gate) < 0) {
        die("pipe: %s", strerror(errno));
    }
    for (int i = 0; i < processes; i++) {
        pid_t pid = fork();
        if (pid < 0) {
            die("fork: %s", strerror(errno));
        }
        if (pid == 0) {
            char c;
            close(gate[1]);
            if (read(gate[0], &c, 1) < 0) { /* waits until the parent closes its end of the pipe */
                _exit(1);
            }
            _exit(storm_child(socket, queries, i));
        }
    }
    close(gate[0]);
    double began = now_us();
    close(gate[1]);
    for (int i = 0; i < processes; i++) {
        if (wait(&status) < 0) {
            die("wait: %s", strerror(errno));
        }
        failed += status != 0;
    }
    printf("{\"processes\": %d, \"queries\": %d, \"failed\": %d, \"ms\": %.1f}\n", processes,
           queries, failed, (now_us() - began) * 1e-3);
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: job table|many SOCKET PROBLEMS ROUNDS\n"
                        "       job storm SOCKET PROCESSES QUERIES\n");
        return 2;
    }
    int a = atoi(argv[3]), b = atoi(argv[4]);
    if (strcmp(argv[1], "table") == 0) {
        table(argv[2], a, b);
    } else if (strcmp(argv[1], "many") == 0) {
        many(argv[2], a, b);
    } else {
        storm(argv[2], a, b);
    }
    return 0;
}
