/* write.c - what all files of a written DeepSpeed checkpoint are made with: containers, groups, archives. */
#include "formats/zero/write/write.h"

#include <stdio.h>
#include <string.h>

#include "formats/zero/read/zero.h"
#include "libckpt/base/error.h"
#include "libckpt/codec/side_files/side_files.h"

/* ---- containers -------------------------------------------------------------------------------------------------- */

ckpt_status ckpt_zero_dict(const ckpt_zero_run *run, uint64_t n, ckpt_object **out, ckpt_error *err) {
  CKPT_TRY_ALLOC(*out = ckpt_object_new(run->arena, CKPT_OBJECT_DICT, n, NULL), err);
  (*out)->n = 0;
  return CKPT_OK;
}

ckpt_status ckpt_zero_set(const ckpt_zero_run *run, ckpt_object *dict, const char *key, const ckpt_object *value,
                          ckpt_error *err) {
  CKPT_TRY_ALLOC(ckpt_object_put(run->arena, dict, key, value), err);
  return CKPT_OK;
}

ckpt_status ckpt_zero_list(const ckpt_zero_run *run, uint64_t n, ckpt_object **out, ckpt_error *err) {
  CKPT_TRY_ALLOC(*out = ckpt_object_new(run->arena, CKPT_OBJECT_LIST, n, NULL), err);
  return CKPT_OK;
}

ckpt_status ckpt_zero_call(const ckpt_zero_run *run, const char *name, uint64_t n, ckpt_object **out, ckpt_error *err) {
  CKPT_TRY_ALLOC(*out = ckpt_object_new(run->arena, CKPT_OBJECT_FOREIGN, n, name), err);
  (*out)->n_module = (uint32_t)(strrchr(name, '.') - name) & 0xffff;
  return CKPT_OK;
}

ckpt_status ckpt_zero_instance(const ckpt_zero_run *run, const char *name, const ckpt_object *attributes,
                               ckpt_object **out, ckpt_error *err) {
  CKPT_TRY(ckpt_zero_call(run, name, 1, out, err));
  (*out)->form = CKPT_FORM_NEW;
  (*out)->n = 0;
  (*out)->extras = CKPT_EXTRA_STATE;
  (*out)->items[0] = (ckpt_object *)(uintptr_t)attributes;
  return CKPT_OK;
}

/* ---- the optimizer's --------------------------------------------------------------------------------------------- */

/* A group as it is, but for its params, and for a step that is a state. */
static ckpt_status copy_group(const ckpt_zero_run *run, const ckpt_zero_group *group, ckpt_object **out,
                              ckpt_error *err) {
  const uint64_t n = group->object == NULL || group->object->kind != CKPT_OBJECT_DICT ? 0 : group->object->n;
  CKPT_TRY(ckpt_zero_dict(run, n + 1, out, err));
  for (uint64_t i = 0; i < n; i++) {
    const ckpt_object *key = group->object->items[2 * i];
    bool is_text = key->kind == CKPT_OBJECT_TEXT;
    if (is_text && (strcmp(key->text, "params") == 0 || strcmp(key->text, "param_names") == 0)) continue;
    if (is_text && group->has_step && strcmp(key->text, "step") == 0) continue;
    memcpy(&(*out)->items[2 * (*out)->n++], &group->object->items[2 * i], 2 * sizeof *(*out)->items);
  }
  return CKPT_OK;
}

ckpt_status ckpt_zero_groups(const ckpt_zero_run *run, ckpt_object **out, ckpt_error *err) {
  CKPT_TRY(ckpt_zero_list(run, run->n_groups, out, err));
  (*out)->n = 0;
  for (uint32_t g = 0, n; g < run->n_groups; g += n) {
    ckpt_object *copy, *params;
    for (n = 1; g + n < run->n_groups && run->groups[g + n].of == run->groups[g].of;) n++;
    CKPT_TRY(copy_group(run, &run->groups[g], &copy, err));
    CKPT_TRY(ckpt_zero_list(run, n, &params, err));
    for (uint32_t i = 0; i < n; i++) CKPT_TRY_ALLOC(params->items[i] = ckpt_object_int(run->arena, g + i), err);
    CKPT_TRY(ckpt_zero_set(run, copy, "params", params, err));
    (*out)->items[(*out)->n++] = copy;
  }
  return CKPT_OK;
}

ckpt_status ckpt_zero_say(const ckpt_zero_run *run, const char *text, ckpt_error *err) {
  const char **note = &run->layout->note;
  *note = *note == NULL ? text : ckpt_arena_printf(run->arena, "%s; %s", *note, text);
  CKPT_TRY_ALLOC(*note, err);
  return CKPT_OK;
}

bool ckpt_zero_is_bf16(const ckpt_zero_run *run) {
  if (run->engine != CKPT_ENGINE_SAID) return run->engine == CKPT_ENGINE_BF16;
  const ckpt_object *is_on =
      ckpt_object_get(ckpt_object_get(run->index->objects, CKPT_STATE_TRAINER), CKPT_TRAINER_BF16);
  return is_on != NULL && is_on->kind == CKPT_OBJECT_BOOL && is_on->boolean;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

ckpt_status ckpt_zero_lay(const ckpt_zero_run *run, const char *name, const ckpt_object *root, uint32_t n_leaves,
                          ckpt_torch_item_of *of, const void *arg, ckpt_error *err) {
  CKPT_TRY(ckpt_layout_file_add(run->layout, name, err));
  return ckpt_torch_archive_lay(run->layout, root, n_leaves, of, arg, err);
}

static void print_text(const ckpt_layout *layout, const void *arg, ckpt_stream *out) {
  (void)layout;
  ckpt_stream_text(out, arg);
}

ckpt_status ckpt_zero_lay_text(const ckpt_zero_run *run, const char *name, const char *text, ckpt_error *err) {
  CKPT_TRY(ckpt_layout_file_add(run->layout, name, err));
  return ckpt_layout_literal(run->layout, print_text, text, err);
}

ckpt_status ckpt_zero_lay_sides(const ckpt_zero_run *run, const char *dtype, ckpt_error *err) {
  for (uint32_t i = 0; i < run->index->n_side_files; i++)
    CKPT_TRY(ckpt_side_file_lay(run->layout, &run->index->side_files[i], dtype, err));
  return CKPT_OK;
}

const char *ckpt_zero_tag(const ckpt_zero_run *run) {
  const ckpt_index *from = run->index->objects_of;
  const char *tag = from == NULL || from->tag == NULL ? CKPT_STEP_TAG : from->tag;
  const size_t n = strlen(tag), n_end = sizeof CKPT_UNIVERSAL_END - 1;
  const bool is_universal = n > n_end && strcmp(tag + n - n_end, CKPT_UNIVERSAL_END) == 0;
  if (strncmp(tag, CKPT_STEP_TAG, sizeof CKPT_STEP_TAG - 1) == 0 || strchr(tag, '/') != NULL ||
      strncmp(tag, CKPT_ZERO_LATEST, sizeof CKPT_ZERO_LATEST - 1) == 0)
    return ckpt_arena_printf(run->arena, CKPT_STEP_TAG "%lld", (long long)ckpt_zero_step_said(run));
  return ckpt_arena_printf(run->arena, "%.*s", (int)(is_universal ? n - n_end : n), tag);
}
