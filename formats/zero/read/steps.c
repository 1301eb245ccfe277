/* steps.c - whether the files of a ZeRO checkpoint are of one save, as far as the steps in them tell.
 *
 * Model files say how many steps the run has made (global_steps), optimizer files how many the optimizer has. Those are
 * as many, without what overflowed (skipped_steps), or one more, which makes the states (BF16_Optimizer, all before
 * 0.14), unless the optimizer began anew in mid-run, or the run from another one's optimizer. */
#include <stdio.h>
#include <string.h>

#include "formats/zero/read/zero.h"
#include "libckpt/base/error.h"

/* ---- what files say ---------------------------------------------------------------------------------------------- */

static int64_t steps_of(const ckpt_zero_file *file) {
  return ckpt_zero_number(ckpt_object_get(file->graph.root, "global_steps"));
}

static const char *name_of(const ckpt_zero_file *file) {
  const char *slash = strrchr(file->path, '/');
  return slash == NULL ? file->path : slash + 1;
}

ckpt_status ckpt_zero_step_of(const ckpt_zero *zero, const ckpt_zero_file *file, const ckpt_object *said, int64_t *step,
                              ckpt_error *err) {
  const ckpt_tensor *tensor = ckpt_zero_tensor(file, said);
  ckpt_object number = {.kind = CKPT_OBJECT_NONE};
  bool is_number;
  if (tensor != NULL) {
    CKPT_TRY(ckpt_zero_read_number(&number, &is_number, zero, tensor, err));
    said = &number;
  }
  *step = ckpt_zero_number(said);
  if (said != NULL && said->kind == CKPT_OBJECT_FLOAT && said->number >= 0 && said->number < 0x1p60)
    *step = (int64_t)said->number;
  return CKPT_OK;
}

static bool is_number(const ckpt_object *said) {
  return said != NULL && (said->kind == CKPT_OBJECT_INT || said->kind == CKPT_OBJECT_FLOAT);
}

static double number_of(const ckpt_object *said) {
  return said->kind == CKPT_OBJECT_INT ? (double)said->integer : said->number;
}

ckpt_status ckpt_zero_take_step(ckpt_zero *zero, uint32_t group, const ckpt_object *said, ckpt_error *err) {
  ckpt_arena *arena = &zero->index->arena;
  if (!is_number(said) || group >= zero->n_groups) return CKPT_OK;
  if (zero->steps == NULL) CKPT_TRY_ALLOC(zero->steps = ckpt_arena_array(arena, zero->n_groups, sizeof(void *)), err);
  const ckpt_object **step = &zero->steps[group];
  if (*step != NULL && number_of(*step) != number_of(said))
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                     "group %u of the optimizer is at step %.17g in it, and at step %.17g before: one would be lost",
                     group, number_of(said), number_of(*step));
  if (*step != NULL) return CKPT_OK;
  *step =
      said->kind == CKPT_OBJECT_INT ? ckpt_object_int(arena, said->integer) : ckpt_object_float(arena, said->number);
  CKPT_TRY_ALLOC(*step, err);
  return CKPT_OK;
}

ckpt_status ckpt_zero_step_for(const ckpt_zero *zero, uint64_t group, const ckpt_object **step, ckpt_error *err) {
  const ckpt_object *of = zero->steps == NULL || group >= zero->n_groups ? NULL : zero->steps[group];
  if (*step == NULL) *step = of;
  if (of == NULL || number_of(of) == number_of(*step)) return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, zero->index->path, NULL,
                   "sub-groups of one group of the optimizer are at steps %.17g and %.17g: one would be lost",
                   number_of(*step), number_of(of));
}

/* ---- files of one save ------------------------------------------------------------------------------------------- */

ckpt_status ckpt_zero_check_tag(const ckpt_zero *zero, const char *latest, ckpt_error *err) {
  static const char prefix[] = "global_step";
  const ckpt_zero_file *file = &zero->shards[0].file;
  const int64_t step = steps_of(file);
  long long said = -1;
  int n = 0;
  if (latest == NULL || step < 0 || strncmp(zero->folder, prefix, sizeof prefix - 1) != 0 ||
      sscanf(zero->folder + sizeof prefix - 1, "%18lld%n", &said, &n) != 1 || said == step)
    return CKPT_OK;
  const char *rest = zero->folder + sizeof prefix - 1 + n;
  if (*rest != '\0' && strcmp(rest, "_universal") != 0) return CKPT_OK; /* a name of the user's own */
  return ckpt_fail(err, CKPT_EFORMAT, file->path, NULL,
                   "of step %lld, and %s names %s: files of different saves (name the folder itself to read it)",
                   (long long)step, latest, zero->folder);
}

ckpt_status ckpt_zero_same_step(const ckpt_zero_file *file, const ckpt_zero_file *first, ckpt_error *err) {
  if (steps_of(file) == steps_of(first)) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, file->path, NULL,
                   "of step %lld, and %s is of step %lld: files of different saves", (long long)steps_of(file),
                   name_of(first), (long long)steps_of(first));
}

ckpt_status ckpt_zero_check_optimizer(ckpt_zero *zero, const ckpt_zero_file *file, int64_t step, ckpt_error *err) {
  const ckpt_zero_file *model = &zero->shards[0].file;
  const ckpt_object *root = model->graph.root;
  int64_t n_skipped = ckpt_zero_number(ckpt_object_get(root, "skipped_steps"));
  const int64_t n_made = steps_of(model);
  if (n_skipped < 0 || n_skipped > n_made) n_skipped = 0;
  const bool is_ours = ckpt_object_get(root, "ds_config") == NULL; /* the trainer's step is not the optimizer's */
  if (n_made < 0 || step < 0 || is_ours || step == n_made - n_skipped || step - 1 == n_made - n_skipped) return CKPT_OK;
  return ckpt_index_note(zero->index, true, err,
                         "%.200s: its optimizer has made %lld step%s, and %.200s says %lld and %lld skipped: files of "
                         "different saves, or an optimizer that did not begin with the run",
                         name_of(file), (long long)step, ckpt_plural((uint64_t)step), name_of(model), (long long)n_made,
                         (long long)n_skipped);
}
