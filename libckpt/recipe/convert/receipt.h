/* receipt.h - records what a writing verb did, so that it can be repeated: inputs, options, decisions, digests.
 *
 * A receipt is JSON without times or host names, so the same run gives the same bytes. A replay opens the inputs again,
 * rebuilds the plan from verb and options, and runs it into the digest without writing. */
#ifndef CKPT_RECIPE_CONVERT_RECEIPT_H
#define CKPT_RECIPE_CONVERT_RECEIPT_H

#include "libckpt/recipe/convert/convert.h"

/* Adds to a convert plan what its receipt needs beyond it: rows (written nowhere) of the input tensors whose digest no
 * written row gives. They share the plan's read. Call it after ckpt_convert_plan, before the run. */
ckpt_status ckpt_receipt_plan(ckpt_plan *plan, const ckpt_convert_request *request, ckpt_error *err);

/* Adds only the rows that give the input's digest (ckpt_receipt_input). */
ckpt_status ckpt_receipt_plan_input(ckpt_plan *plan, const ckpt_convert_request *request, ckpt_error *err);

/* Prints the receipt of a plan that has run to the one file of an open sink. */
ckpt_status ckpt_receipt_write(const ckpt_plan *plan, const ckpt_convert_request *request, ckpt_sink *sink,
                               ckpt_error *err);

/* The input that a request's path names: of a merged model the base. */
const ckpt_index *ckpt_receipt_base(const ckpt_convert_request *request);

/* The content digest of the request's input, from the rows of a plan that has run. */
ckpt_status ckpt_receipt_input(const ckpt_plan *plan, const ckpt_convert_request *request, ckpt_digest *out,
                               ckpt_error *err);

/* The same of all tensors of its i-th further input. */
ckpt_status ckpt_receipt_further(const ckpt_plan *plan, const ckpt_convert_request *request, uint32_t i,
                                 ckpt_digest *out, ckpt_error *err);

/* What the input's digest covers: the outputs' --include, or everything if they differ. */
const char *ckpt_receipt_include(const ckpt_plan *plan, const ckpt_convert_request *request);

/* The tensor of the input that a row is made from: the first that its expression reads. */
const ckpt_tensor *ckpt_receipt_source(const ckpt_expr *expr);

/* Receives each difference between a replay and its receipt: file, tensor and message, status EDIFFERENT. With status
 * CKPT_OK it is a remark, not a difference. */
typedef void ckpt_receipt_problem(void *arg, const ckpt_error *problem);

/* Replays the receipt at path `receipt`. Compares the result with what it records of `output`, and with the files there
 * now. A receipt of several outputs finds `output` by its path (as given, or from the receipt's folder), else by
 * content and last name. Reads inputs and output once, an output that it finds by content twice. Succeeds if it could
 * compare: then it has called `report` (arg first) for each difference. *has_side_files (may be NULL): the receipt
 * records side files; older ones do not. moved (NULL, or texts "OLD=NEW" and NULL): inputs that the receipt calls OLD
 * lie at NEW now. Fails with EFORMAT (not a receipt), ENOTFOUND (receipt, input, no such output, or no input OLD), and
 * as ckpt_open and a run do. */
ckpt_status ckpt_receipt_replay(const char *receipt, const char *output, const char *const *moved,
                                const ckpt_run_options *run, ckpt_receipt_problem *report, void *arg,
                                bool *has_side_files, ckpt_error *err);

#endif
