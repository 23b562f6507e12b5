/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accesses of a cluster's threads to shared memory of other thread blocks, and to their own by the
 * same instructions:
 *
 *   mapa                    the address of the same byte in another thread block of the cluster.
 *   st.async                bytes that arrive later, in no order with the thread's other work. An
 *                           mbarrier counts the bytes. A thread sees the bytes after a wait for
 *                           this mbarrier with acquire at the cluster's scope (cluster_wait).
 *   mbarrier.arrive         (shared::cluster) an arrival, which may come before bytes that the
 *                           same thread sent earlier. With expect_tx it announces bytes, and may
 *                           come before or after these bytes.
 *   barrier.cluster         all threads of all thread blocks. Arrivals are relaxed: bytes under
 *                           way may arrive after the barrier.
 *
 * A thread block's shared memory exists while it has running threads. barrier.cluster tells another
 * thread that they run; with a fence it also tells that mbarriers are initialised. Faults, even if
 * the result is right: a message to a thread block that has ended or has no mbarrier yet, or
 * outside its shared memory; bytes for a place that has other bytes under way, or that a thread
 * reads or writes before they arrive.
 */
#ifndef GEMMD_TESTS_EMULATE_CLUSTER_H
#define GEMMD_TESTS_EMULATE_CLUSTER_H

#include "tests/unit/cuda/emulate/async.h"
#include "tests/unit/cuda/emulate/mbarrier.h"

enum { EMULATE_SENT_MAX = 1 << 16, EMULATE_WORD = 4 };

struct emulate_sent {
    struct emulate_mbarrier *bar;
    uint32_t expects;   /* arrive.expect_tx: the phase also waits for this many more bytes */
    uint32_t to, bytes; /* 0 bytes: the message is an arrival */
    int from;           /* rank of the sending thread block */
    uint32_t v[4];
};

static struct {
    struct emulate_sent sent[EMULATE_SENT_MAX]; /* messages under way, in no order */
    uint32_t n, laziness; /* in each round a message arrives with a chance of 1 in `laziness` */
    uint8_t is_due[EMULATE_BLOCKS * EMULATE_SHARED_MAX / EMULATE_WORD];
    struct emulate_meeting barrier; /* barrier.cluster; thread i has arrived arrivals[i] times */
    uint32_t arrivals[EMULATE_THREADS_MAX];
} cluster_;

static void cluster_begin(void)
{
    cluster_.n = 0;
    cluster_.laziness = emulate.blocks > 1 ? (uint32_t[]){1, 2, 8, 40}[emulate_random() % 4] : 1;
    memset(cluster_.is_due, 0, (size_t)emulate.blocks * EMULATE_SHARED_MAX / EMULATE_WORD);
    memset(&cluster_.barrier, 0, sizeof(cluster_.barrier));
    memset(cluster_.arrivals, 0, sizeof(cluster_.arrivals));
}

/* ---- sending -------------------------------------------------------------------------------- */

static uint32_t cluster_rank(void)
{
    return (uint32_t)emulate_rank();
}

static uint32_t cluster_size(void)
{
    return (uint32_t)emulate.blocks;
}

static uint32_t divide_by_size(uint32_t v)
{
    return v / (uint32_t)emulate.blocks;
}

static uint32_t cluster_address(uint32_t at, uint32_t rank)
{
    if (at / EMULATE_SHARED_MAX != cluster_rank() || rank >= cluster_size()) {
        emulate_fail("where %u is in block %u of %u", at, rank, cluster_size());
    }
    return at % EMULATE_SHARED_MAX + rank * EMULATE_SHARED_MAX;
}

/* True: bytes from another thread block are under way to this place in shared memory. */
static int cluster_is_due(uint32_t at, uint32_t bytes)
{
    int any = 0;
    for (uint32_t i = 0; i < bytes; i += EMULATE_WORD) {
        any |= cluster_.is_due[(at + i) / EMULATE_WORD];
    }
    return any;
}

static void cluster_must_have_come(uint32_t at, uint32_t bytes, const char *what)
{
    if (cluster_is_due(at, bytes)) {
        emulate_fail("%s at %u before what the cluster sends there has come", what, at);
    }
}

static struct emulate_sent *cluster_send(uint32_t to, uint32_t bar)
{
    async_check_place(to, bar);
    if (cluster_.n == EMULATE_SENT_MAX) {
        emulate_fail("more is on its way than there is room for");
    }
    struct emulate_sent *s = &cluster_.sent[cluster_.n++];
    *s = (struct emulate_sent){.bar = mbarrier_announced(bar), .from = emulate_rank()};
    return s;
}

static void cluster_send_arrival(uint32_t bar, uint32_t expects)
{
    cluster_send(bar, bar)->expects = expects;
    emulate_linger(EMULATE_LINGER_CHANCE, EMULATE_LINGER_MOST);
}

static void cluster_send_bytes(uint32_t to, const uint32_t *v, uint32_t bytes, uint32_t bar)
{
    struct emulate_sent *s = cluster_send(to, bar);
    if (to % bytes || to % EMULATE_SHARED_MAX + bytes > emulate.l.shared_bytes) {
        emulate_fail("sends %u bytes to %u of %u of another block's", bytes,
                     to % EMULATE_SHARED_MAX, emulate.l.shared_bytes);
    }
    cluster_must_have_come(to, bytes, "bytes");
    memset(&cluster_.is_due[to / EMULATE_WORD], 1, bytes / EMULATE_WORD);
    s->to = to;
    s->bytes = bytes;
    memcpy(s->v, v, bytes);
}

static void cluster_arrive_read(uint32_t bar)
{
    cluster_send_arrival(bar, 0);
}

static void cluster_store16(uint32_t to, const uint32_t v[4], uint32_t bar)
{
    cluster_send_bytes(to, v, 16, bar);
}

static void cluster_hand4(uint32_t to, int v, uint32_t bar)
{
    cluster_send_arrival(bar, 4);
    cluster_send_bytes(to, (uint32_t[]){(uint32_t)v}, 4, bar);
}

/* ---- arrivals ------------------------------------------------------------------------------- */

static void cluster_comes(const struct emulate_sent *s)
{
    if (async_has_ended(s->bar->at)) {
        async_fail("a block has ended before all that is sent to it has come", s->bar->at);
    } else if (s->bytes == 0) {
        mbarrier_expect(s->bar, s->expects);
    } else {
        memcpy(emulate_memory + s->to, s->v, s->bytes);
        memset(&cluster_.is_due[s->to / EMULATE_WORD], 0, s->bytes / EMULATE_WORD);
        async_dirty(s->to);
        s->bar->is_told |= s->bar->at / EMULATE_SHARED_MAX != (uint32_t)s->from;
        mbarrier_bytes(s->bar, s->bytes);
    }
}

/* True: a message is under way. */
static int cluster_go_on(void)
{
    const int any = cluster_.n > 0;
    for (uint32_t i = cluster_.n; i-- > 0 && !emulate.failed;) {
        if (emulate_random() % cluster_.laziness == 0) {
            const struct emulate_sent s = cluster_.sent[i];
            cluster_.sent[i] = cluster_.sent[--cluster_.n];
            cluster_comes(&s);
        }
    }
    return any;
}

static void cluster_wait(uint32_t bar, uint32_t parity)
{
    mbarrier_wait(bar, parity);
}

/* ---- barrier.cluster ------------------------------------------------------------------------- */

static void cluster_barrier_arrive(void)
{
    struct emulate_meeting *m = &cluster_.barrier;
    cluster_.arrivals[emulate.current]++;
    m->what = "barrier.cluster";
    if (++m->arrived == emulate.l.threads * cluster_size()) {
        m->arrived = 0;
        m->round++;
    }
    emulate_linger(EMULATE_BEGUN_CHANCE, EMULATE_BEGUN_MOST);
}

static void cluster_barrier_wait(void)
{
    struct emulate_thread *t = &emulate.threads[emulate.current];
    while (cluster_.barrier.round < cluster_.arrivals[emulate.current]) {
        t->waits_for = &cluster_.barrier;
        t->round = cluster_.barrier.round;
        emulate_switch(&t->fiber, &emulate.scheduler);
    }
}

#endif
