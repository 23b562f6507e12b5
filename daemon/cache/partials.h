/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What restricted searches came to (`restrict`, `target`): such a winner is not its key's answer,
 * but it is the answer to the same search, which need not be made again. Found by the search's
 * packed bytes (job_pack), which are compared, not only their hash.
 *
 * In memory only, and bounded: the oldest makes room. After a restart such a search begins with
 * what was measured. A key's searches are forgotten when the key goes, and when something else than
 * a restricted search has made its row: what is measured now may not be what was measured then.
 */
#ifndef GEMMD_DAEMON_CACHE_PARTIALS_H
#define GEMMD_DAEMON_CACHE_PARTIALS_H

#include "proto/hash.h"
#include "proto/wire.h"

enum {
    PARTIALS_MAX = 256,
    PARTIAL_BYTES_MAX = 8192, /* of a search and its answer; longer ones are made again */
};

struct partial;

struct partials {
    uint64_t hashes[PARTIALS_MAX];       /* of the searches */
    struct partial *slots[PARTIALS_MAX]; /* owned; NULL: free */
    unsigned next;                       /* the oldest, or free */
};

void partials_deinit(struct partials *x);
/* Takes the place of what the same search came to before. Without memory nothing is kept. */
void partials_put(struct partials *x, const char key[HASH_HEX], const struct wire_buf *search,
                  const struct wire_buf *answer);
/* Appends the answer to `out`. false: not known, nothing is appended. */
bool partials_reply(const struct partials *x, const struct wire_buf *search, struct wire_buf *out);
void partials_forget(struct partials *x, const char key[HASH_HEX]);

#endif
