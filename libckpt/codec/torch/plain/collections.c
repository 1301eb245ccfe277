/* collections.c - Python's own values in an object that is written: defaultdict, deque, frozenset, dates, paths.
 *
 *   defaultdict(factory), and what was set in it     -> defaultdict(factory, {...})
 *   deque((), most items), and what was appended     -> deque([...], most items)
 *
 * Weights-only loading takes them once it was told to, but sets items in a dict and appends to a list alone: what they
 * hold is an argument where they are written. Read, both forms are the same to the namer (codec/torch/read/names.c). */
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/codec/pickle/pickle.h"
#include "libckpt/codec/torch/plain/safe.h"
#include "libckpt/codec/torch/read/graph.h"

/* A call with at most n arguments, and this among its extras at most. */
static bool is_call(const ckpt_object *node, const char *class, uint64_t n, ckpt_object_extra extra) {
  return ckpt_foreign_is(node, "collections", class) && node->form == CKPT_FORM_CALL && node->n <= n &&
         (node->extras & ~(uint32_t)extra) == 0;
}

/* Whether a class makes an empty value; what to tell weights-only loading of it. Python 2, of whose names protocol 2
 * is, called two of them otherwise. */
static bool is_factory(const ckpt_object *name, const char **shown) {
  static const char *const names[][2] = {{"dict", "dict"},   {"list", "list"}, {"int", "int"},
                                         {"float", "float"}, {"set", "set"},   {"str", "str"},
                                         {"tuple", "tuple"}, {"long", "int"},  {"unicode", "str"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    *shown = names[i][1];
    if (ckpt_foreign_is_name(name, "builtins", names[i][0]) || ckpt_foreign_is_name(name, "__builtin__", names[i][0]))
      return true;
  }
  *shown = "collections.OrderedDict";
  return ckpt_foreign_is_name(name, "collections", "OrderedDict");
}

/* A call of two arguments with the name of another. */
static ckpt_status make_call(ckpt_object **out, const ckpt_object *node, const ckpt_object *first,
                             const ckpt_object *second, ckpt_arena *arena, ckpt_error *err) {
  CKPT_TRY_ALLOC(*out = ckpt_object_new(arena, CKPT_OBJECT_FOREIGN, 2, node->name), err);
  (*out)->name = node->name; /* the same text: it is printed once */
  (*out)->n_module = node->n_module;
  (*out)->items[0] = (ckpt_object *)(uintptr_t)first;
  (*out)->items[1] = (ckpt_object *)(uintptr_t)second;
  return CKPT_OK;
}

static ckpt_status take_defaultdict(ckpt_torch_collection *out, const ckpt_object *node, ckpt_arena *arena,
                                    ckpt_error *err) {
  const ckpt_object *none, *set = ckpt_object_extra_of(node, CKPT_EXTRA_DICT), *factory = ckpt_foreign_arg(node, 0);
  const char *shown = NULL;
  if (node->n == 2 && set == NULL && node->items[1]->kind == CKPT_OBJECT_DICT) set = node->items[1];
  if (node->n == 2 && set != node->items[1]) return CKPT_OK;
  CKPT_TRY_ALLOC(none = ckpt_object_none(arena), err);
  if (factory == NULL) factory = none;
  if (factory->kind != CKPT_OBJECT_NONE && !is_factory(factory, &shown)) return CKPT_OK;
  if (set == NULL) CKPT_TRY_ALLOC(set = ckpt_object_new(arena, CKPT_OBJECT_DICT, 0, NULL), err);
  CKPT_TRY_ALLOC(out->globals = ckpt_arena_printf(arena, "collections.defaultdict%s%s", shown == NULL ? "" : ", ",
                                                  shown == NULL ? "" : shown),
                 err);
  out->what = "collections.defaultdict";
  out->first = 1;
  return make_call(&out->node, node, factory, set, arena, err);
}

static ckpt_status take_deque(ckpt_torch_collection *out, const ckpt_object *node, ckpt_arena *arena, ckpt_error *err) {
  const ckpt_object *none, *appended = ckpt_object_extra_of(node, CKPT_EXTRA_LIST), *given = ckpt_foreign_arg(node, 0);
  const bool is_empty = given == NULL || (given->kind == CKPT_OBJECT_TUPLE && given->n == 0);
  const bool is_list = given != NULL && given->kind == CKPT_OBJECT_LIST && given->name == NULL && given->extras == 0;
  const ckpt_object *most = ckpt_foreign_arg(node, 1);
  if (!is_empty && (!is_list || appended != NULL)) return CKPT_OK;
  CKPT_TRY_ALLOC(none = ckpt_object_none(arena), err);
  if (most == NULL) most = none;
  if (most->kind != CKPT_OBJECT_NONE && most->kind != CKPT_OBJECT_INT) return CKPT_OK;
  if (is_list) appended = given;
  if (appended == NULL) CKPT_TRY_ALLOC(appended = ckpt_object_new(arena, CKPT_OBJECT_LIST, 0, NULL), err);
  out->what = out->globals = "collections.deque";
  return make_call(&out->node, node, appended, most, arena, err);
}

const ckpt_object *ckpt_torch_held_by(const ckpt_object *node) {
  const ckpt_object *held = ckpt_torch_attributes(node);
  if (held == NULL && is_call(node, "defaultdict", 2, CKPT_EXTRA_DICT)) {
    held = ckpt_object_extra_of(node, CKPT_EXTRA_DICT);
    if (held == NULL && node->n == 2 && node->items[1]->kind == CKPT_OBJECT_DICT) held = node->items[1];
  } else if (held == NULL && is_call(node, "deque", 2, CKPT_EXTRA_LIST)) {
    held = ckpt_object_extra_of(node, CKPT_EXTRA_LIST);
    if (held == NULL && node->n != 0 && node->items[0]->kind == CKPT_OBJECT_LIST) held = node->items[0];
  }
  return held == NULL ? node : held;
}

/* A class whose call with plain arguments makes a value; NULL: none of these. Python 3.13 has paths in pathlib._local.
 */
static const char *value_class(const ckpt_object *node) {
  static const char *const names[] = {"datetime.datetime",
                                      "datetime.date",
                                      "datetime.time",
                                      "datetime.timedelta",
                                      "datetime.timezone",
                                      "pathlib.PosixPath",
                                      "pathlib.PurePosixPath",
                                      "pathlib.WindowsPath",
                                      "pathlib.PureWindowsPath",
                                      "pathlib._local.PosixPath",
                                      "pathlib._local.PurePosixPath",
                                      "pathlib._local.WindowsPath",
                                      "pathlib._local.PureWindowsPath"};
  if (node->kind != CKPT_OBJECT_FOREIGN || node->form != CKPT_FORM_CALL || node->extras != 0) return NULL;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(node->name, names[i]) == 0) return names[i];
  return NULL;
}

ckpt_status ckpt_torch_collection_of(ckpt_torch_collection *out, const ckpt_object *node, ckpt_arena *arena,
                                     ckpt_error *err) {
  *out = (ckpt_torch_collection){.what = NULL};
  if (node->kind == CKPT_OBJECT_SET && node->name != NULL && strcmp(node->name, CKPT_PICKLE_FROZENSET) == 0) {
    *out = (ckpt_torch_collection){"frozenset", "frozenset", (ckpt_object *)(uintptr_t)node, 0};
    return CKPT_OK;
  }
  const char *class = value_class(node);
  if (class != NULL) *out = (ckpt_torch_collection){class, class, (ckpt_object *)(uintptr_t)node, 0};
  if (is_call(node, "defaultdict", 2, CKPT_EXTRA_DICT)) return take_defaultdict(out, node, arena, err);
  if (is_call(node, "deque", 2, CKPT_EXTRA_LIST)) return take_deque(out, node, arena, err);
  return CKPT_OK;
}
