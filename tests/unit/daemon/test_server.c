/* SPDX-License-Identifier: Apache-2.0 */
/* The listening socket without memory for a new client: the linker's --wrap brings callocs here.
 * How much time of the event loop remains for other users while one user sends messages, or has
 * long work done in slices. The end of a session whose client left while gemmd did not read from
 * it. */
#include <sys/socket.h>
#include <sys/un.h>

#include "common.h"
#include "daemon/base/turns.h"
#include "daemon/session/server.h"

static unsigned refused; /* number of the next callocs that fail */

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

void *__wrap_calloc(size_t n, size_t size)
{
    if (refused > 0) {
        refused--;
        return NULL;
    }
    return __real_calloc(n, size);
}

static const uint8_t message[] = {0x94, 0, 1, 0xa1, 'a', 0x80};
static unsigned messages; /* handled; each, except a question, uses up its user's time */

/* A request that waits for its answer, and uses up its user's share of waiting requests. */
struct question {
    struct ticket ticket;
    struct session *session;
    size_t charged;
    bool gone;
};

static struct question questions[2]; /* outlive a failing test */
static struct question *asks;        /* the question that the next message asks; NULL: none */

struct fixture {
    uv_loop_t loop;
    struct turns turns;
    struct poller poller;
    struct server server;
    struct folder folder;
};

static bool on_known(void *ctx, struct session *s, const uint8_t *data, size_t n)
{
    (void)ctx, (void)s, (void)data, (void)n;
    return false;
}

static void charge_question(struct question *q, size_t n)
{
    struct session *s = q->session;
    if (account_charge(s->account, ACCOUNT_ASKED, &q->charged, n)) {
        sessions_poke_all(s->all, s->account);
    }
}

static void withdraw_question(struct ticket *t)
{
    struct question *q = LIST_OF(t, struct question, ticket);
    q->gone = true;
    charge_question(q, 0);
}

static void open_question(struct question *q, struct session *s)
{
    struct error err = ERROR_NULL;
    *q = (struct question){.session = s};
    assert_ok(ticket_open(&q->ticket, s, 1, withdraw_question, &err), &err);
    charge_question(q, 1);
}

static void answer_question(struct question *q)
{
    rpc_put_result(ticket_out(&q->ticket), 1);
    wire_put_nil(ticket_out(&q->ticket));
    ticket_close(&q->ticket);
    charge_question(q, 0);
}

static void on_message(void *ctx, struct session *s, const uint8_t *data, size_t n, bool again)
{
    (void)ctx, (void)data, (void)n, (void)again;
    messages++;
    if (asks) {
        open_question(asks, s);
        asks = NULL;
        return;
    }
    uint64_t until = uv_hrtime() + TURN_NS;
    while (uv_hrtime() <= until) {
    }
}

static int setup(void **state)
{
    static const struct session_hooks hooks = {.known = on_known, .message = on_message};
    static const struct session_limits limits = {
        .sessions = 8,
        .message_ms = 1000,
        .answer_ms = 1000,
        .user = {.connections = 8, .most = {[ACCOUNT_IN] = 1024, [ACCOUNT_OUT] = 1024}}};
    struct fixture *f = calloc(1, sizeof(*f));
    struct error err = ERROR_NULL;
    char path[96];
    f->folder = folder_make();
    snprintf(path, sizeof(path), "%s/s", f->folder.path);
    assert_int_equal(uv_loop_init(&f->loop), 0);
    turns_init(&f->turns, &f->loop);
    assert_ok(poller_init(&f->poller, &f->loop, &err), &err);
    assert_ok(server_lock(&f->server, path, "", false, &err), &err);
    assert_ok(server_start(&f->server, &f->turns, &f->poller, "", &limits, &hooks, f, -1, &err),
              &err);
    *state = f;
    return 0;
}

static void on_stopped(struct server *s)
{
    turns_close(&LIST_OF(s, struct fixture, server)->turns);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    refused = 0;
    server_stop(&f->server, on_stopped);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    server_deinit(&f->server);
    poller_deinit(&f->poller);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    folder_remove(&f->folder);
    free(f);
    return 0;
}

static int come(struct fixture *f)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    strcpy(at.sun_path, f->server.path);
    assert_int_equal(connect(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
    return fd;
}

static void turn(struct fixture *f)
{
    f->server.polled.ready(&f->server.polled, PEER_SENDS);
    for (int i = 0; i < 5; i++) {
        uv_run(&f->loop, UV_RUN_NOWAIT);
    }
}

/* Two callocs of the server fail. After a failure all clients' connections stay in the listening
 * socket's queue: the server accepts no connection until server_mend() tries again. */
static void a_client_that_finds_no_memory_waits(void **state)
{
    struct fixture *f = *state;
    struct error err = ERROR_NULL;
    int fds[3];
    refused = 2;
    for (int i = 0; i < 3; i++) {
        fds[i] = come(f);
        turn(f);
        assert_int_equal(f->server.sessions.n, 0);
    }
    /* only the first attempt failed: the server does not retry all the time */
    assert_int_equal(refused, 1);
    for (unsigned met = 0; met < 2; met++) {
        assert_ok(server_mend(&f->server, "", &err), &err);
        turn(f);
        assert_int_equal(f->server.sessions.n, met ? 3 : 0);
    }
    for (int i = 0; i < 3; i++) {
        close(fds[i]);
    }
}

static struct session *session_after(struct fixture *f, struct list *before)
{
    assert_ptr_not_equal(before->next, &f->server.sessions.all);
    return LIST_OF(before->next, struct session, link);
}

/* The loop's clock stands still at first: a user's time for one millisecond must serve for all
 * messages. */
static void a_user_whose_time_is_spent_waits_on_all_connections(void **state)
{
    struct fixture *f = *state;
    int fds[2] = {come(f), come(f)};
    turn(f);
    messages = 0;
    for (int i = 0; i < 20; i++) {
        assert_int_equal(write(fds[i % 2], message, sizeof(message)), sizeof(message));
    }
    struct session *one = session_after(f, &f->server.sessions.all);
    struct session *two = session_after(f, &one->link);
    one->polled.ready(&one->polled, PEER_SENDS);
    assert_int_equal(messages, 1);
    two->polled.ready(&two->polled, PEER_SENDS);
    assert_int_equal(messages, 1);
    for (int i = 0; i < 200 && messages < 20; i++) {
        unsigned before = messages;
        uv_run(&f->loop, UV_RUN_NOWAIT);
        assert_true(messages <= before + 1);
    }
    assert_int_equal(messages, 20);
    close(fds[0]);
    close(fds[1]);
}

/* Runs rounds of the loop until there are `some` messages and `n` sessions, then more rounds. */
static void turn_until(struct fixture *f, unsigned some, unsigned n)
{
    for (int i = 0; i < 1000 && (messages != some || f->server.sessions.n != n); i++) {
        uv_run(&f->loop, UV_RUN_NOWAIT);
        usleep(1000); /* a user's time on the loop is limited for each ms of the loop's clock */
    }
    turn(f);
    assert_int_equal(messages, some);
    assert_int_equal(f->server.sessions.n, n);
}

static int come_with(struct fixture *f, unsigned n)
{
    const int fd = come(f);
    turn(f);
    messages = 0;
    while (n-- > 0) {
        assert_int_equal(write(fd, message, sizeof(message)), sizeof(message));
    }
    return fd;
}

static void requests_of_an_unread_client_that_left_are_withdrawn(void **state)
{
    struct fixture *f = *state;
    struct question *q = &questions[0];
    const int fd = come_with(f, 2);
    struct session *s = session_after(f, &f->server.sessions.all);
    asks = q;
    s->polled.ready(&s->polled, PEER_SENDS);
    turn_until(f, 1, 1);
    close(fd);
    s->polled.ready(&s->polled, PEER_LEFT);
    turn_until(f, 1, 0);
    assert_true(q->gone);
}

static void requests_read_after_their_client_left_are_withdrawn(void **state)
{
    struct fixture *f = *state;
    struct question *q = &questions[0];
    close(come_with(f, 2));
    struct session *s = session_after(f, &f->server.sessions.all);
    asks = q;
    s->polled.ready(&s->polled, PEER_LEFT);
    turn_until(f, 1, 0);
    assert_true(q->gone);
}

static void who_only_stops_sending_is_read_from_and_answered_later(void **state)
{
    struct fixture *f = *state;
    struct question *first = &questions[0], *second = &questions[1];
    uint8_t answers[64];
    const int fd = come_with(f, 2);
    struct session *s = session_after(f, &f->server.sessions.all);
    asks = first;
    s->polled.ready(&s->polled, PEER_SENDS);
    shutdown(fd, SHUT_WR);
    s->polled.ready(&s->polled, PEER_SHUT);
    turn_until(f, 1, 1);
    asks = second;
    answer_question(first);
    turn_until(f, 2, 1);
    answer_question(second);
    turn_until(f, 2, 0);
    assert_int_equal(read(fd, answers, sizeof(answers)), 2 * 5);
    assert_int_equal(read(fd, answers, sizeof(answers)), 0);
    close(fd);
}

static void messages_sent_before_leaving_are_handled_in_the_users_next_turn(void **state)
{
    struct fixture *f = *state;
    struct question *q = &questions[0];
    const int stays = come_with(f, 1);
    struct session *one = session_after(f, &f->server.sessions.all);
    asks = q;
    one->polled.ready(&one->polled, PEER_SENDS);
    close(come_with(f, 2));
    struct session *two = session_after(f, &one->link);
    two->polled.ready(&two->polled, PEER_LEFT);
    turn_until(f, 0, 2);
    answer_question(q);
    turn_until(f, 2, 1);
    close(stays);
}

struct slices {
    struct chore chore; /* first member: its address is the struct's */
    struct turns *turns;
    unsigned done, all;
};

static void one_slice(struct chore *c)
{
    struct slices *x = (struct slices *)c;
    if (++x->done < x->all) {
        turns_chore(x->turns, c);
    }
}

static void users_take_turns_for_slices(void **state)
{
    enum { MANY = 50 };
    struct fixture *f = *state;
    uint64_t served[2] = {0};
    struct slices many[MANY], one = {.turns = &f->turns, .all = 3};
    for (int i = 0; i < MANY; i++) {
        many[i] = (struct slices){.turns = &f->turns, .all = 2};
        chore_init(&many[i].chore, one_slice, &served[0]);
        turns_chore(&f->turns, &many[i].chore);
    }
    chore_init(&one.chore, one_slice, &served[1]);
    turns_chore(&f->turns, &one.chore);
    for (int i = 0; i < 6; i++) {
        uv_run(&f->loop, UV_RUN_NOWAIT);
    }
    assert_int_equal(one.done, 3);
    for (int i = 0; i < 2 * MANY; i++) {
        uv_run(&f->loop, UV_RUN_NOWAIT);
    }
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(many[i].done, 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_client_that_finds_no_memory_waits, setup, teardown),
        cmocka_unit_test_setup_teardown(a_user_whose_time_is_spent_waits_on_all_connections, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(requests_of_an_unread_client_that_left_are_withdrawn, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(requests_read_after_their_client_left_are_withdrawn, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(who_only_stops_sending_is_read_from_and_answered_later,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(
            messages_sent_before_leaving_are_handled_in_the_users_next_turn, setup, teardown),
        cmocka_unit_test_setup_teardown(users_take_turns_for_slices, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
