/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "client/ctl/archive.h"

enum { BLOCK = 512 };

/* The header of POSIX's ustar format, all of text. */
struct ustar {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100];
    char magic[6], version[2], user[32], group[32], major[8], minor[8], prefix[155], rest[12];
};
_Static_assert(sizeof(struct ustar) == BLOCK, "a header is one block");

static const char zeros[2 * BLOCK];

static size_t archive_count_padding(size_t size)
{
    return (BLOCK - size % BLOCK) % BLOCK;
}

/* Each file is of root, readable for all, and of 1970: the header follows from name and size. */
static void archive_make_header(const char *name, size_t size, struct ustar *h)
{
    unsigned sum = 0;
    memset(h, 0, sizeof(*h));
    memcpy(h->name, name, strnlen(name, sizeof(h->name) - 1));
    snprintf(h->mode, sizeof(h->mode), "%07o", 0644);
    snprintf(h->uid, sizeof(h->uid), "%07o", 0);
    snprintf(h->gid, sizeof(h->gid), "%07o", 0);
    snprintf(h->size, sizeof(h->size), "%011llo", (unsigned long long)size);
    snprintf(h->mtime, sizeof(h->mtime), "%011o", 0);
    h->type = '0';
    memcpy(h->magic, "ustar", sizeof(h->magic));
    memcpy(h->version, "00", sizeof(h->version));
    memset(h->checksum, ' ', sizeof(h->checksum)); /* the sum counts its own field as blanks */
    for (size_t i = 0; i < sizeof(*h); i++) {
        sum += ((const unsigned char *)h)[i];
    }
    snprintf(h->checksum, sizeof(h->checksum) - 1, "%06o", sum);
}

void archive_add(FILE *f, const char *name, const void *data, size_t size)
{
    struct ustar h;
    archive_make_header(name, size, &h);
    fwrite(&h, sizeof(h), 1, f);
    fwrite(data, 1, size, f);
    fwrite(zeros, 1, archive_count_padding(size), f);
}

void archive_end(FILE *f)
{
    fwrite(zeros, 1, sizeof(zeros), f);
}

static int archive_damaged(const struct archive *a, struct error *err)
{
    return error_set(err, ERROR_INVALID, "it is cut short or damaged near byte %zu", a->at);
}

int archive_next(struct archive *a, struct archive_file *out, struct error *err)
{
    struct ustar h, made;
    unsigned long long size;
    const size_t left = a->size - a->at;
    if (left == sizeof(zeros) && memcmp(a->data + a->at, zeros, sizeof(zeros)) == 0) {
        return ARCHIVE_END;
    }
    if (left < sizeof(h)) {
        return archive_damaged(a, err);
    }
    memcpy(&h, a->data + a->at, sizeof(h));
    h.size[sizeof(h.size) - 1] = h.name[sizeof(h.name) - 1] = '\0';
    if (sscanf(h.size, "%11llo", &size) != 1 || size > left - sizeof(h) ||
        archive_count_padding(size) > left - sizeof(h) - size) {
        return archive_damaged(a, err);
    }
    archive_make_header(h.name, size, &made);
    const unsigned char *data = a->data + a->at + sizeof(h);
    if (memcmp(&made, a->data + a->at, sizeof(made)) != 0 ||
        memcmp(data + size, zeros, archive_count_padding(size)) != 0) {
        return archive_damaged(a, err);
    }
    memcpy(out->name, h.name, sizeof(h.name));
    out->data = data;
    out->size = size;
    a->at += sizeof(h) + size + archive_count_padding(size);
    return 0;
}
