/* proving.h - what the verbs that read everything and write nothing share: hash, diff, verify, ls --stats. */
#ifndef CKPT_TOOLS_REPORT_PROVING_H
#define CKPT_TOOLS_REPORT_PROVING_H

#include "libckpt/recipe/compare/prove.h"
#include "tools/cli/options.h"
#include "tools/report/json_writer.h"

/* Runs a proof as the command line says (memory, threads, trace, progress, signals). With --plan its plan is printed
 * instead, and *is_printed is set: then there is nothing more to say. */
ckpt_status ckpt_proving_run(const ckpt_args *args, const ckpt_proof *proof, bool *is_printed, ckpt_error *err);

/* What --plan takes reading and writing to cost: it says so beside the time. */
#define CKPT_PLANNED_BYTES_PER_SECOND 1e9

/* What a verb that writes nothing would read. */
typedef struct ckpt_planned {
  uint64_t n_bytes_read;    /* of tensors */
  uint64_t n_bytes_fetched; /* with the gaps between short runs */
  uint64_t peak;
} ckpt_planned;

/* The end of a plan on stdout: a line, or the JSON object after "rows". */
void ckpt_proving_print_planned(const ckpt_planned *planned);
void ckpt_proving_emit_planned(const ckpt_args *args, const ckpt_planned *planned, ckpt_emitter *json);

/* A whole plan of a verb that runs none: row (NULL: it reads headers alone), then the end. */
void ckpt_proving_plan(const ckpt_args *args, const char *row, const ckpt_planned *planned);

/* One line of a list of sums, as sha256sum writes them and ckpt hash does. */
typedef struct ckpt_listed {
  const char *sum;  /* the text before the two spaces */
  const char *path; /* unescaped */
  uint32_t line;
} ckpt_listed;

/* Reads a list; path "-" is stdin. A line that is not `<sum>  <path>` with a sum that is_sum accepts is EFORMAT (what
 * says what it should be), or, where n_malformed is not NULL, noted and counted there; a list without any other line is
 * EFORMAT. Empty lines and those that begin with # do not count. A fifo from which nothing comes within a second is
 * EINVAL. Memory from the args' arena. */
ckpt_status ckpt_proving_read_list(ckpt_listed **out, size_t *n, ckpt_args *args, const char *path,
                                   bool (*is_sum)(const char *text), const char *what, size_t *n_malformed,
                                   ckpt_error *err);

/* `<sum>  <path>` on stdout, with a backslash in front where path had to be escaped, as sha256sum does. */
void ckpt_proving_print_sum(const char *sum, const char *path);

#endif
