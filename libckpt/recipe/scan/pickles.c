/* pickles.c - pickles one behind another in a place, judged.
 *
 * Without PROTO any byte may begin a pickle, and tensors are any bytes: so what counts is what it does. A pickle counts
 * when it was read to its STOP and is all there is, names something or begins with PROTO; and where it cannot be read
 * to its end, when it has called something by then, has begun as one beyond chance, or goes on as one
 * (ckpt_pickle_skim). A torch.save archive's data.pkl is one, whatever it holds. What counts or not, the next one is
 * looked for behind each STOP; bytes after a pickle that counts, and that begin no pickle, are a problem. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/base/little.h"
#include "libckpt/codec/torch/read/file.h"
#include "libckpt/codec/torch/read/graph.h"
#include "libckpt/recipe/scan/look.h"

typedef unsigned long long ull;

#define MAGIC "119547037146038801333356" /* of legacy torch streams */

enum {
  HEAD_BYTES = 64,
  STREAM_PICKLES = 5, /* of a legacy torch file: magic, protocol, system, object, keys */
  CERTAIN_OPCODES = 6,
  BIG_TEXT = 1 << 20,
  RECENT_ROWS = 64,
  PADDING_BYTES = 4096,    /* of zeros or blanks behind a pickle, at most */
  WINDOW_BYTES = 64 << 10, /* that the machine reads at once */
  PROTO = 0x80
};

/* One pickle that may be there. */
typedef struct attempt {
  const ckpt_place *place;
  uint64_t at;      /* in the place */
  uint64_t n_text;  /* not 0: its first opcode is a text of so many bytes, which a None stands for */
  uint64_t n_bytes; /* from there to the place's end */
  uint8_t first;
  ckpt_pickle_rest rest; /* where it cannot be read */
  uint64_t n_payload;    /* of a tar member: bytes behind it that are no pickle's, as what it holds says, */
  bool is_followed;      /* which is so: torch goes on behind them */
  bool is_one;           /* it counts, */
  bool is_certain;       /* and was read, and is none by chance, as tensors that begin with the code of an extension */
  bool is_magic;         /* all it holds is the number that legacy torch streams begin with, however that is spelled */
  ckpt_arena arena;
  ckpt_pickle_report report;
  ckpt_status status;
  ckpt_error error;
} attempt;

static ckpt_status fetch(void *arg, uint64_t offset, void *dst, size_t n_bytes, ckpt_error *err) {
  attempt *a = arg;
  uint8_t *to = dst;
  if (a->n_text != 0) {
    if (offset == 0 && n_bytes != 0) *to++ = 'N', n_bytes--, offset++;
    offset += a->n_text - 1;
  }
  return ckpt_source_read(a->place->source, a->place->file, a->place->offset + a->at + offset, to, n_bytes, err);
}

/* Bytes of a first opcode that is a long text, its length included; 0 for any other. Tensors begin so now and then, and
 * gigabytes of text that is thrown away are not worth the memory. */
static uint64_t big_text(const uint8_t *head, size_t n_head, uint64_t n_left) {
  bool is_four = n_head >= 5 && memchr("TBX", head[0], 3) != NULL,
       is_eight = n_head >= 9 && head[0] != 0 && head[0] > 'X';
  is_eight = is_eight && (head[0] == 0x8D || head[0] == 0x8E || head[0] == 0x96);
  size_t n_length = is_four ? 4 : is_eight ? 8 : 0;
  uint64_t n = 0;
  for (size_t i = n_length; i-- > 0;) n = n << 8 | head[1 + i];
  return n_length != 0 && n >= BIG_TEXT && n < n_left - n_length ? n + n_length + 1 : 0;
}

static uint64_t count_opcodes(const ckpt_pickle_report *report) {
  uint64_t n = 0;
  for (int i = 0; i < 256; i++) n += report->counts[i];
  return n;
}

/* ---- rows ------------------------------------------------------------------------------------------------------- */

static bool is_same(const ckpt_scan_pickle *row, const ckpt_pickle_report *report) {
  if (report->n_value_calls != 0 || row->protocol != report->protocol || row->n_globals != report->n_globals)
    return false;
  for (uint32_t i = 0; i < row->n_globals; i++) {
    const ckpt_pickle_global *global = report->globals[i];
    const ckpt_scan_global *own = &row->globals[i];
    if (strcmp(own->name, global->name) != 0 || (own->n_called == 0) != (global->n_called == 0) ||
        (own->n_built == 0) != (global->n_built == 0) || own->verdict >= CKPT_PICKLE_FOREIGN ||
        ckpt_pickle_judge(global) != own->verdict)
      return false;
  }
  return true;
}

static bool merge(const ckpt_scanner *s, const ckpt_pickle_report *report, uint64_t n_bytes) {
  ckpt_scan *scan = s->scan;
  for (uint32_t i = scan->n; i > s->first && scan->n - i < RECENT_ROWS; i--) {
    ckpt_scan_pickle *row = &scan->pickles[i - 1];
    if (!is_same(row, report)) continue;
    row->n_pickles++;
    row->n_bytes += n_bytes;
    row->n_opcodes += count_opcodes(report);
    for (uint32_t k = 0; k < row->n_globals; k++) {
      row->globals[k].n_named += report->globals[k]->n_named;
      row->globals[k].n_called += report->globals[k]->n_called;
      row->globals[k].n_built += report->globals[k]->n_built;
    }
    return true;
  }
  return false;
}

static ckpt_status add_row(ckpt_scanner *s, const attempt *a, ckpt_scan_pickle **out, ckpt_error *err) {
  ckpt_scan *scan = s->scan;
  const ckpt_pickle_report *report = &a->report;
  ckpt_scan_pickle row = {.record = a->place->record,
                          .at = a->at,
                          .n_pickles = 1,
                          .n_bytes = report->n_consumed + (a->n_text == 0 ? 0 : a->n_text - 1),
                          .n_opcodes = count_opcodes(report),
                          .protocol = report->protocol,
                          .is_broken = a->status != CKPT_OK,
                          .n_globals = report->n_globals};
  *out = NULL;
  scan->n_pickles++;
  scan->n_opcodes += row.n_opcodes;
  if (a->place->is_item && a->status == CKPT_OK && merge(s, report, row.n_bytes)) return CKPT_OK;
  CKPT_TRY_ALLOC(row.file = ckpt_arena_copy(&scan->arena, s->path), err);
  if (row.record != NULL) CKPT_TRY_ALLOC(row.record = ckpt_arena_copy(&scan->arena, row.record), err);
  row.globals = ckpt_arena_array(&scan->arena, (size_t)row.n_globals + 1, sizeof *row.globals);
  CKPT_TRY_ALLOC(row.globals, err);
  for (uint32_t i = 0; i < row.n_globals; i++) {
    const ckpt_pickle_global *global = report->globals[i];
    row.globals[i] = (ckpt_scan_global){.name = ckpt_arena_copy(&scan->arena, global->name),
                                        .verdict = ckpt_pickle_judge(global),
                                        .first = global->first,
                                        .n_named = global->n_named,
                                        .n_called = global->n_called,
                                        .n_built = global->n_built};
    CKPT_TRY_ALLOC(row.globals[i].name, err);
  }
  CKPT_TRY(ckpt_grow(&scan->pickles, scan->n, &scan->capacity, sizeof *scan->pickles, err));
  *out = &scan->pickles[scan->n++];
  **out = row;
  return CKPT_OK;
}

/* What is wrong with the names of a row. A name that nothing is done with is fine unless it is dangerous (loading runs
 * its module), something is called that calls what it is handed, or what would be done with it cannot be read. */
static ckpt_status judge_row(const ckpt_scanner *s, const attempt *a, const ckpt_scan_pickle *row, ckpt_error *err) {
  bool hands_over = ckpt_pickle_hands_over(&a->report);
  for (uint32_t i = 0; i < row->n_globals; i++) {
    const ckpt_scan_global *global = &row->globals[i];
    bool is_done = global->n_called != 0 || global->n_built != 0;
    if (global->verdict < CKPT_PICKLE_FOREIGN) continue;
    if (global->verdict == CKPT_PICKLE_FOREIGN && !is_done && !hands_over && !row->is_broken) continue;
    const char *what = global->n_called != 0  ? "calls"
                       : global->n_built != 0 ? "builds"
                       : hands_over           ? "hands over for calling"
                                              : "names";
    bool is_script = strncmp(global->name, "__torch__.", 10) == 0;
    CKPT_TRY(ckpt_scan_problem(s, a->place, err, "%s %.700s, named at byte %llu (%s%s)", what, global->name,
                               (ull)global->first, ckpt_pickle_verdict_name(global->verdict),
                               is_script ? ": TorchScript, code of the archive itself" : ""));
  }
  if (a->report.n_value_calls != 0)
    CKPT_TRY(ckpt_scan_problem(s, a->place, err, "calls at byte %llu what another call returned (foreign)",
                               (ull)a->report.first_value_call));
  return CKPT_OK;
}

/* ---- attempts --------------------------------------------------------------------------------------------------- */

static bool has_effects(const ckpt_pickle_report *report) {
  bool has = report->n_value_calls != 0 || report->n_changed_globals != 0;
  for (uint32_t i = 0; i < report->n_globals && !has; i++) {
    const ckpt_pickle_global *global = report->globals[i];
    has = global->n_called != 0 || global->n_built != 0 || ckpt_pickle_judge(global) == CKPT_PICKLE_DANGEROUS;
  }
  return has;
}

/* Text begins as opcodes do, too: "(in a way". One name that may be Python's makes a pickle of it, whatever stands
 * before that: some modules have what they are asked for, blanks and all (torch.ops). An extension's code alone, which
 * any bytes may begin with, does where there is text beside it. */
static bool is_prose(const attempt *a) {
  const ckpt_pickle_report *report = &a->report;
  if (a->first == PROTO || report->n_globals == 0) return false;
  bool has_text = a->status == CKPT_OK; /* or is one to its end */
  for (const char *op = "STUVX\x8c\x8d"; *op != '\0' && !has_text; op++) has_text = report->counts[(uint8_t)*op] != 0;
  return !ckpt_pickle_has_name(report, has_text);
}

/* Whether the bytes of the attempt are a pickle; is_sure: they must be one. */
static ckpt_status is_pickle(attempt *a, const ckpt_pickle_options *options, bool is_sure, bool *is, ckpt_error *err) {
  const ckpt_pickle_report *report = &a->report;
  *is = is_sure || !is_prose(a);
  if (a->status == CKPT_OK) {
    bool is_all = a->at == 0 && report->n_consumed == a->n_bytes;
    *is = is_sure || (*is && (a->first == PROTO || report->n_globals != 0 || is_all));
  } else if (!*is || !has_effects(report)) {
    CKPT_TRY(ckpt_pickle_skim(&a->rest, options, err));
    *is = is_sure || a->rest.goes_on || (a->first == PROTO && count_opcodes(report) >= CERTAIN_OPCODES);
  }
  return CKPT_OK;
}

/* What follows a pickle in a member of a tar archive, behind its byte `end`: of (key, location, class) a storage, its
 * length in elements, i64, and those; of (key, storage, class) a tensor, its rank, i32, 4 bytes, and sizes, strides and
 * offset, i64. The number of either stands before the first. *is_known: it may be followed by what *n says. */
static ckpt_status payload_of(const attempt *a, const ckpt_object *root, uint64_t end, uint64_t *n, bool *is_known,
                              ckpt_error *err) {
  uint8_t head[8];
  const ckpt_place *place = a->place;
  const bool is_storage = place->member == CKPT_SCAN_STORAGES;
  *n = 0;
  *is_known = end == place->n_bytes || (place->member != CKPT_SCAN_MEMBER && root->kind == CKPT_OBJECT_INT);
  bool has_more = root->kind == CKPT_OBJECT_TUPLE && root->n == 3 && place->member != CKPT_SCAN_MEMBER;
  if (*is_known || !has_more || !ckpt_range_within(end, sizeof head, place->n_bytes)) return CKPT_OK;
  CKPT_TRY(ckpt_source_read(place->source, place->file, place->offset + end, head, sizeof head, err));
  uint64_t n_each = is_storage ? ckpt_torch_storage_bytes(root->items[2]) : 16;
  uint64_t count = is_storage ? ckpt_le64(head) : (uint64_t)ckpt_le32(head) + 1;
  bool fits = n_each != 0 && ckpt_mul_u64(count, n_each, n) && ckpt_add_u64(*n, is_storage ? sizeof head : 0, n);
  *is_known = fits && *n <= place->n_bytes - end;
  if (!*is_known) *n = 0;
  return CKPT_OK;
}

/* What a pickle may take: by its size, and no more than `memory` (0: as it is) in all. The stack, the memo and lines
 * double when they grow. */
static ckpt_pickle_limits limits_of(uint64_t n_bytes, uint64_t memory, uint64_t *n_arena) {
  ckpt_pickle_limits limits = CKPT_PICKLE_LIMITS;
  *n_arena = n_bytes < UINT64_C(256) << 20 ? 64 * n_bytes + (1 << 20) : UINT64_C(16) << 30;
  if (memory == 0) return limits;
  if (*n_arena > memory / 8 * 3) *n_arena = memory / 8 * 3;
  if (limits.n_stack > memory / 64) limits.n_stack = memory / 64;
  if (limits.n_memo > memory / 128) limits.n_memo = memory / 128;
  if (limits.n_text > memory / 16) limits.n_text = memory / 16;
  return limits;
}

static ckpt_status try_pickle(ckpt_scanner *s, attempt *a, bool is_sure, bool *is, ckpt_error *err) {
  uint64_t n_skipped = a->n_text == 0 ? 0 : a->n_text - 1;
  ckpt_pickle_options options = {.fetch = fetch,
                                 .arg = a,
                                 .n_bytes = a->n_bytes = a->place->n_bytes - a->at - n_skipped,
                                 .file = s->path,
                                 .base = a->at + n_skipped,
                                 .report = &a->report};
  ckpt_object *root = NULL;
  uint64_t n_arena, memory = s->run == NULL ? 0 : s->run->memory;
  const ckpt_pickle_limits limits = limits_of(a->n_bytes, memory, &n_arena);
  options.limits = &limits;
  ckpt_arena_init(&a->arena, n_arena);
  a->status = ckpt_pickle_read(&root, NULL, &options, &a->arena, &a->error);
  *is = false;
  if (a->status == CKPT_EIO || a->status == CKPT_ENOMEM || a->status == CKPT_ENOTFOUND) {
    if (err != NULL) *err = a->error;
    return a->status;
  }
  a->is_magic = a->status == CKPT_OK && root->kind == CKPT_OBJECT_BIGINT && strcmp(root->text, MAGIC) == 0;
  if (a->status == CKPT_OK && a->place->member != CKPT_SCAN_NO_MEMBER)
    CKPT_TRY(payload_of(a, root, a->at + n_skipped + a->report.n_consumed, &a->n_payload, &a->is_followed, err));
  CKPT_TRY(is_pickle(a, &options, is_sure || a->is_magic, is, err));
  if (!*is) return CKPT_OK;
  ckpt_scan_pickle *row;
  if (a->status == CKPT_OK && a->place->record == NULL)
    CKPT_TRY(ckpt_scan_items_add(s, a->place, root, &a->report, err));
  CKPT_TRY(add_row(s, a, &row, err));
  if (row != NULL) CKPT_TRY(judge_row(s, a, row, err));
  if (a->status == CKPT_OK) return CKPT_OK;
  if (a->status == CKPT_ELIMIT && memory != 0)
    return ckpt_findings_advise(
        ckpt_scan_problem(s, a->place, err, "not looked into beyond byte %llu: needs more than the memory limit (%s)",
                          (ull)(options.base + a->report.n_consumed), a->error.message),
        &s->scan->findings, "raise %memory", NULL);
  if (!a->rest.goes_on) return ckpt_scan_problem(s, a->place, err, "cannot be read to its end: %s", a->error.message);
  return ckpt_scan_problem(s, a->place, err, "cannot be read to its end: %s; what follows names %s and calls it",
                           a->error.message, a->rest.seen[0] == '\0' ? "something" : a->rest.seen);
}

bool ckpt_scan_is_object(const ckpt_place *place) {
  static const char name[] = "/data.pkl";
  const size_t n = place->record == NULL ? 0 : strlen(place->record), n_name = sizeof name - 1;
  return n > n_name && strcmp(place->record + n - n_name, name) == 0;
}

/* Goes past pickles that do nothing, of which bytes may hold millions. */
static ckpt_status skip_idle(ckpt_scanner *s, const ckpt_place *place, uint64_t *at, bool *may_go_on, ckpt_error *err) {
  attempt a = {.place = place, .at = *at};
  const ckpt_pickle_options options = {.fetch = fetch, .arg = &a, .n_bytes = place->n_bytes - *at};
  uint64_t n_bytes;
  CKPT_TRY(ckpt_pickle_skip_idle(&n_bytes, &options, err));
  *at += n_bytes;
  return ckpt_scan_work(s, place, n_bytes, may_go_on, err);
}

/* Looks at what may be a pickle at *at, and goes on behind its STOP; *goes_on: there is one. */
static ckpt_status look_at(ckpt_scanner *s, attempt *a, bool is_sure, uint64_t *at, bool *goes_on, ckpt_error *err) {
  bool may_go_on = true;
  ckpt_status status = try_pickle(s, a, is_sure, &a->is_one, err);
  const bool is_read = a->status == CKPT_OK;
  const uint64_t end = is_read ? a->report.n_consumed : a->rest.end, n_window = a->n_bytes;
  uint64_t n_work = a->report.n_read > a->rest.end ? a->report.n_read : a->rest.end;
  *at += end + (a->n_text == 0 ? 0 : a->n_text - 1) + a->n_payload;
  a->is_certain = a->is_one && is_read &&
                  (a->first == PROTO || has_effects(&a->report) || count_opcodes(&a->report) >= CERTAIN_OPCODES);
  ckpt_arena_free(&a->arena);
  CKPT_TRY(status);
  /* what is none costs its window, also where there are many, or many places to look from */
  if (!a->is_one || a->place->is_carved) n_work += n_window < WINDOW_BYTES ? n_window : WINDOW_BYTES;
  CKPT_TRY(ckpt_scan_work(s, a->place, n_work, &may_go_on, err));
  *goes_on = (is_read || a->rest.has_stop) && may_go_on;
  const bool is_member = a->place->member != CKPT_SCAN_NO_MEMBER;
  if (*goes_on && is_member && !a->is_followed)
    CKPT_TRY(
        ckpt_scan_problem(s, a->place, err, "bytes behind a pickle that torch would not find (at %llu)", (ull)*at));
  return *goes_on && !a->is_one && !is_member ? skip_idle(s, a->place, at, goes_on, err) : CKPT_OK;
}

/* Whether the bytes from there on are padding alone, where no pickle begins. */
static ckpt_status is_padding(const ckpt_place *place, uint64_t at, bool *is, ckpt_error *err) {
  uint8_t bytes[PADDING_BYTES];
  const uint64_t n = place->n_bytes - at;
  *is = false;
  if (n > sizeof bytes) return CKPT_OK;
  CKPT_TRY(ckpt_source_read(place->source, place->file, place->offset + at, bytes, (size_t)n, err));
  size_t i = 0;
  while (i < n && (bytes[i] == 0 || bytes[i] == '\n' || bytes[i] == '\r' || bytes[i] == ' ')) i++;
  *is = i == n;
  return CKPT_OK;
}

/* Where pickles end and bytes go on that are none, nobody knows what those are: a reader that goes past some of them
 * finds another pickle. */
static ckpt_status tell_rest(ckpt_scanner *s, const ckpt_place *place, uint64_t at, ckpt_error *err) {
  bool is_known = false;
  if (at >= place->n_bytes || s->is_stopped) return CKPT_OK;
  const bool is_member = place->member != CKPT_SCAN_NO_MEMBER;
  if (!is_member) CKPT_TRY(is_padding(place, at, &is_known, err));
  if (!is_member && !is_known) CKPT_TRY(ckpt_scan_has_zip_end(place, &is_known, err)); /* which is looked into */
  if (is_known) return CKPT_OK;
  return ckpt_scan_problem(s, place, err, "not looked into: %llu byte%s at %llu, behind a pickle",
                           (ull)(place->n_bytes - at), ckpt_plural(place->n_bytes - at), (ull)at);
}

/* Where the storages of a legacy stream end, in the place; its own end where that cannot be told. */
static ckpt_status find_stream_end(const ckpt_scanner *s, const ckpt_place *place, uint64_t *end, ckpt_error *err) {
  ckpt_pickle_report report;
  ckpt_torch_graph graph = {.root = NULL};
  ckpt_arena arena;
  uint64_t n_arena;
  ckpt_error own = {0};
  (void)limits_of(place->n_bytes, s->run == NULL ? 0 : s->run->memory, &n_arena);
  ckpt_arena_init(&arena, n_arena);
  ckpt_status status =
      ckpt_torch_stream_read(&graph, place->source, place->file, place->offset, place->n_bytes, &arena, &report, &own);
  *end = place->n_bytes - (status == CKPT_OK ? graph.n_trailing : 0);
  ckpt_torch_graph_free(&graph);
  ckpt_arena_free(&arena);
  return status == CKPT_EIO || status == CKPT_ENOMEM ? ckpt_fail_as(err, status, s->path, NULL, &own) : CKPT_OK;
}

/* Bytes behind the last storage of a legacy stream: torch reads no further, but a reader that goes on finds them. */
static ckpt_status look_behind_stream(ckpt_scanner *s, const ckpt_place *place, ckpt_error *err) {
  uint64_t end;
  bool is_known;
  if (s->is_stopped) return CKPT_OK;
  CKPT_TRY(find_stream_end(s, place, &end, err));
  if (end == place->n_bytes) return CKPT_OK;
  CKPT_TRY(is_padding(place, end, &is_known, err));
  if (!is_known)
    CKPT_TRY(ckpt_scan_problem(s, place, err, "bytes follow its last storage (%llu at %llu)",
                               (ull)(place->n_bytes - end), (ull)end));
  for (uint64_t at = end; !is_known && at < place->n_bytes && !s->is_stopped;) {
    bool goes_on;
    attempt a = {.place = place, .at = at};
    CKPT_TRY(ckpt_source_read(place->source, place->file, place->offset + at, &a.first, 1, err));
    if (ckpt_pickle_opcode_name(a.first) == NULL) break;
    CKPT_TRY(look_at(s, &a, false, &at, &goes_on, err));
    if (!goes_on) break;
  }
  return CKPT_OK;
}

ckpt_status ckpt_scan_pickles(ckpt_scanner *s, const ckpt_place *place, ckpt_error *err) {
  uint8_t head[HEAD_BYTES];
  bool is_stream = false, goes_on = true, has_stop = false, has_pickle = false, is_broken = false;
  uint64_t at = 0, from = 0;
  for (uint32_t n = 0; goes_on && at < place->n_bytes && (!is_stream || n < STREAM_PICKLES); n++) {
    uint64_t n_left = place->n_bytes - at;
    size_t n_head = n_left < sizeof head ? (size_t)n_left : sizeof head;
    CKPT_TRY(ckpt_source_read(place->source, place->file, place->offset + at, head, n_head, err));
    const bool is_sure = is_stream || (n == 0 && (ckpt_scan_is_object(place) || ckpt_torch_is_stream(head, n_head)));
    if (!is_sure && ckpt_pickle_opcode_name(head[0]) == NULL) break;
    attempt a = {.place = place, .at = at, .n_text = big_text(head, n_head, n_left), .first = head[0]};
    CKPT_TRY(look_at(s, &a, is_sure, &at, &goes_on, err));
    is_stream = is_stream || (n == 0 && a.is_magic);
    has_stop = has_stop || goes_on;
    has_pickle = has_pickle || a.is_certain;
    is_broken = is_broken || (a.is_one && a.status != CKPT_OK); /* which is told */
    if (goes_on) from = at;
  }
  if (place->member != CKPT_SCAN_NO_MEMBER) return has_stop ? tell_rest(s, place, at, err) : CKPT_OK;
  if (is_stream && !is_broken && !place->is_carved) return look_behind_stream(s, place, err);
  return has_pickle && !is_broken && !is_stream && !place->is_carved ? tell_rest(s, place, from, err) : CKPT_OK;
}
