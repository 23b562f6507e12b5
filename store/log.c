/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks the write-ahead log before SQLite reads the log. Checksums chain the frames, and SQLite
 * silently stops at the first frame that does not fit. After a kill or a power loss that frame
 * belongs to the last transaction, which was never acknowledged. But a flipped bit in an older
 * frame cuts off each later transaction. An acknowledged transaction was synced before the next
 * began. So frames of a later transaction behind the break prove that acknowledged rows are lost.
 * The check reports the loss and copies the log aside.
 *
 * Format: sqlite.org/fileformat2.html, "The Write-Ahead Log". SQLite writes a log again from its
 * start (a new life of the log) with new salts. Frames of an earlier life may lie behind the last
 * frame.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/inner.h"

enum { HEADER = 32, FRAME_HEADER = 24, PAGE_USUAL = 4096, PAGE_MAX = 65536 };

struct log {
    FILE *f;
    bool big_endian; /* byte order of the words that the checksums add up */
    uint32_t page, salt[2], sum[2];
    uint8_t frame[FRAME_HEADER + PAGE_MAX];
};

struct finding {
    /* number of the frame where the chain breaks, from 1; 0: the chain is whole */
    int64_t broken;
    int64_t behind;    /* number of frames of this life of the log behind the break */
    bool acknowledged; /* some of the frames behind the break belong to a later transaction */
};

static uint32_t log_read_word(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void add_sum(const struct log *l, uint32_t sum[2], const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i += 8) {
        uint32_t a = log_read_word(p + i), b = log_read_word(p + i + 4);
        sum[0] += (l->big_endian ? a : __builtin_bswap32(a)) + sum[1];
        sum[1] += (l->big_endian ? b : __builtin_bswap32(b)) + sum[0];
    }
}

static bool log_read_header(struct log *l)
{
    uint8_t h[HEADER];
    uint32_t sum[2] = {0, 0};
    if (fread(h, 1, HEADER, l->f) != HEADER || (log_read_word(h) & ~UINT32_C(1)) != 0x377f0682) {
        return false;
    }
    l->big_endian = log_read_word(h) & 1;
    l->page = log_read_word(h + 8);
    add_sum(l, sum, h, HEADER - 8);
    l->salt[0] = log_read_word(h + 16);
    l->salt[1] = log_read_word(h + 20);
    l->sum[0] = sum[0];
    l->sum[1] = sum[1];
    return sum[0] == log_read_word(h + 24) && sum[1] == log_read_word(h + 28) && l->page >= 512 &&
           l->page <= PAGE_MAX && (l->page & (l->page - 1)) == 0;
}

static bool next_frame(struct log *l)
{
    size_t n = FRAME_HEADER + l->page;
    return fread(l->frame, 1, n, l->f) == n;
}

static bool is_of_this_life(const struct log *l)
{
    return log_read_word(l->frame + 8) == l->salt[0] && log_read_word(l->frame + 12) == l->salt[1];
}

static bool log_continues_chain(struct log *l)
{
    uint32_t sum[2] = {l->sum[0], l->sum[1]};
    add_sum(l, sum, l->frame, 8);
    add_sum(l, sum, l->frame + FRAME_HEADER, l->page);
    if (!is_of_this_life(l) || sum[0] != log_read_word(l->frame + 16) ||
        sum[1] != log_read_word(l->frame + 20)) {
        return false;
    }
    memcpy(l->sum, sum, sizeof(sum));
    return true;
}

static void follow_chain(struct log *l, struct finding *out)
{
    int64_t n = 0;
    bool more = next_frame(l), committed = false;
    while (more && log_continues_chain(l)) {
        n++;
        more = next_frame(l);
    }
    /* if the frame is of an earlier life, the break may just be the end of the log */
    bool suspect = more && is_of_this_life(l);
    for (; more; more = next_frame(l)) {
        bool ours = is_of_this_life(l);
        out->acknowledged |= ours && committed;
        committed |= ours && log_read_word(l->frame + 4) != 0;
        out->behind += ours;
    }
    out->broken = suspect || out->behind ? n + 1 : 0;
}

static void log_report_finding(struct store *s, const struct finding *x)
{
    char aside[PATH_MAX];
    if (!x->acknowledged) {
        store_notice(s, "log_tail",
                     "the log of database %s breaks off within its last transaction, at frame "
                     "%" PRId64 ": gemmd was killed or power was lost while it was written, or the "
                     "file is damaged; that transaction is lost",
                     s->path, x->broken);
        return;
    }
    bool kept = salvage_copy_aside(s->path, "-wal", aside) == 0;
    store_notice(s, "corrupt_log",
                 "the log of database %s is damaged at frame %" PRId64 ": %" PRId64 " frames from "
                 "there on are lost, with bests and trials that were saved last%s%s",
                 s->path, x->broken, x->behind, kept ? "; a copy is in " : "", kept ? aside : "");
}

/* An empty file with a log or a snapshot beside it was truncated: gemmd leaves neither beside an
 * unwritten file. SQLite would take the file for new, and remove the log. A page of zeros keeps
 * SQLite from that: pages come from the log, and a file that stays incomplete counts as damaged. */
void log_look_at_nothing(struct store *s)
{
    struct stat file, wal, snapshot;
    const bool has_log = place_stat(s->path, "-wal", &wal) == 0;
    const bool has_frames = has_log && wal.st_size > HEADER;
    const bool has_snapshot = place_stat(s->path, ".snapshot", &snapshot) == 0;
    if (stat(s->path, &file) || file.st_size > 0 || !(has_log || has_snapshot)) {
        return;
    }
    const bool kept = (has_frames || has_snapshot) && truncate(s->path, PAGE_USUAL) == 0;
    store_notice(s, "corrupt_file", "database %s has no bytes left, and was not new: %s", s->path,
                 !kept        ? "nothing of its content can be found"
                 : has_frames ? "its log has all that can be found of its content"
                              : "its snapshot has all that can be found of its content");
}

void log_look(struct store *s)
{
    char name[PATH_MAX + 8];
    struct finding x = {0};
    struct log *l = calloc(1, sizeof(*l));
    snprintf(name, sizeof(name), "%s-wal", s->path);
    log_look_at_nothing(s);
    if (l && (l->f = fopen(name, "re"))) {
        if (log_read_header(l)) {
            follow_chain(l, &x);
        } else if (fseek(l->f, 0, SEEK_END) == 0 && ftell(l->f) > HEADER) {
            /* No frame can be read. If the log had just been started again, nothing is lost. */
            x.broken = 1;
        }
        fclose(l->f);
    }
    free(l);
    if (x.broken) {
        log_report_finding(s, &x);
    }
}
