/* name_table.h - finding tensors by the names that stand in a file, while an index is still being built.
 *
 * A finished index looks up canonical names; maps and shards speak of stored ones, before they change. The table is
 * sorted by hash and then by name, so that forged hash collisions cost no more than a sort. */
#ifndef CKPT_NAME_TABLE_H
#define CKPT_NAME_TABLE_H

#include "libckpt/index.h"

typedef struct ckpt_name_table ckpt_name_table;

/* A table of the tensors that index has now, aliases too; it borrows their names. Free with ckpt_name_table_free (NULL
 * is fine). */
ckpt_status ckpt_name_table_new(ckpt_name_table **out, const ckpt_index *index, ckpt_error *err);
void ckpt_name_table_free(ckpt_name_table *table); /* as above */

/* The number of the tensor with this name or alias, -1 if there is none. */
int64_t ckpt_name_table_find(const ckpt_name_table *table, const char *name);

/* Whether two tensors have one name, and which: the first such pair in hash order, the lower number first. */
bool ckpt_name_table_twice(const ckpt_name_table *table, uint32_t *first, uint32_t *second);

#endif
