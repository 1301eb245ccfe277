/* format.c - looking formats up, and what their capabilities do to a description. */
#include "libckpt/format/format.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/format/objects.h"

const ckpt_format *ckpt_format_find(const char *name) {
  for (const ckpt_format *const *format = ckpt_formats; *format != NULL; format++)
    if (strcasecmp((*format)->name, name) == 0) return *format;
  return NULL;
}

static bool ends_with(const char *path, const char *suffix, size_t n_suffix) {
  size_t n_path = strlen(path);
  return n_suffix < n_path && strncasecmp(path + n_path - n_suffix, suffix, n_suffix) == 0;
}

const ckpt_format *ckpt_format_of_suffix(const char *path) {
  for (const ckpt_format *const *format = ckpt_formats; *format != NULL; format++) {
    for (const char *suffix = (*format)->suffixes; suffix != NULL && *suffix != '\0';) {
      size_t n = strcspn(suffix, " ");
      if (ends_with(path, suffix, n)) return *format;
      suffix += n + strspn(suffix + n, " ");
    }
  }
  return NULL;
}

const ckpt_format *ckpt_format_of_part(const char *path) {
  const char *name = ckpt_path_name(path);
  const size_t n_name = strlen(name);
  for (const ckpt_format *const *format = ckpt_formats; *format != NULL; format++) {
    for (const char *part = (*format)->parts; part != NULL && *part != '\0';) {
      size_t n = strcspn(part, " ");
      if ((n == n_name || (n < n_name && part[0] == '.')) && memcmp(name + n_name - n, part, n) == 0) return *format;
      part += n + strspn(part + n, " ");
    }
  }
  return NULL;
}

ckpt_caps ckpt_caps_of(const ckpt_index *index) {
  const ckpt_format *format = ckpt_format_find(index->format);
  return format == NULL ? (ckpt_caps){0} : format->caps;
}

static ckpt_status add_loss(ckpt_losses *losses, ckpt_loss_kind kind, ckpt_error *err, const char *format,
                            va_list args) {
  if (losses->n == losses->capacity) {
    uint32_t capacity = losses->capacity == 0 ? 8 : 2 * losses->capacity;
    const char **texts = ckpt_arena_array(losses->arena, capacity, sizeof *texts);
    uint8_t *marks = ckpt_arena_array(losses->arena, capacity, sizeof *marks);
    CKPT_TRY_ALLOC(texts, err);
    CKPT_TRY_ALLOC(marks, err);
    if (losses->n != 0) memcpy(texts, losses->texts, losses->n * sizeof *texts);
    if (losses->n != 0) memcpy(marks, losses->kinds, losses->n * sizeof *marks);
    losses->texts = texts;
    losses->kinds = marks;
    losses->capacity = capacity;
  }
  char text[512];
  vsnprintf(text, sizeof text, format, args);
  const char *copy = ckpt_arena_copy(losses->arena, text);
  CKPT_TRY_ALLOC(copy, err);
  losses->kinds[losses->n] = (uint8_t)kind;
  losses->texts[losses->n++] = copy;
  return CKPT_OK;
}

ckpt_status ckpt_losses_add(ckpt_losses *losses, ckpt_error *err, const char *format, ...) {
  va_list args;
  va_start(args, format);
  ckpt_status status = add_loss(losses, CKPT_LOSS_ANY, err, format, args);
  va_end(args);
  return status;
}

ckpt_status ckpt_losses_add_by_include(ckpt_losses *losses, ckpt_error *err, const char *format, ...) {
  va_list args;
  va_start(args, format);
  ckpt_status status = add_loss(losses, CKPT_LOSS_BY_INCLUDE, err, format, args);
  va_end(args);
  return status;
}

ckpt_status ckpt_losses_add_alone(ckpt_losses *losses, ckpt_error *err, const char *format, ...) {
  va_list args;
  va_start(args, format);
  ckpt_status status = add_loss(losses, CKPT_LOSS_ALONE, err, format, args);
  va_end(args);
  return status;
}

/* Refuses tensors that no cast can fit; what the caller should do is in the message. */
static ckpt_status check_tensors(const ckpt_format *format, const ckpt_index *described, ckpt_error *err) {
  for (uint32_t i = 0; i < described->n_tensors; i++) {
    const ckpt_tensor *tensor = &described->tensors[i];
    if (!(format->caps.dtypes >> tensor->dtype & 1))
      return ckpt_advise(ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, tensor->name, "%s cannot hold %s", format->name,
                                   ckpt_dtype_name(tensor->dtype)),
                         err, "convert %dtype gives it another");
    for (uint32_t axis = 0; axis < tensor->rank; axis++)
      if (tensor->shape[axis] > INT64_MAX)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, tensor->name, "axis %u has %llu elements, more than 2^63 - 1",
                         axis, (unsigned long long)tensor->shape[axis]);
    if (tensor->rank > format->caps.max_rank)
      return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, tensor->name, "%u axes, %s holds at most %u", tensor->rank,
                       format->name, format->caps.max_rank);
  }
  return CKPT_OK;
}

static ckpt_status drop_aliases(ckpt_index *described, ckpt_losses *losses, ckpt_error *err) {
  for (uint32_t i = 0; i < described->n_tensors; i++) {
    ckpt_tensor *tensor = &described->tensors[i];
    for (const char *const *alias = tensor->aliases; alias != NULL && *alias != NULL; alias++)
      CKPT_TRY(ckpt_losses_add(losses, err, "name %s (tied to %s)", *alias, tensor->name));
    tensor->aliases = NULL;
    tensor->details->n_extra_names = 0;
  }
  described->n_aliases = 0;
  return CKPT_OK;
}

/* What is known of a checkpoint whose whole object is kept stands beside that as the same nodes: the whole counts where
 * nothing of it does. */
uint64_t ckpt_objects_count(const ckpt_index *index) {
  const ckpt_object *objects = index->objects;
  uint64_t n = 0, n_whole = 0, n_left = CKPT_OBJECT_LOOKS;
  for (uint64_t i = 0; objects != NULL && i < objects->n; i++) {
    const ckpt_object *object = objects->items[2 * i + 1];
    *(object == index->whole ? &n_whole : &n) += ckpt_object_holds_more(object, &n_left);
  }
  return n != 0 ? n : n_whole;
}

bool ckpt_objects_cover(const ckpt_index *described, const ckpt_object *value, uint64_t *n_left) {
  const ckpt_index *from = described->objects_of == NULL ? described : described->objects_of;
  const ckpt_object *objects = described->objects;
  const ckpt_format *format = ckpt_format_find(from->format);
  if (format != NULL && format->is_known != NULL) return format->is_known(objects, value, n_left);
  for (uint64_t i = 0; i < objects->n; i++)
    if (objects->items[2 * i + 1] == value) return true;
  return false;
}

/* Keys of the objects that hold more than tensors, but for the whole; then those of its parts, but for what is known
 * and tensors that are not read, which are said as that. */
static void list_keys(ckpt_name_list *names, const ckpt_index *described, const ckpt_object *parts) {
  const ckpt_object *dict = parts != NULL ? parts : described->objects;
  uint64_t n_left = CKPT_OBJECT_LOOKS;
  for (uint64_t i = 0; i < dict->n; i++) {
    const ckpt_object *key = dict->items[2 * i], *value = dict->items[2 * i + 1];
    const char *name = key->kind == CKPT_OBJECT_TEXT ? key->text : "(no text)";
    if (parts == NULL && value == described->whole) continue;
    if (parts != NULL && described->objects_of != NULL && ckpt_index_is_unread(described->objects_of, name)) continue;
    if (parts != NULL && ckpt_objects_cover(described, value, &n_left)) continue;
    if (ckpt_object_holds_more(value, &n_left)) ckpt_name_list_add(names, name);
  }
}

/* What is lost with all objects: those that are known, and what else the whole has. */
static ckpt_status drop_objects(ckpt_index *described, ckpt_losses *losses, ckpt_error *err) {
  const ckpt_object *parts;
  ckpt_name_list names = {.n = 0};
  const uint64_t n = ckpt_objects_count(described);
  CKPT_TRY(ckpt_index_parts(&parts, described, err));
  if (n != 0) list_keys(&names, described, NULL);
  if (n != 0 && parts != NULL) list_keys(&names, described, parts);
  ckpt_index_set_objects(described, NULL, NULL);
  if (n == 0) return CKPT_OK;
  if (names.n == 0) return ckpt_losses_add(losses, err, "%llu object%s", (unsigned long long)n, ckpt_plural(n));
  return ckpt_losses_add(losses, err, "%zu object%s (%s)", names.n, ckpt_plural(names.n), names.text);
}

/* Numbers and arrays have no place in metadata of text alone. */
static ckpt_status drop_typed(ckpt_index *described, ckpt_losses *losses, ckpt_error *err) {
  uint32_t n = 0, n_typed = 0;
  const char *first = NULL;
  for (uint32_t i = 0; i < described->n_metadata; i++) {
    if (described->metadata[i].typed == NULL)
      described->metadata[n++] = described->metadata[i];
    else if (n_typed++ == 0)
      first = described->metadata[i].key;
  }
  described->n_metadata = n;
  if (n_typed == 0) return CKPT_OK;
  return ckpt_losses_add(losses, err, "%u metadata value%s no text (%.100s%s)", n_typed,
                         n_typed == 1 ? " that is" : "s that are", first, n_typed == 1 ? "" : ", ...");
}

/* What was one tensor, and is its parts now. */
static ckpt_status drop_composites(ckpt_index *described, ckpt_losses *losses, ckpt_error *err) {
  ckpt_name_list names = {.n = 0};
  for (uint32_t i = 0; i < described->n_composites; i++) ckpt_name_list_add(&names, described->composites[i].name);
  described->n_composites = 0;
  if (names.n == 0) return CKPT_OK;
  return names.n == 1 ? ckpt_losses_add(losses, err, "%s as one tensor (its parts are written)", names.text)
                      : ckpt_losses_add(losses, err, "%zu tensors as one each (%s: their parts are written)", names.n,
                                        names.text);
}

ckpt_status ckpt_normalize(const ckpt_format *format, ckpt_index *described, ckpt_losses *losses, ckpt_error *err) {
  if (format->normalize != NULL) CKPT_TRY(format->normalize(described, losses, err));
  CKPT_TRY(check_tensors(format, described, err));
  if (!format->caps.aliases && described->n_aliases != 0) CKPT_TRY(drop_aliases(described, losses, err));
  if (!format->caps.typed_metadata) CKPT_TRY(drop_typed(described, losses, err));
  const bool keeps_graph = format->caps.graph && described->graph != NULL; /* and with it what is one tensor there */
  if (!keeps_graph) CKPT_TRY(drop_composites(described, losses, err));
  described->n_composites = 0;
  if (!format->caps.objects && described->objects != NULL) CKPT_TRY(drop_objects(described, losses, err));
  if (!format->caps.graph && described->graph != NULL) {
    CKPT_TRY(ckpt_losses_add(losses, err, "the graph (%llu node%s)", (unsigned long long)described->n_nodes,
                             ckpt_plural(described->n_nodes)));
    described->graph = NULL;
  }
  if (!format->caps.side_files && described->n_side_files != 0) {
    CKPT_TRY(ckpt_losses_add(losses, err, "%u side file%s (%s%s)", described->n_side_files,
                             ckpt_plural(described->n_side_files), described->side_files[0].name,
                             described->n_side_files > 1 ? ", ..." : ""));
    described->n_side_files = 0;
  }
  return ckpt_index_finish(described, err);
}
