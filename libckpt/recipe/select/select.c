/* select.c - see select.h. */
#include "libckpt/recipe/select/select.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/pattern.h"

struct ckpt_selection {
  const ckpt_convert_options *options; /* the caller's: texts for messages */
  const char *include;
  ckpt_pattern **match, **exclude, **casts; /* casts[i] NULL: every floating tensor of the model */
  ckpt_renaming **rename;
  size_t n_match, n_exclude, n_rename;
  uint64_t *n_floats;       /* floating tensors that each cast rule matched */
  uint64_t n_states;        /* floating tensors outside the model */
  uint64_t *n_cast;         /* floating tensors that each cast rule decided */
  uint64_t *n_steps, n_own; /* the patterns' budget; n_own where none was given */
  ckpt_left_out left_out;
};

bool ckpt_role_included(const char *include, ckpt_role role, bool *known) {
  bool is_model = role == CKPT_ROLE_PARAMETER || role == CKPT_ROLE_BUFFER;
  const bool is_optimizer = !is_model && role != CKPT_ROLE_OTHER;
  const bool is_all = strcmp(include, "all") == 0, is_rest = strcmp(include, "no-optimizer") == 0;
  const bool is_of_model = strcmp(include, "model") == 0;
  if (known != NULL) *known = is_all || is_rest || is_of_model || strcmp(include, "optimizer") == 0;
  if (is_all || is_rest) return is_all || !is_optimizer;
  return is_of_model ? is_model : is_optimizer;
}

static size_t count(const char *const *texts) {
  size_t n = 0;
  while (texts != NULL && texts[n] != NULL) n++;
  return n;
}

static ckpt_status compile(ckpt_pattern ***out, size_t *n_out, const char *const *texts, uint64_t *n_steps,
                           ckpt_error *err) {
  *n_out = count(texts);
  *out = calloc(*n_out + 1, sizeof **out);
  CKPT_TRY_ALLOC(*out, err);
  for (size_t i = 0; i < *n_out; i++) CKPT_TRY(ckpt_pattern_new(&(*out)[i], texts[i], n_steps, err));
  return CKPT_OK;
}

static ckpt_status compile_all(ckpt_selection *s, ckpt_error *err) {
  const ckpt_convert_options *options = s->options;
  bool known;
  ckpt_role_included(s->include, CKPT_ROLE_PARAMETER, &known);
  if (!known)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "include '%s' is none of model, optimizer, no-optimizer, all",
                     s->include);
  CKPT_TRY(compile(&s->match, &s->n_match, options->match, s->n_steps, err));
  CKPT_TRY(compile(&s->exclude, &s->n_exclude, options->exclude, s->n_steps, err));
  s->n_rename = count(options->rename);
  s->rename = calloc(s->n_rename + 1, sizeof *s->rename);
  s->casts = calloc(options->n_casts + 1, sizeof *s->casts);
  s->n_cast = calloc(options->n_casts + 1, sizeof *s->n_cast);
  s->n_floats = calloc(options->n_casts + 1, sizeof *s->n_floats);
  if (s->rename == NULL || s->casts == NULL || s->n_cast == NULL || s->n_floats == NULL)
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  for (size_t i = 0; i < s->n_rename; i++)
    CKPT_TRY(ckpt_renaming_new(&s->rename[i], options->rename[i], s->n_steps, err));
  for (size_t i = 0; i < options->n_casts; i++)
    if (options->casts[i].pattern != NULL)
      CKPT_TRY(ckpt_pattern_new(&s->casts[i], options->casts[i].pattern, s->n_steps, err));
  return CKPT_OK;
}

ckpt_status ckpt_selection_new(ckpt_selection **out, const ckpt_convert_options *options, const char *include,
                               uint64_t *n_steps, ckpt_error *err) {
  ckpt_selection *selection = calloc(1, sizeof *selection);
  CKPT_TRY_ALLOC(selection, err);
  selection->options = options;
  selection->n_own = CKPT_PATTERN_STEPS;
  selection->n_steps = n_steps != NULL ? n_steps : &selection->n_own;
  selection->include = include != NULL ? include : "model";
  ckpt_status status = compile_all(selection, err);
  if (status != CKPT_OK) {
    ckpt_selection_free(selection);
    return status;
  }
  *out = selection;
  return CKPT_OK;
}

void ckpt_selection_free(ckpt_selection *selection) {
  if (selection == NULL) return;
  for (size_t i = 0; selection->match != NULL && i < selection->n_match; i++) ckpt_pattern_free(selection->match[i]);
  for (size_t i = 0; selection->exclude != NULL && i < selection->n_exclude; i++)
    ckpt_pattern_free(selection->exclude[i]);
  for (size_t i = 0; selection->rename != NULL && i < selection->n_rename; i++)
    ckpt_renaming_free(selection->rename[i]);
  for (size_t i = 0; selection->casts != NULL && i < selection->options->n_casts; i++)
    ckpt_pattern_free(selection->casts[i]);
  free(selection->match);
  free(selection->exclude);
  free(selection->rename);
  free(selection->casts);
  free(selection->n_cast);
  free(selection->n_floats);
  free(selection);
}

/* Whether any pattern matches; every one is asked, so that each knows what it matched. */
static ckpt_status any_match(ckpt_pattern **patterns, size_t n, const char *name, bool *out, ckpt_error *err) {
  *out = false;
  for (size_t i = 0; i < n; i++) {
    bool matched = false;
    CKPT_TRY(ckpt_pattern_match(patterns[i], name, &matched, err));
    *out = *out || matched;
  }
  return CKPT_OK;
}

/* A tensor's i-th name: its own, then its aliases; NULL past the last. */
static const char *name_at(const ckpt_tensor *tensor, size_t i) {
  return i == 0 ? tensor->name : tensor->aliases == NULL ? NULL : tensor->aliases[i - 1];
}

/* The first rule that matches. A rule without a pattern is for the model: a run goes on from masters and states as they
 * are. */
static ckpt_status find_cast(ckpt_selection *s, const ckpt_tensor *tensor, ckpt_selected *out, ckpt_error *err) {
  bool is_decided = !ckpt_dtype_holds_floats((ckpt_dtype)tensor->dtype);
  s->n_states += !is_decided && !ckpt_role_is_model((ckpt_role)tensor->role);
  for (size_t i = 0; i < s->options->n_casts; i++) {
    bool matched = s->casts[i] == NULL && ckpt_role_is_model((ckpt_role)tensor->role);
    for (size_t k = 0; s->casts[i] != NULL && !matched && name_at(tensor, k) != NULL; k++)
      CKPT_TRY(ckpt_pattern_match(s->casts[i], name_at(tensor, k), &matched, err));
    s->n_floats[i] += matched && ckpt_dtype_holds_floats((ckpt_dtype)tensor->dtype);
    if (!matched || is_decided) continue;
    is_decided = true;
    s->n_cast[i]++;
    out->dtype = s->options->casts[i].dtype;
    out->is_any_cast = s->casts[i] == NULL;
  }
  return CKPT_OK;
}

/* Which of a tensor's names stay. Where its own goes, it is called by the first of the others in byte order. */
static ckpt_status choose_names(const ckpt_selection *s, const ckpt_tensor *tensor, ckpt_arena *arena,
                                ckpt_selected *out, ckpt_error *err) {
  size_t n = 0, n_aliases = 0, n_dropped = 0;
  bool known;
  const bool has_others = ckpt_role_included(s->include, CKPT_ROLE_OTHER, &known);
  while (name_at(tensor, n) != NULL) n++;
  if (n > 1) { /* most have one name, and need no lists */
    CKPT_TRY_ALLOC(out->aliases = ckpt_arena_array(arena, n, sizeof *out->aliases), err);
    CKPT_TRY_ALLOC(out->dropped = ckpt_arena_array(arena, n + 1, sizeof *out->dropped), err);
  }
  for (size_t i = 0; i < n; i++) {
    const char *name = name_at(tensor, i);
    bool matched, excluded;
    CKPT_TRY(any_match(s->match, s->n_match, name, &matched, err));
    CKPT_TRY(any_match(s->exclude, s->n_exclude, name, &excluded, err));
    const bool is_extra = i + tensor->details->n_extra_names >= n;
    if ((s->n_match != 0 && !matched) || excluded || (is_extra && !has_others)) {
      out->n_extra_dropped += is_extra && !has_others;
      if (n > 1) out->dropped[n_dropped++] = name;
      continue;
    }
    const char *other = out->name;
    if (other == NULL || (other != tensor->name && strcmp(name, other) < 0))
      out->name = name;
    else
      other = name;
    if (other != NULL) out->aliases[n_aliases++] = other;
    out->n_extra += is_extra && other == name;
  }
  if (out->name != tensor->name) out->n_extra = 0; /* they are its names now */
  if (n_aliases == 0) out->aliases = NULL;
  if (n_dropped == 0) out->dropped = NULL;
  return CKPT_OK;
}

static ckpt_status rename_one(const ckpt_selection *s, const char **name, ckpt_arena *arena, ckpt_error *err) {
  for (size_t i = 0; i < s->n_rename; i++) CKPT_TRY(ckpt_renaming_apply(s->rename[i], *name, arena, name, err));
  return CKPT_OK;
}

ckpt_status ckpt_selection_take(ckpt_selection *selection, const ckpt_tensor *tensor, ckpt_arena *arena,
                                ckpt_selected *out, ckpt_error *err) {
  ckpt_selection *s = selection;
  bool known;
  *out = (ckpt_selected){.dtype = CKPT_DTYPE_NONE};
  CKPT_TRY(choose_names(s, tensor, arena, out, err));
  if (!ckpt_role_included(s->include, (ckpt_role)tensor->role, &known)) {
    out->name = NULL;
    s->left_out.n_bytes[tensor->role] += tensor->n_bytes;
    s->left_out.n_tensors[tensor->role]++;
    return CKPT_OK;
  }
  if (out->name == NULL) {
    s->left_out.n_unmatched++;
    return CKPT_OK;
  }
  CKPT_TRY(find_cast(s, tensor, out, err));
  CKPT_TRY(rename_one(s, &out->name, arena, err));
  for (size_t i = 0; out->aliases != NULL && out->aliases[i] != NULL; i++)
    CKPT_TRY(rename_one(s, &out->aliases[i], arena, err));
  return CKPT_OK;
}

bool ckpt_states_unread(const ckpt_note *note, const char *include) {
  return note->kind == CKPT_NOTE_STATES_UNREAD && ckpt_role_included(include, CKPT_ROLE_EXP_AVG, NULL);
}

/* A file of states that is whole goes along as it is, where files do. */
static ckpt_status refuse_states(const ckpt_selection *selection, const ckpt_index *index, bool keeps_files,
                                 ckpt_error *err) {
  for (uint32_t i = 0; i < index->n_notes; i++) {
    const ckpt_note *note = &index->notes[i];
    const bool goes_along = keeps_files && !note->is_problem && note->left == NULL;
    if (!ckpt_states_unread(note, selection->include) || goes_along) continue;
    return ckpt_advise(
        ckpt_fail(err, CKPT_EUNSUPPORTED, note->file == NULL ? index->path : note->file, NULL, "%s", note->message),
        err, "%include=model goes on without");
  }
  return CKPT_OK;
}

ckpt_status ckpt_selection_refuse_unread(ckpt_selection *selection, const ckpt_index *index, bool keeps_objects,
                                         bool keeps_files, ckpt_error *err) {
  const ckpt_unread *first = NULL;
  ckpt_name_list names = {.n = 0};
  for (uint32_t i = 0; i < index->n_unread; i++) {
    const ckpt_unread *unread = &index->unread[i];
    bool is_matched, is_excluded;
    CKPT_TRY(any_match(selection->match, selection->n_match, unread->name, &is_matched, err));
    CKPT_TRY(any_match(selection->exclude, selection->n_exclude, unread->name, &is_excluded, err));
    if (is_excluded || (selection->n_match != 0 && !is_matched) || (keeps_objects && unread->is_kept) ||
        !ckpt_role_included(selection->include, unread->role, NULL))
      continue;
    if (first == NULL) first = unread;
    ckpt_name_list_add(&names, unread->name);
  }
  if (first == NULL) return refuse_states(selection, index, keeps_files, err);
  return ckpt_advise_value(
      ckpt_fail(err, CKPT_EUNSUPPORTED, index->path, first->name, "is there and not read: %s (%zu tensor%s: %s)",
                first->why, names.n, names.n == 1 ? " is not" : "s are not", names.text),
      err, "%exclude=$ leaves it out", first->name);
}

static ckpt_status refuse_idle(const char *option, const char *text, ckpt_error *err) {
  return ckpt_fail_option(err, CKPT_ENOTFOUND, NULL, option, "'%s' matches no tensor (ckpt ls lists the names%s)", text,
                          ckpt_pattern_is_word(text) ? "; a pattern is of the whole name, with * for any part" : "");
}

ckpt_status ckpt_selection_finish(const ckpt_selection *selection, ckpt_error *err) {
  const ckpt_selection *s = selection;
  for (size_t i = 0; i < s->n_match; i++)
    if (ckpt_pattern_n_matched(s->match[i]) == 0) return refuse_idle("match", s->options->match[i], err);
  for (size_t i = 0; i < s->n_exclude; i++)
    if (ckpt_pattern_n_matched(s->exclude[i]) == 0) return refuse_idle("exclude", s->options->exclude[i], err);
  for (size_t i = 0; i < s->n_rename; i++)
    if (ckpt_renaming_n_matched(s->rename[i]) == 0) return refuse_idle("rename", s->options->rename[i], err);
  for (size_t i = 0; i < s->options->n_casts; i++)
    if (s->casts[i] != NULL && ckpt_pattern_n_matched(s->casts[i]) == 0)
      return refuse_idle("dtype", s->options->casts[i].pattern, err);
  for (size_t i = 0; i < s->options->n_casts; i++) /* earlier rules took all that it matches */
    if (s->casts[i] != NULL && s->n_cast[i] == 0 && s->n_floats[i] != 0)
      return ckpt_fail_option(err, CKPT_EINVAL, NULL, "dtype",
                              "'%s=%s' decides nothing: an earlier rule matches first (put it before)",
                              s->options->casts[i].pattern, ckpt_dtype_name(s->options->casts[i].dtype));
  for (size_t i = 0; i < s->options->n_casts; i++)
    if (s->casts[i] == NULL && s->n_floats[i] == 0 && s->n_states != 0)
      return ckpt_fail_option(err, CKPT_EINVAL, NULL, "dtype",
                              "'%s' is for the model, and of %llu floating tensor%s none is (a pattern names others: "
                              "'*=%s')",
                              ckpt_dtype_name(s->options->casts[i].dtype), (unsigned long long)s->n_states,
                              ckpt_plural(s->n_states), ckpt_dtype_name(s->options->casts[i].dtype));
  return CKPT_OK;
}

const ckpt_left_out *ckpt_selection_left_out(const ckpt_selection *selection) { return &selection->left_out; }

ckpt_name_list ckpt_unread_list(const ckpt_index *index, const char *include, bool keeps_objects) {
  ckpt_name_list names = {.n = 0};
  for (uint32_t i = 0; i < index->n_unread; i++)
    if (ckpt_role_included(include, index->unread[i].role, NULL) && !(keeps_objects && index->unread[i].is_kept))
      ckpt_name_list_add(&names, index->unread[i].name);
  return names;
}
