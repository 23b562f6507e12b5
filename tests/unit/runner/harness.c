/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/family.h"
#include "runner/runner.h"

/* ---- folders --------------------------------------------------------------------------------- */

/* The folder is in memory if possible: a search makes thousands of files, which take longer on a
 * disk than the search itself. */
static const char *folder_pattern(void)
{
    struct statvfs s;
    const bool room = access("/dev/shm", W_OK) == 0 && statvfs("/dev/shm", &s) == 0 &&
                      s.f_bavail * s.f_frsize >= UINT64_C(1) << 30;
    return room ? "/dev/shm/gemmd-runner-XXXXXX" : "/tmp/gemmd-runner-XXXXXX";
}

char *folder_make(void)
{
    char *path = strdup(folder_pattern());
    assert_non_null(mkdtemp(path));
    return path;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
    (void)st;
    (void)type;
    (void)f;
    return remove(path);
}

void folder_remove(char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(path);
}

const char *folder_file(const char *folder, const char *name, const char *content)
{
    static char path[512];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(content, 1, strlen(content), f), strlen(content));
    fclose(f);
    return path;
}

/* ---- the child ------------------------------------------------------------------------------- */

static void run_child(int fd, const char *device, const char *cache, const char *const args[])
{
    char number[16];
    char *argv[32] = {(char *)"gemmd-runner", (char *)"--fd", number,
                      (char *)"--device",     (char *)device, (char *)"--cache-dir",
                      (char *)cache};
    int argc = 7;
    snprintf(number, sizeof(number), "%d", fd);
    for (; args && *args; args++) {
        argv[argc++] = (char *)*args;
    }
    for (int s = 1; s < NSIG; s++) { /* the child must not run cmocka's signal handlers */
        signal(s, SIG_DFL);
    }
    _exit(runner_main(argc, argv));
}

void child_start(struct child *c, const char *device, const char *cache, const char *const args[])
{
    int ends[2];
    struct error err;
    memset(c, 0, sizeof(*c));
    c->trials = calloc(SEEN_MAX, sizeof(*c->trials));
    c->modules = calloc(SEEN_MAX, sizeof(*c->modules));
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    c->pid = fork();
    assert_true(c->pid >= 0);
    if (c->pid == 0) {
        close(ends[0]);
        run_child(ends[1], device, cache, args);
    }
    close(ends[1]);
    families_register();
    assert_int_equal(channel_init(&c->channel, ends[0], &err), 0);
}

int child_ended(struct child *c)
{
    int status;
    assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
    close(c->channel.fd);
    wire_doc_free(c->channel.doc);
    wire_buf_deinit(&c->channel.in);
    wire_buf_deinit(&c->channel.out);
    free(c->trials);
    free(c->modules);
    return status;
}

int child_end(struct child *c)
{
    shutdown(c->channel.fd, SHUT_RDWR);
    return child_ended(c);
}

/* ---- reading --------------------------------------------------------------------------------- */

static void decode(const struct schema *s, const struct wire_obj *map, void *out)
{
    struct error err = ERROR_NULL;
    if (schema_decode(s, SCHEMA_LENIENT, map, out, &err)) {
        fail_msg("%s: %s", s->name, err.text);
    }
}

static void on_trial(struct child *c, const struct wire_obj *params)
{
    c->n_trials = c->last_trial_only ? 0 : c->n_trials;
    assert_true(c->n_trials < SEEN_MAX);
    struct trial *t = &c->trials[c->n_trials++];
    decode(&trial_schema, params, t);
    int64_t job = 0;
    assert_true(wire_get_int(wire_find(params, "job"), &job) && job > 0);
    for (uint32_t i = 0; i < c->n_modules; i++) {
        if (strcmp(c->modules[i].id, t->module) == 0) {
            c->module_before_trial++;
            break;
        }
    }
}

static void on_attempt(struct child *c, const struct wire_obj *params)
{
    static const char *const stages[] = {"prepare", "compile", "load", "verify", "time"};
    decode(&attempt_schema, params, &c->last);
    c->n_attempts++;
    for (int i = 0; i < 5; i++) {
        c->attempted[i] |= strcmp(c->last.stage, stages[i]) == 0;
    }
}

static void on_notify(struct child *c, const struct rpc_message *m)
{
    if (strcmp(m->method, "hello") == 0) {
        decode(&runner_hello_schema, m->params, &c->hello);
        c->has_hello = true;
    } else if (strcmp(m->method, "device") == 0) {
        decode(&device_info_schema, m->params, &c->device);
        c->has_device = true;
    } else if (strcmp(m->method, "attempt") == 0) {
        on_attempt(c, m->params);
    } else if (strcmp(m->method, "trial") == 0) {
        on_trial(c, m->params);
    } else if (strcmp(m->method, "module") == 0) {
        assert_true(c->n_modules < SEEN_MAX);
        decode(&module_schema, m->params, &c->modules[c->n_modules++]);
    } else if (strcmp(m->method, "progress") == 0) {
        decode(&progress_schema, m->params, &c->progress);
        c->n_progress++;
    } else if (strcmp(m->method, "bye") == 0) {
        c->bye = true;
    } else {
        fail_msg("unknown notification %s", m->method);
    }
}

static void on_response(struct child *c, const struct rpc_message *m)
{
    c->answered = true;
    c->error = ERROR_NULL;
    if (m->error) {
        rpc_get_error(m->error, &c->error);
    } else if (wire_type_of(m->result) == WIRE_MAP) {
        decode(&tune_result_schema, m->result, &c->result);
    }
}

bool child_read(struct child *c)
{
    struct rpc_message m;
    struct error err = ERROR_NULL;
    int r;
    while ((r = channel_receive(&c->channel, &m, &err)) == CHANNEL_NOTHING) {
        if (c->channel.gone) {
            return false;
        }
        if (!channel_wait(&c->channel, -1, 60000)) {
            kill(c->pid, SIGKILL);
            fail_msg("the runner said nothing for 60 s");
        }
    }
    if (r < 0) {
        fail_msg("%s", err.text);
    }
    assert_true(c->has_hello || strcmp(m.method, "hello") == 0);
    if (m.type == RPC_NOTIFY) {
        on_notify(c, &m);
    } else {
        on_response(c, &m);
    }
    return true;
}

void child_wait(struct child *c)
{
    c->answered = false;
    while (!c->answered && child_read(c)) {
    }
}

void child_forget(struct child *c)
{
    c->n_trials = c->n_modules = c->n_attempts = c->n_progress = c->module_before_trial = 0;
    memset(c->attempted, 0, sizeof(c->attempted));
}

/* ---- sending --------------------------------------------------------------------------------- */

static void put_of_job(struct child *c, const char *method, int64_t job)
{
    rpc_put_notify(&c->channel.out, method);
    wire_put_map(&c->channel.out, 1);
    wire_put_kv_int(&c->channel.out, "job", job);
}

void child_send_cancel(struct child *c, int64_t job)
{
    put_of_job(c, "cancel", job);
    channel_send(&c->channel);
}

void child_send_ping(struct child *c, uint32_t id)
{
    rpc_put_request(&c->channel.out, id, "ping");
    wire_put_map(&c->channel.out, 0);
    channel_send(&c->channel);
}

void child_send_raw(struct child *c, const void *bytes, size_t n)
{
    wire_put_raw(&c->channel.out, bytes, n);
    channel_send(&c->channel);
}

static void put_order(struct child *c, const struct tune_order *o)
{
    rpc_put_request(&c->channel.out, 7, "tune");
    tune_order_pack(&c->channel.out, o);
}

void child_send_order(struct child *c, const struct tune_order *o)
{
    put_order(c, o);
    channel_send(&c->channel);
}

void child_send_contended(struct child *c, const struct tune_order *o)
{
    put_order(c, o);
    put_of_job(c, "others_wait", o->job);
    channel_send(&c->channel);
}

void child_tune(struct child *c, const struct tune_order *o)
{
    child_send_order(c, o);
    child_wait(c);
}

/* ---- orders ---------------------------------------------------------------------------------- */

struct tune_order *order_new(const char *problem)
{
    struct tune_order *o = calloc(1, sizeof(*o));
    struct error err = ERROR_NULL;
    families_register();
    if (problem_parse(&o->request.problem, problem, &err)) {
        fail_msg("%s", err.text);
    }
    o->job = 1;
    snprintf(o->key, sizeof(o->key), "%s", "00112233445566778899aabbccddeeff");
    snprintf(o->stamp, sizeof(o->stamp), "test");
    struct query *q = &o->request.query;
    snprintf(q->wait, sizeof(q->wait), "tuned");
    snprintf(q->strategy, sizeof(q->strategy), "ranked");
    q->atol = q->rtol = 1e-2;
    q->seed = 3;
    return o;
}

void order_free(struct tune_order *o)
{
    tune_order_deinit(o);
    free(o);
}

void order_restrict(struct tune_order *o, const char *name, int64_t value)
{
    struct request *r = &o->request;
    r->restrict_ = realloc(r->restrict_, (r->n_restrict + 1) * sizeof(*r->restrict_));
    struct restriction *x = &r->restrict_[r->n_restrict++];
    memset(x, 0, sizeof(*x));
    snprintf(x->name, sizeof(x->name), "%s", name);
    x->n = 1;
    x->values[0] = VALUE_OF_INT(value);
}

static void add_record(struct record **list, uint32_t *n, const char *config)
{
    struct error err = ERROR_NULL;
    *list = realloc(*list, (*n + 1) * sizeof(**list));
    if (record_parse(&(*list)[(*n)++], config, &err)) {
        fail_msg("%s", err.text);
    }
}

void order_given(struct tune_order *o, const char *config)
{
    snprintf(o->request.query.strategy, sizeof(o->request.query.strategy), "given");
    add_record(&o->request.configs, &o->request.n_configs, config);
}

void order_hint(struct tune_order *o, const char *config)
{
    add_record(&o->hints, &o->n_hints, config);
}

void order_avoid(struct tune_order *o, const char *variant)
{
    o->avoid = realloc(o->avoid, (o->n_avoid + 1) * sizeof(*o->avoid));
    snprintf(o->avoid[o->n_avoid++], HASH_HEX, "%s", variant);
}

void order_done(struct tune_order *o, const struct trial *trials, uint32_t n)
{
    o->done = malloc(n * sizeof(*o->done));
    memcpy(o->done, trials, n * sizeof(*o->done));
    o->n_done = n;
}

/* ---- looking --------------------------------------------------------------------------------- */

const struct trial *find_trial(const struct child *c, const struct record *config,
                               const char *stage)
{
    for (uint32_t i = 0; i < c->n_trials; i++) {
        if (record_equal(&c->trials[i].config, config) &&
            (!stage || strcmp(c->trials[i].stage, stage) == 0)) {
            return &c->trials[i];
        }
    }
    return NULL;
}

uint32_t count_trials(const struct child *c, const char *stage, const char *status)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n_trials; i++) {
        n += (!stage || strcmp(c->trials[i].stage, stage) == 0) &&
             (!status || strcmp(c->trials[i].status, status) == 0);
    }
    return n;
}
