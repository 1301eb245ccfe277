/* object_json.h - an object of a checkpoint as JSON, whole: values, lists and dicts as such. */
#ifndef CKPT_TOOLS_REPORT_OBJECT_JSON_H
#define CKPT_TOOLS_REPORT_OBJECT_JSON_H

#include "libckpt/index/index.h"
#include "tools/report/json_writer.h"

/* What kind it is: "dict"; of NULL "none". */
const char *ckpt_object_kind_name(const ckpt_object *object);

/* Whether it has at most max_nodes values, text of 64 bytes counting as one more: a file can share one list among so
 * many holders that its JSON would have no end. */
bool ckpt_object_is_printable(const ckpt_object *object, uint64_t max_nodes);

/* Its value. Tuples and sets are lists; NaN and infinities are text, as Python's json calls them; bytes are "<n
 * bytes>", tensors "<tensor NAME>"; an object of a class is {"module.Class": [arguments], "state": ...}. What lies 64
 * deep is
 * "...". */
void ckpt_emit_object_value(ckpt_emitter *json, const char *key, const ckpt_index *index, const ckpt_object *object);

#endif
