/* side_file_lay.c - side files as files of an output; see side_file.h. */
#include "libckpt/codec/side_file.h"

#include <string.h>

#include "libckpt/codec/json_splice.h"
#include "libckpt/dtype.h"
#include "libckpt/error.h"

/* The text of config.json with key's value replaced by dtype, where it has the key and says another. */
static ckpt_status splice_dtype(ckpt_side_file *side, const char *key, const char *dtype, ckpt_arena *arena,
                                ckpt_error *err) {
  ckpt_json_place place;
  CKPT_TRY(ckpt_json_find(side->text, (size_t)side->n_bytes, key, &place, side->name, err));
  if (!place.is_found || (place.token != CKPT_JSON_STRING && place.token != CKPT_JSON_NULL)) return CKPT_OK;
  char *value = ckpt_arena_printf(arena, "\"%s\"", dtype);
  char *old = ckpt_arena_text(arena, side->text + place.start, (size_t)(place.stop - place.start));
  if (value == NULL || old == NULL) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  if (strcmp(value, old) == 0) return CKPT_OK;
  if (place.token == CKPT_JSON_STRING) { /* "torch.float32" says the same as "float32" */
    old[strlen(old) - 1] = '\0';
    ckpt_dtype said = ckpt_dtype_parse(old + 1);
    if (said != CKPT_DTYPE_NONE && said == ckpt_dtype_parse(dtype)) return CKPT_OK;
  }
  size_t n;
  CKPT_TRY(ckpt_json_splice(&side->text, &n, side->text, (size_t)side->n_bytes, key, value, arena, side->name, err));
  side->n_bytes = n;
  return CKPT_OK;
}

ckpt_status ckpt_side_file_lay(ckpt_layout *layout, const ckpt_side_file *side, const char *dtype, ckpt_error *err) {
  CKPT_TRY(ckpt_layout_file_add(layout, side->name, err));
  if (dtype == NULL || side->text == NULL || strcmp(side->name, "config.json") != 0)
    return ckpt_layout_side_file(layout, side, err);
  ckpt_side_file *spliced = ckpt_arena_alloc(layout->arena, sizeof *spliced);
  CKPT_TRY_ALLOC(spliced, err);
  *spliced = *side;
  static const char *const keys[] = {"dtype", "torch_dtype", "text_config.dtype", "text_config.torch_dtype"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    CKPT_TRY(splice_dtype(spliced, keys[i], dtype, layout->arena, err));
  return ckpt_layout_side_file(layout, spliced, err);
}
