/* name_table.h - finds tensors by their stored names while an index is still being built.
 *
 * A finished index looks up canonical names; maps and shards speak of stored ones, before they change. The table is
 * sorted by hash and then by name, so that forged hash collisions cost no more than a sort. */
#ifndef CKPT_INDEX_NAME_TABLE_H
#define CKPT_INDEX_NAME_TABLE_H

#include "libckpt/index/index.h"

typedef struct ckpt_name_table ckpt_name_table;

/* A table of the tensors that index has now, aliases too; it borrows their names. Free with ckpt_name_table_free (NULL
 * is fine). */
ckpt_status ckpt_name_table_new(ckpt_name_table **out, const ckpt_index *index, ckpt_error *err);
void ckpt_name_table_free(ckpt_name_table *table); /* as above */

/* The number of the tensor with this name or alias, the first of several, -1 if there is none. */
int64_t ckpt_name_table_find(const ckpt_name_table *table, const char *name);

/* Whether several tensors have this name or alias. */
bool ckpt_name_table_is_twice(const ckpt_name_table *table, const char *name);

/* Refuses tensors with one name, naming the files of both; after the last file and before names change. */
ckpt_status ckpt_name_table_refuse_twice(ckpt_index *index, ckpt_error *err);

#endif
