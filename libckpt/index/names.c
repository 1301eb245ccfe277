/* names.c - canonical names: what a checkpoint's writer wrapped around a model's own names is taken off again.
 *
 * Runs once between a format's open and ckpt_index_finish, over the names in the index's arena. A shorter name is
 * written over the longer one in place, so that 500,000 wrapped names cost no memory. Rules of what is a wrapper, and
 * how they are recorded ("hf:any/1"), are part of the digest's naming: docs/digest.md. */
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/index/arch.h"
#include "libckpt/index/config.h"
#include "libckpt/index/ties.h"

/* Torch's compile, FSDP and activation checkpointing; `module.` is DDP's and counts only at the start. */
static const char *const wrappers[] = {"_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "module."};
enum { N_WRAPPERS = sizeof wrappers / sizeof *wrappers, N_INNER_WRAPPERS = N_WRAPPERS - 1 };

typedef struct namer {
  ckpt_index *index;
  const ckpt_arch *arch;  /* NULL if unknown */
  const ckpt_index *like; /* the model of --like, or NULL */
  bool changed;           /* some name is no longer the stored one */
  bool is_by_rank;        /* some tie has another name than the first in byte order */
} namer;

/* ---- one name ---------------------------------------------------------------------------------------------- */

/* Bytes of wrappers at text, which something must follow. */
static size_t wrapped_bytes(const char *text, size_t n, size_t n_wrappers) {
  size_t at = 0;
  for (size_t w = 0; w < n_wrappers; w++) {
    size_t n_wrapper = strlen(wrappers[w]);
    if (n - at <= n_wrapper || memcmp(text + at, wrappers[w], n_wrapper) != 0) continue;
    at += n_wrapper;
    w = SIZE_MAX; /* they nest in any order: look again from the first */
  }
  return at;
}

/* Copies text[0, n) without wrapper components, at most n_out bytes; how many. out may be text. */
static size_t copy_unwrapped(char *out, size_t n_out, const char *text, size_t n) {
  size_t n_kept = 0, at = wrapped_bytes(text, n, N_WRAPPERS);
  while (at < n && n_kept < n_out) {
    char c = out[n_kept++] = text[at++];
    if (c == '.') at += wrapped_bytes(text + at, n - at, N_INNER_WRAPPERS);
  }
  return n_kept;
}

/* Whether it would be a state's name without them: what is written under it would be read as one. */
static bool is_state_unwrapped(const char *text, size_t n) {
  char head[sizeof CKPT_STATE_PREFIX - 1];
  return copy_unwrapped(head, sizeof head, text, n) == sizeof head && memcmp(head, CKPT_STATE_PREFIX, sizeof head) == 0;
}

/* Removes wrapper components from text[0, n) in place; the new length. */
static size_t unwrap(char *text, size_t n) {
  return is_state_unwrapped(text, n) ? n : copy_unwrapped(text, n, text, n);
}

/* Whether wrapper components stand in text[0, n) that unwrap takes off. */
static bool is_wrapped(const char *text, size_t n) {
  if (is_state_unwrapped(text, n)) return false;
  if (wrapped_bytes(text, n, N_WRAPPERS) != 0) return true;
  for (size_t at = 1; at < n; at++)
    if (text[at - 1] == '.' && wrapped_bytes(text + at, n - at, N_INNER_WRAPPERS) != 0) return true;
  return false;
}

const char *ckpt_name_unwrapped(const char *name, ckpt_arena *arena) {
  size_t n = strlen(name);
  if (!is_wrapped(name, n)) return name;
  char *copy = ckpt_arena_text(arena, name, n);
  if (copy != NULL) copy[unwrap(copy, n)] = '\0';
  return copy;
}

/* The part of a name that is a parameter's: all of it, or P in `optimizer.state.P.leaf`. */
static size_t parameter_part(const char *name, size_t *n) {
  const char *parameter = ckpt_state_parameter(name, n);
  if (parameter != NULL) return (size_t)(parameter - name);
  *n = strlen(name);
  return 0;
}

static bool knows(const ckpt_arch *arch, const char *name) {
  uint64_t numbers[2];
  return ckpt_arch_match(arch, name, numbers) != NULL || ckpt_arch_match_joined(arch, name, numbers) != NULL;
}

/* Whether the row knows base_prefix + name[start, start + n) and not the part as it stands; *prefixed is then the whole
 * name with it, in the arena. */
static ckpt_status add_base_prefix(namer *naming, const char *name, size_t start, size_t n, const char **prefixed,
                                   ckpt_error *err) {
  const ckpt_arch *arch = naming->arch;
  size_t n_prefix = strlen(arch->base_prefix);
  char bare[256]; /* longer than any name of a row: what does not fit matches nothing */
  if (n >= sizeof bare - n_prefix) return CKPT_OK;
  memcpy(bare, arch->base_prefix, n_prefix);
  memcpy(bare + n_prefix, name + start, n);
  bare[n_prefix + n] = '\0';
  if (knows(arch, bare + n_prefix) || !knows(arch, bare)) return CKPT_OK;
  *prefixed = ckpt_arena_printf(&naming->index->arena, "%.*s%s%s", (int)start, name, bare, name + start + n);
  CKPT_TRY_ALLOC(*prefixed, err);
  naming->changed = true;
  return CKPT_OK;
}

/* Makes *name canonical. Names are the index's own arena text, so that unwrapping in place is ours to do. */
static ckpt_status canonical(namer *naming, const char **name, ckpt_error *err) {
  char *text = (char *)(uintptr_t)*name;
  size_t n, start = parameter_part(text, &n), n_kept = unwrap(text + start, n);
  if (n_kept != n) {
    memmove(text + start + n_kept, text + start + n, strlen(text + start + n) + 1);
    naming->changed = true;
  }
  return naming->arch == NULL ? CKPT_OK : add_base_prefix(naming, text, start, n_kept, name, err);
}

/* Counts a stored name that will be unwrapped, and keeps the first. */
static ckpt_status note_wrapped(ckpt_index *index, const char *name, ckpt_error *err) {
  size_t n, start = parameter_part(name, &n);
  if (!is_wrapped(name + start, n)) return CKPT_OK;
  if (index->n_wrapped++ == 0) index->first_wrapped = ckpt_arena_copy(&index->arena, name);
  CKPT_TRY_ALLOC(index->first_wrapped, err);
  return CKPT_OK;
}

/* ---- all names --------------------------------------------------------------------------------------------- */

/* Whether name is the kept side of a tie. */
static bool is_kept(const ckpt_arch *arch, const char *name) {
  for (const ckpt_arch_tie *tie = arch == NULL ? NULL : arch->ties; tie != NULL && tie->kept != NULL; tie++)
    if (strcmp(tie->kept, name) == 0) return true;
  return false;
}

/* Calls an alias group of no known family by the name that ranks first (ties.h). */
static void choose_by_rank(namer *naming, ckpt_tensor *tensor) {
  const char **aliases = (const char **)(uintptr_t)tensor->aliases;
  size_t n = 0, best = SIZE_MAX;
  while (aliases != NULL && aliases[n] != NULL) n++;
  for (size_t i = 0; i + tensor->details->n_extra_names < n; i++) {
    const char *name = best == SIZE_MAX ? tensor->name : aliases[best];
    const int by = ckpt_tie_rank(aliases[i], naming->like) - ckpt_tie_rank(name, naming->like);
    if (by < 0 || (by == 0 && strcmp(aliases[i], name) < 0)) best = i;
  }
  if (best == SIZE_MAX) return;
  const char *name = tensor->name;
  tensor->name = aliases[best];
  aliases[best] = name;
  naming->is_by_rank = true;
}

/* Calls an alias group by the kept name of a tie (arch may be NULL), else by its first name in byte order; names by
 * which it is nothing of the model's do not count. */
static void choose_name(const ckpt_arch *arch, ckpt_tensor *tensor) {
  const char **aliases = (const char **)(uintptr_t)tensor->aliases;
  size_t n = 0;
  while (aliases != NULL && aliases[n] != NULL) n++;
  for (size_t i = 0; i + tensor->details->n_extra_names < n; i++) {
    if (is_kept(arch, tensor->name) || (!is_kept(arch, aliases[i]) && strcmp(tensor->name, aliases[i]) < 0)) continue;
    const char *name = tensor->name;
    tensor->name = aliases[i];
    aliases[i] = name;
  }
}

static ckpt_status canonical_tensor(namer *naming, ckpt_tensor *tensor, ckpt_error *err) {
  if (tensor->role == CKPT_ROLE_OTHER) {
    choose_name(NULL, tensor);
    return CKPT_OK;
  }
  CKPT_TRY(note_wrapped(naming->index, tensor->name, err));
  CKPT_TRY(canonical(naming, &tensor->name, err));
  if (tensor->aliases != NULL) {
    const char **aliases = (const char **)(uintptr_t)tensor->aliases;
    for (size_t i = 0; aliases[i] != NULL; i++) CKPT_TRY(canonical(naming, &aliases[i], err));
    choose_name(naming->arch, tensor);
    if (naming->arch == NULL && naming->index->naming_revision > 1) choose_by_rank(naming, tensor);
  }
  uint64_t numbers[2];
  const ckpt_arch_name *row = naming->arch == NULL ? NULL : ckpt_arch_match(naming->arch, tensor->name, numbers);
  if (row != NULL && tensor->role == CKPT_ROLE_PARAMETER) tensor->role = (uint8_t)row->role;
  return CKPT_OK;
}

/* ---- ties -------------------------------------------------------------------------------------------------- */

bool ckpt_arch_states_tie(const ckpt_index *index, const char *kept, const char *tied) {
  const ckpt_arch *arch = ckpt_arch_find(index->architecture);
  if (ckpt_index_side_file(index, "config.json") == NULL) return false;
  if (arch == NULL) return ckpt_ties_state(index, kept, tied);
  for (uint32_t t = 0; t < CKPT_MAX_TIES && arch->ties[t].kept != NULL; t++)
    if ((index->ties >> t & 1) != 0 && strcmp(arch->ties[t].kept, kept) == 0 && strcmp(arch->ties[t].tied, tied) == 0)
      return true;
  return false;
}

static bool is_named(const ckpt_tensor *tensor, const char *name) {
  const char *const *alias = tensor->aliases;
  if (strcmp(tensor->name, name) == 0) return true;
  while (*alias != NULL && strcmp(*alias, name) != 0) alias++;
  return *alias != NULL;
}

ckpt_status ckpt_arch_unstated_tie(const ckpt_index *index, const char *architecture, ckpt_arena *arena,
                                   const char **note, ckpt_error *err) {
  *note = NULL;
  if (architecture[0] != '\0' || index->is_stored) return CKPT_OK;
  for (uint32_t i = 0; i < index->n_tensors && index->n_aliases != 0; i++) {
    const ckpt_tensor *tensor = &index->tensors[i];
    if (tensor->aliases == NULL || !ckpt_role_is_model((ckpt_role)tensor->role)) continue;
    for (const ckpt_arch *const *arch = ckpt_archs; *arch != NULL; arch++)
      for (const ckpt_arch_tie *tie = (*arch)->ties; tie->kept != NULL; tie++) {
        const char *name = tensor->name;
        if (!is_named(tensor, tie->kept) || !is_named(tensor, tie->tied) || strcmp(name, tie->kept) == 0) continue;
        *note = ckpt_arena_printf(arena,
                                  "tied weights are hashed as %s here and as %s where a config.json is: the digest is "
                                  "another one there",
                                  name, tie->kept);
        CKPT_TRY_ALLOC(*note, err);
        return CKPT_OK;
      }
  }
  return CKPT_OK;
}

/* The tensor with this name, by number; aliases too. n_tensors if there is none. */
static uint32_t find_unsorted(const ckpt_index *index, const char *name) {
  uint32_t i = 0;
  for (; i < index->n_tensors; i++) {
    if (strcmp(index->tensors[i].name, name) == 0) break;
    const char *const *alias = index->tensors[i].aliases;
    while (alias != NULL && *alias != NULL && strcmp(*alias, name) != 0) alias++;
    if (alias != NULL && *alias != NULL) break;
  }
  return i;
}

/* A pair that the config ties is one tensor: where one of the two is stored, the other becomes its alias. */
static ckpt_status apply_tie(ckpt_index *index, uint32_t number, const ckpt_arch_tie *tie, ckpt_error *err) {
  index->ties |= UINT32_C(1) << number;
  uint32_t kept = find_unsorted(index, tie->kept), tied = find_unsorted(index, tie->tied), none = index->n_tensors;
  if (kept == none) index->ties_without[0] |= UINT32_C(1) << number;
  if (tied == none) index->ties_without[1] |= UINT32_C(1) << number;
  if (kept != none && tied == none) return ckpt_index_alias(index, kept, tie->tied, err);
  if (kept != none || tied == none) return CKPT_OK;
  CKPT_TRY(ckpt_index_alias(index, tied, tie->kept, err));
  choose_name(ckpt_arch_find(index->architecture), &index->tensors[tied]);
  return CKPT_OK;
}

/* Of names that releases call one tensor by, the one that is stored is tied, else the first. */
static bool stands_aside(const ckpt_index *index, const ckpt_arch *arch, const ckpt_arch_tie *tie) {
  const uint32_t none = index->n_tensors;
  if (find_unsorted(index, tie->tied) != none) return false;
  for (const ckpt_arch_tie *other = arch->ties; other->kept != NULL; other++) {
    if (other == tie || !ckpt_arch_is_one_tensor(arch, other->tied, tie->tied)) continue;
    if (other < tie || find_unsorted(index, other->tied) != none) return true;
  }
  return false;
}

static ckpt_status apply_ties(ckpt_index *index, const ckpt_arch *arch, const ckpt_config *config, ckpt_error *err) {
  for (uint32_t i = 0; i < CKPT_MAX_TIES && arch->ties[i].kept != NULL; i++) {
    bool is_tied = arch->ties[i].by_default;
    const char *key = arch->ties[i].config_key;
    if (!ckpt_config_bool(config, key, &is_tied) && ckpt_config_has(config, key)) {
      char shown[40];
      ckpt_config_show(config, key, shown, sizeof shown);
      const ckpt_side_file *side = ckpt_index_side_file(index, "config.json");
      if (side != NULL &&
          index->source != NULL) { /* else it is another's: of --like, or of what an output was made of */
        CKPT_TRY(ckpt_index_problem(index, side->file, err, "%s is neither true nor false (%s), taken as %s", key,
                                    shown, is_tied ? "true" : "false"));
        CKPT_TRY(ckpt_index_note_is(index, CKPT_NOTE_KEY, key, err));
      }
    }
    if (is_tied && stands_aside(index, arch, &arch->ties[i])) {
      index->ties |= UINT32_C(1) << i;
      index->ties_without[1] |= UINT32_C(1) << i;
    } else if (is_tied) {
      CKPT_TRY(apply_tie(index, i, &arch->ties[i], err));
    }
  }
  return CKPT_OK;
}

/* ---- names in objects -------------------------------------------------------------------------------------- */

/* The texts of a list, copies of which are canonical. */
static ckpt_status canonical_texts(namer *naming, ckpt_object *list, ckpt_error *err) {
  ckpt_arena *arena = &naming->index->arena;
  for (uint64_t i = 0; i < list->n; i++) {
    const ckpt_object *text = list->items[i];
    if (text->kind != CKPT_OBJECT_TEXT || strlen(text->text) != text->n) continue;
    const char *name = ckpt_arena_text(arena, text->text, (size_t)text->n);
    CKPT_TRY_ALLOC(name, err);
    CKPT_TRY(canonical(naming, &name, err));
    if (strcmp(name, text->text) == 0) continue;
    CKPT_TRY_ALLOC(list->items[i] = ckpt_object_text(arena, name, strlen(name)), err);
  }
  return CKPT_OK;
}

ckpt_status ckpt_index_canonical_params(ckpt_index *index, ckpt_object *params, ckpt_error *err) {
  namer naming = {.index = index, .arch = index->is_stored ? NULL : ckpt_arch_find(index->architecture)};
  return index->is_stored ? CKPT_OK : canonical_texts(&naming, params, err);
}

/* ---- the whole --------------------------------------------------------------------------------------------- */

/* The config among the side files, of which readers keep the text, else among those of `like`; *out stays NULL where
 * there is none. */
static ckpt_status read_config(const ckpt_index *index, const ckpt_index *like, ckpt_config **out, ckpt_error *err) {
  const ckpt_side_file *side = ckpt_index_side_file(index, "config.json");
  const ckpt_index *of = side == NULL && like != NULL ? like : index;
  if (of == like) side = ckpt_index_side_file(like, "config.json");
  if (side == NULL || side->text == NULL) return CKPT_OK;
  return ckpt_config_parse(out, side->text, side->n_bytes, ckpt_index_side_path(of, side), err);
}

static ckpt_status name_all(namer *naming, const ckpt_config *config, ckpt_error *err) {
  ckpt_index *index = naming->index;
  const char *model_type = "";
  if (config != NULL) (void)ckpt_config_text(config, "model_type", &model_type);
  if (index->naming_revision == UINT32_MAX) naming->arch = ckpt_arch_find(model_type); /* older rules knew it not */
  for (uint32_t i = 0; i < index->n_tensors; i++) CKPT_TRY(canonical_tensor(naming, &index->tensors[i], err));
  index->is_unwrapped = naming->changed;
  if (naming->arch == NULL && index->naming_revision > 1)
    CKPT_TRY(ckpt_index_find_ties(index, config, naming->like, err));
  if (naming->arch != NULL)
    index->names = ckpt_arena_printf(&index->arena, "hf:%s/%u", naming->arch->name, naming->arch->revision);
  else if (naming->is_by_rank || index->stated_ties != NULL)
    index->names = ckpt_arena_printf(&index->arena, "hf:any/%d", CKPT_NAMING_REVISION);
  else if (naming->changed || index->is_renamed)
    index->names = ckpt_arena_copy(&index->arena, "hf:any/1");
  CKPT_TRY_ALLOC(index->names, err);
  if (naming->arch == NULL) return CKPT_OK;
  index->architecture = naming->arch->name;
  return apply_ties(index, naming->arch, config, err);
}

uint32_t ckpt_naming_revision(const char *names) {
  static const char any[] = "hf:any/";
  if (strcmp(names, "stored") == 0) return 1;
  return strncmp(names, any, sizeof any - 1) == 0 ? (uint32_t)strtoul(names + sizeof any - 1, NULL, 10) : 0;
}

ckpt_status ckpt_index_canonical_names(ckpt_index *index, bool stored_names, const ckpt_index *like, ckpt_error *err) {
  index->names = "stored";
  index->is_stored = stored_names;
  for (uint32_t i = 0; stored_names && i < index->n_tensors; i++) choose_name(NULL, &index->tensors[i]);
  if (stored_names) return CKPT_OK;
  ckpt_config *config = NULL;
  CKPT_TRY(read_config(index, like, &config, err));
  namer naming = {.index = index, .like = like};
  ckpt_status status = name_all(&naming, config, err);
  ckpt_config_free(config);
  return status;
}
