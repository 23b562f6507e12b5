/* SPDX-License-Identifier: Apache-2.0 */
/* The hosts of a conninfo (target.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/target.h"

static const char *target_read_option(const PQconninfoOption *options, const char *keyword)
{
    for (; options && options->keyword; options++) {
        if (strcmp(options->keyword, keyword) == 0) {
            return options->val ? options->val : "";
        }
    }
    return "";
}

/* Copies the i-th word of a list with commas; a list of one word is for all i. */
static void target_copy_word(const char *list, unsigned i, char *out, size_t size)
{
    if (!strchr(list, ',')) {
        i = 0;
    }
    for (; i > 0 && *list; i--) {
        list += strcspn(list, ",");
        list += *list == ',';
    }
    snprintf(out, size, "%.*s", (int)strcspn(list, ","), list);
}

static unsigned target_count_words(const char *list)
{
    unsigned n = 1;
    for (; *list; list++) {
        n += *list == ',';
    }
    return n;
}

static void target_read_hosts(struct link *l, const PQconninfoOption *options)
{
    const char *names = target_read_option(options, "host"),
               *addresses = target_read_option(options, "hostaddr"),
               *ports = target_read_option(options, "port");
    l->n_hosts = target_count_words(*names ? names : addresses);
    l->n_hosts = l->n_hosts < LINK_HOSTS_MAX ? l->n_hosts : LINK_HOSTS_MAX;
    for (unsigned i = 0; i < l->n_hosts; i++) {
        struct link_host *h = &l->hosts[i];
        target_copy_word(names, i, h->name, sizeof(h->name));
        target_copy_word(addresses, i, h->address, sizeof(h->address));
        target_copy_word(*ports ? ports : "5432", i, h->port, sizeof(h->port));
    }
}

/* The password in the text itself, which other users see in the list of processes. */
static int target_check_secret(const char *conninfo, struct error *err)
{
    PQconninfoOption *options = PQconninfoParse(conninfo, NULL);
    bool secret =
        *target_read_option(options, "password") || *target_read_option(options, "sslpassword");
    PQconninfoFree(options);
    return secret ? error_set(err, ERROR_INVALID,
                              "the conninfo has a password, which every user of this host can read "
                              "in the list of processes: use a passfile (~/.pgpass, mode 0600) or "
                              "PGPASSFILE")
                  : 0;
}

int target_read(struct link *l, struct error *err)
{
    /* libpq shows the settings that a service file adds only for a connection. An impossible
     * sslmode ends this connection before libpq looks up any host. */
    static const char *const words[] = {"dbname", "sslmode", NULL};
    const char *const values[] = {l->conninfo, "?", NULL};
    char *message = NULL;
    PQconninfoOption *options = PQconninfoParse(l->conninfo, &message);
    if (!options) {
        int r = error_set(err, ERROR_INVALID, "the conninfo is not valid: %.*s",
                          (int)strcspn(message ? message : "", "\n"), message ? message : "");
        PQfreemem(message);
        return r;
    }
    PQconninfoFree(options);
    int r = target_check_secret(l->conninfo, err);
    if (r) {
        return r;
    }
    PGconn *probe = PQconnectStartParams(words, values, 1);
    options = probe ? PQconninfo(probe) : NULL;
    const char *said = probe ? PQerrorMessage(probe) : "no memory";
    if (!options || !strstr(said, "sslmode")) { /* for instance, an unknown service */
        r = error_set(err, ERROR_INVALID, "the conninfo is not valid: %.*s",
                      (int)strcspn(said, "\n"), said);
    } else {
        target_read_hosts(l, options);
        const char *database = target_read_option(options, "dbname");
        const char *first = l->hosts[0].name[0] ? l->hosts[0].name : l->hosts[0].address;
        snprintf(l->server, sizeof(l->server), "%.160s:%s/%.64s", *first ? first : "local",
                 l->hosts[0].port, database);
    }
    PQconninfoFree(options);
    PQfinish(probe);
    return r;
}
