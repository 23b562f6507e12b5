/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of statements as text: arrays in PostgreSQL's notation, and rows as JSON. */
#ifndef GEMMD_FLEET_TEXT_H
#define GEMMD_FLEET_TEXT_H

#include "proto/message.h"

/* A text that grows; a failed allocation sets `failed`. */
struct text {
    char *data; /* owned; NULL: empty */
    size_t n, size;
    bool failed;
};
#define TEXT_AUTO __attribute__((cleanup(text_deinit))) struct text

void text_deinit(struct text *t);
void text_append(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Appends an element of an array, which begins with the first element. text_end_array closes the
 * array, also an empty one. */
void text_add_element(struct text *t, const char *value);
void text_add_number(struct text *t, int64_t value);
void text_end_array(struct text *t);
const char *text_of_number(char out[24], int64_t value);

/* Appends a best as a quoted element: JSON without the fields that mean something only here
 * (uid, trial, module, generation). */
void text_add_best(struct text *t, const struct best *b);
/* The id of a published row, made from its content: a repeated publication has the same id. */
void text_make_row_id(const char *host, const struct best *b, char out[HASH_HEX]);

#endif
