/* saved_as.c - whether each file of a checkpoint still has the name that it was saved under. torch.save puts all
 * records of an archive below the file's name without its suffix, so that a rank's file in another's place is found.
 * Nothing else tells that in stage 3, and of experts' optimizers: parts have one size, no field says whose. Writers
 * that hand torch an open file leave "archive" there, which says nothing, as any other name does. */
#include <stdlib.h>
#include <string.h>

#include "formats/zero/read/zero.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/zip/zip.h"
#include "libckpt/format/findings.h"
#include "libckpt/index/defects.h"

static const char end[] = "_states.pt";

/* A name without what says the engine's dtype, which users change so that another engine finds the file. */
static const char *without_engine(const char *name) {
  static const char *const engines[] = {"bf16_", "fp16_"};
  for (size_t i = 0; i < sizeof engines / sizeof *engines; i++)
    if (strncmp(name, engines[i], strlen(engines[i])) == 0) return name + strlen(engines[i]);
  return name;
}

/* Takes the next number from a name, and moves *name behind it; -1: the name has no more. */
static int64_t next_number(const char **name) {
  int64_t number = 0;
  *name += strcspn(*name, "0123456789");
  if (**name == '\0') return -1;
  for (; **name >= '0' && **name <= '9'; (*name)++)
    number = number < 1000000000 ? 10 * number + (**name - '0') : number;
  return number;
}

/* Whether two names are of the same ranks: their spelling has changed between versions, and users change it. */
static bool is_same(const char *name, const char *root) {
  const char *own = without_engine(name), *then = without_engine(root);
  for (;;) {
    const int64_t a = next_number(&own), b = next_number(&then);
    if (a != b) return false;
    if (a < 0) return true;
  }
}

/* Whether a rank's file has the name that its archive was saved under. One that DeepSpeed does not give says nothing.
 */
static bool is_in_place(const char *path, const char *archive) {
  const char *name = ckpt_path_name(path);
  return !ckpt_text_ends(name, end) || !ckpt_text_ends(archive, "states") || is_same(name, archive);
}

static const char in_another_place[] = "its archive says that it was saved as %.200s.pt: it lies in another's place";

ckpt_status ckpt_zero_check_name(const char *path, const char *archive, ckpt_error *err) {
  if (archive == NULL || is_in_place(path, archive)) return CKPT_OK;
  return ckpt_advise(ckpt_fail(err, CKPT_EFORMAT, path, NULL, in_another_place, archive), err,
                     "%allow_corrupt reads it all the same");
}

/* ---- for `verify`, which looks at files that reading passes by ----------------------------------------------------
 */

/* What the archive in a file was saved as, without the suffix; *out is "" where it does not say. */
static ckpt_status find_root(char *out, size_t n_out, const ckpt_index *index, uint32_t file, ckpt_error *err) {
  uint8_t head[4] = {0};
  const uint64_t n_bytes = ckpt_source_size(index->source, file);
  ckpt_zip *zip;
  ckpt_error defect = {0};
  out[0] = '\0';
  if (n_bytes < sizeof head) return CKPT_OK;
  CKPT_TRY(ckpt_source_read(index->source, file, 0, head, sizeof head, err));
  if (!ckpt_zip_is_start(head, sizeof head)) return CKPT_OK;
  ckpt_status status = ckpt_zip_open(&zip, index->source, file, 0, n_bytes, CKPT_ZIP_MAX_BYTES, &defect);
  if (ckpt_is_defect(status) || status == CKPT_ELIMIT) return CKPT_OK; /* which is told elsewhere */
  if (status != CKPT_OK) return ckpt_fail_as(err, status, NULL, NULL, &defect);
  const char *name = ckpt_zip_count(zip) == 0 ? "" : ckpt_zip_at(zip, 0)->name;
  const size_t n = strcspn(name, "/");
  if (name[n] == '/' && n < n_out) {
    memcpy(out, name, n);
    out[n] = '\0';
  }
  ckpt_zip_free(zip);
  return CKPT_OK;
}

ckpt_status ckpt_zero_verify_names(ckpt_findings *findings, const ckpt_index *index, ckpt_error *err) {
  char root[512];
  uint32_t n_silent = 0, n_ranks = 0;
  for (uint32_t file = 0; file < ckpt_source_count(index->source); file++) {
    const char *name = ckpt_source_name(index->source, file);
    if (!ckpt_text_ends(name, end)) continue;
    const bool is_cut =
        strstr(name, "expp_rank_") != NULL || (index->parallel.stage == 3 && strstr(name, "zero_pp_rank_") != NULL);
    CKPT_TRY(find_root(root, sizeof root, index, file, err));
    n_ranks += is_cut;
    n_silent += is_cut && !ckpt_text_ends(root, "states");
    if (is_in_place(name, root)) continue;
    CKPT_TRY(ckpt_findings_add(findings, err, CKPT_PROBLEM, ckpt_source_path(index->source, file), NULL,
                               in_another_place, root));
  }
  if (n_silent == 0 || n_ranks < 2) return CKPT_OK;
  return ckpt_findings_add(findings, err, CKPT_UNPROVEN, NULL, NULL,
                           "order: %u of %u files of ranks do not say which rank's they are (they have no field that "
                           "does)",
                           n_silent, n_ranks);
}
