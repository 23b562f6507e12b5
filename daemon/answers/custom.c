/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which rows are a user's, and whether a user may add a key (custom.h). */
#include <unistd.h>

#include "daemon/answers/custom.h"
#include "daemon/daemon.h"

bool custom_is(const struct problem *p)
{
    return !family_of_problem(p);
}

bool custom_is_owner(int64_t uid)
{
    return uid == 0 || uid == (int64_t)geteuid();
}

bool custom_answers(const struct cache_entry *e, int64_t uid)
{
    return !e->brought || (int64_t)e->uid == uid || custom_is_owner((int64_t)e->uid);
}

/* True when the limits --max-keys and --user-keys hold for this user and key. False for the owner,
 * for a key that the cache has, and when --max-keys is 0. */
static bool is_counted(const struct daemon *d, const char *id, int64_t uid)
{
    return d->config->max_keys > 0 && !custom_is_owner(uid) && !cache_find_id(&d->cache, id, NULL);
}

int custom_check_room(const struct daemon *d, const char *id, int64_t uid, struct error *err)
{
    const struct config *c = d->config;
    size_t n = d->cache.keys.n + d->tried.keys.n;
    size_t own =
        holdings_of(&d->cache.brought, (uint32_t)uid) + holdings_of(&d->tried.held, (uint32_t)uid);
    size_t share = (size_t)(c->user_keys ? c->user_keys : c->max_keys - c->max_keys / 4);
    if (!is_counted(d, id, uid) || tried_has(&d->tried, id) ||
        (n < (size_t)c->max_keys && own < share)) {
        return 0;
    }
    if (n < (size_t)c->max_keys) {
        return error_set(err, ERROR_DENIED,
                         "%zu keys known here were put or recorded by user %lld, the user's share "
                         "(--user-keys): `evict` some of these first",
                         own, (long long)uid);
    }
    return error_set(err, ERROR_DENIED,
                     "%zu keys are known here, %zu of them only by trials: --max-keys is reached; "
                     "`evict` some keys, or let gemmd's own user put this key",
                     n, d->tried.keys.n);
}

int custom_take_room(struct daemon *d, const char *id, int64_t uid, bool *counted,
                     struct error *err)
{
    int status = custom_check_room(d, id, uid, err);
    if (status < 0 || !is_counted(d, id, uid)) {
        return status;
    }
    status = tried_ask(&d->tried, id, (uint32_t)uid, err);
    *counted = status == 0;
    return status;
}

void custom_took_room(struct daemon *d, const char *id, bool kept)
{
    tried_answered(&d->tried, id, kept && !cache_find_id(&d->cache, id, NULL));
}

/* True when the key's row belongs to this user. A custom op's row that answers all users belongs to
 * the owner, also when the owner promoted it from another user's row. */
static bool is_own(struct daemon *d, const char *id, const struct problem *p, int64_t uid)
{
    const struct cache_entry *e = cache_find_id(&d->cache, id, NULL);
    struct problem *known = &d->scratch->other;
    if (!p && e && cache_problem(&d->cache, e, known, NULL) == 0) {
        p = known;
    }
    if (p && custom_is(p)) {
        return record_int(&p->fields, CUSTOM_USER, -1) == uid;
    }
    return e ? e->brought && (int64_t)e->uid == uid : tried_is_of(&d->tried, id, (uint32_t)uid);
}

int custom_check_evict(struct daemon *d, const char *id, const struct problem *p, int64_t uid,
                       struct error *err)
{
    if (custom_is_owner(uid) || is_own(d, id, p, uid)) {
        return 0;
    }
    return error_set(err, ERROR_DENIED,
                     "key %.12s is for root and the user that gemmd runs as to evict: uid %lld has "
                     "neither put it nor recorded trials of it",
                     id, (long long)uid);
}

bool custom_share(struct problem *p)
{
    return record_remove(&p->fields, CUSTOM_USER);
}

/* Checks the problem's `user`: users may name themselves, the owner any user. */
static int check_named(const struct problem *p, int64_t uid, bool *named, struct error *err)
{
    struct value v;
    *named = record_get(&p->fields, CUSTOM_USER, &v);
    if (!*named || (v.type == VALUE_INT && (v.integer == uid || custom_is_owner(uid)))) {
        return 0;
    }
    return error_set(err, ERROR_DENIED,
                     "the field '" CUSTOM_USER
                     "' of a custom op is the uid whose row it is; you are "
                     "uid %lld",
                     (long long)uid);
}

int custom_key(struct daemon *d, int64_t uid, enum custom_use use, struct error *err)
{
    struct scratch *x = d->scratch;
    struct problem *p = &x->request.problem;
    bool named = false;
    if (!custom_is(p)) {
        return daemon_key(d, err);
    }
    int status = check_named(p, uid, &named, err);
    if (status == 0 && !named && use == CUSTOM_READ) {
        /* the caller's own key answers if the cache has it, else the key of all users (shared) */
        status = daemon_key(d, err);
        bool shared = status == 0 && cache_find(&d->cache, &x->key) != NULL;
        status = status ? status : record_set(&p->fields, CUSTOM_USER, VALUE_OF_INT(uid), err);
        status = status ? status : daemon_key(d, err);
        if (status || !shared || cache_find(&d->cache, &x->key)) {
            return status;
        }
        custom_share(p);
    } else if (status == 0 && !named) {
        status = record_set(&p->fields, CUSTOM_USER, VALUE_OF_INT(uid), err);
    }
    return status ? status : daemon_key(d, err);
}
