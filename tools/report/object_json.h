/* object_json.h - an object of a checkpoint as JSON, whole: values, lists and dicts as such. */
#ifndef CKPT_TOOLS_REPORT_OBJECT_JSON_H
#define CKPT_TOOLS_REPORT_OBJECT_JSON_H

#include "libckpt/index/index.h"
#include "tools/report/json_writer.h"

/* What kind it is: "dict"; of NULL "none". */
const char *ckpt_object_kind_name(const ckpt_object *object);

enum { CKPT_OBJECT_DEPTH = 64 }; /* containers in one another that JSON is printed of */

/* Whether it has at most max_nodes values, text of 64 bytes counting as one more, and none lies deeper than
 * CKPT_OBJECT_DEPTH: a file can share one list among so many holders that its JSON would have no end. */
bool ckpt_object_is_printable(const ckpt_object *object, uint64_t max_nodes);

/* Its value, which is printable. Tuples and sets are lists; NaN and infinities are text, as Python's json calls them;
 * bytes are "<n bytes>", tensors "<tensor NAME>"; an object of a class is {"module.Class": [arguments], "state": ...}.
 */
void ckpt_emit_object_value(ckpt_emitter *json, const char *key, const ckpt_index *index, const ckpt_object *object);

#endif
