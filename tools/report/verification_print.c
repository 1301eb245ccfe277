/* verification_print.c - what `ckpt verify` found, as text and as JSON. */
#include <stdio.h>

#include "tools/cli/text.h"
#include "tools/report/json_writer.h"
#include "tools/report/report.h"
#include "tools/report/verification.h"

static void print_findings(const ckpt_verification *v) {
  static const char *const heads[] = {"problem", "warning", "proven", "not proven"};
  char count[32];
  const ckpt_findings *findings = &v->findings;
  for (int kind = 0; kind < CKPT_N_FINDING_KINDS; kind++)
    for (size_t i = 0; i < findings->n; i++) {
      const ckpt_finding *finding = &findings->items[i];
      if ((int)finding->kind != kind) continue;
      printf("%s: ", heads[kind]);
      if (finding->file != NULL) ckpt_text_print(stdout, finding->file), fputs(": ", stdout);
      if (finding->tensor != NULL)
        fputs("tensor '", stdout), ckpt_text_print(stdout, finding->tensor), fputs("': ", stdout);
      char text[2560];
      ckpt_text_print(stdout, ckpt_report_finding_text(finding, text, sizeof text));
      putchar('\n');
      if (finding->n_more != 0)
        printf("%s: ... and %s more of this kind\n", heads[kind], ckpt_text_count(finding->n_more, count));
    }
}

/* Tensors that are not broken, and their bytes. */
static uint64_t count_whole(const ckpt_verification *v, uint64_t *n_bytes) {
  const ckpt_index *index = v->input.index;
  *n_bytes = 0;
  if (index == NULL) return 0;
  for (uint32_t i = 0; i < index->n_tensors; i++) *n_bytes += index->tensors[i].n_bytes;
  *n_bytes -= v->n_undecoded_bytes;
  return index->n_tensors - v->n_undecoded;
}

static void print_text(const ckpt_verification *v) {
  char digest[80], count[32], size[32];
  const ckpt_index *index = v->input.index;
  size_t n_problems = v->findings.n_of[CKPT_PROBLEM], n_warnings = v->findings.n_of[CKPT_WARNING];
  uint64_t n_bytes, n_tensors = count_whole(v, &n_bytes);
  print_findings(v);
  ckpt_text_print(stdout, v->args->inputs[0]);
  fputs(": ", stdout);
  if (n_problems == 0) fputs("ok", stdout);
  if (n_problems != 0) printf("%zu problem%s", n_problems, ckpt_plural(n_problems));
  if (n_warnings != 0) printf(", %zu warning%s", n_warnings, ckpt_plural(n_warnings));
  if (index != NULL)
    printf(", %s tensor%s, %s", ckpt_text_count(n_tensors, count), ckpt_plural(n_tensors),
           ckpt_text_size(n_bytes, size));
  if (v->is_formed) printf(", %s", ckpt_digest_text(&v->content, digest));
  if (v->is_formed && v->cast != CKPT_DTYPE_NONE) printf(" (values as %s)", ckpt_dtype_name(v->cast));
  putchar('\n');
}

static void write_list(ckpt_emitter *json, const ckpt_verification *v, const char *key, ckpt_finding_kind kind) {
  ckpt_emit_array(json, key);
  for (size_t i = 0; i < v->findings.n; i++) {
    const ckpt_finding *finding = &v->findings.items[i];
    if (finding->kind != kind) continue;
    char text[2560];
    (void)ckpt_report_finding_text(finding, text, sizeof text);
    if (kind == CKPT_PROVEN || kind == CKPT_UNPROVEN) {
      ckpt_emit_text(json, NULL, text);
      continue;
    }
    ckpt_emit_object(json, NULL);
    ckpt_emit_text(json, "file", finding->file);
    ckpt_emit_text(json, "tensor", finding->tensor);
    ckpt_emit_text(json, "message", text);
    if (finding->n_more != 0) ckpt_emit_u64(json, "n_more", finding->n_more);
    ckpt_emit_end(json);
  }
  ckpt_emit_end(json);
}

static void write_json(const ckpt_verification *v) {
  char digest[80];
  const ckpt_index *index = v->input.index;
  uint64_t n_bytes, n_tensors = count_whole(v, &n_bytes);
  ckpt_emitter json;
  ckpt_emit_begin(&json, stdout);
  ckpt_emit_object(&json, NULL);
  ckpt_emit_text(&json, "status", v->findings.n_of[CKPT_PROBLEM] == 0 ? "ok" : "problems");
  write_list(&json, v, "problems", CKPT_PROBLEM);
  write_list(&json, v, "warnings", CKPT_WARNING);
  write_list(&json, v, "proven", CKPT_PROVEN);
  write_list(&json, v, "unproven", CKPT_UNPROVEN);
  ckpt_emit_u64(&json, "n_problems", v->findings.n_of[CKPT_PROBLEM]);
  ckpt_emit_u64(&json, "n_warnings", v->findings.n_of[CKPT_WARNING]);
  ckpt_emit_u64(&json, "n_tensors", n_tensors);
  ckpt_emit_u64(&json, "n_bytes", n_bytes);
  ckpt_emit_text(&json, "weights", index == NULL ? NULL : index->weights);
  ckpt_emit_text(&json, "digest", v->is_formed ? ckpt_digest_text(&v->content, digest) : NULL);
  ckpt_emit_text(&json, "cast", v->cast == CKPT_DTYPE_NONE ? NULL : ckpt_dtype_name(v->cast));
  ckpt_report_emit_notes(v->args, &json, NULL, 0);
  ckpt_emit_end(&json);
}

/* Notes of the index that are no problems: those that are stand among the results. */
static void print_notes(const ckpt_verification *v) {
  const ckpt_index *index = v->input.index;
  for (uint32_t i = 0; index != NULL && i < index->n_notes; i++)
    if (!index->notes[i].is_problem) ckpt_report_note_of(v->args, index->path, &index->notes[i], index->notes[i].text);
}

void ckpt_verification_print(const ckpt_verification *v) {
  print_notes(v);
  if (v->args->json)
    write_json(v);
  else
    print_text(v);
}
