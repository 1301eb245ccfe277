/* list.c - opens a checkpoint of any known format, lists its tensors, reads one as f32, prints the digest of all.
 *
 *   cc -std=c17 list.c -o list $(pkg-config --cflags --libs libckpt) && ./list MODEL TENSOR */
#include <ckpt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

int main(int n_args, char **args) {
  ckpt_error err = {.status = CKPT_OK};
  ckpt_index *index = NULL;
  ckpt_digest digest;
  float *values = NULL;
  char text[2048];
  if (n_args != 3) return fputs("usage: list MODEL TENSOR\n", stderr), 2;
  if (ckpt_open(&index, args[1], NULL, &err) != CKPT_OK) goto done;
  for (size_t i = 0; i < ckpt_index_count(index); i++) {
    const ckpt_tensor *tensor = ckpt_index_at(index, i);
    printf("%s %s %" PRIu64 "\n", tensor->name, ckpt_dtype_name((ckpt_dtype)tensor->dtype), tensor->n_bytes);
  }
  const ckpt_tensor *tensor = ckpt_index_find(index, args[2]);
  if (tensor == NULL) {
    printf("no tensor is called %s\n", args[2]);
  } else { /* gathered from its shards; the third of six arguments could be a box of it, what one rank needs */
    values = calloc(tensor->n_elements + 1, sizeof *values);
    if (values == NULL) return fputs("list: out of memory\n", stderr), 1;
    size_t n_bytes = tensor->n_elements * sizeof *values;
    if (ckpt_read(index, tensor, NULL, CKPT_F32, values, n_bytes, &err) != CKPT_OK) goto done;
    printf("%s begins with %g\n", tensor->name, values[0]);
  }
  if (ckpt_hash(index, NULL, &digest, &err) == CKPT_OK) puts(ckpt_digest_text(&digest, text));
done:
  if (err.status != CKPT_OK) fprintf(stderr, "list: %s\n", ckpt_error_text(&err, text, sizeof text));
  free(values);
  ckpt_index_free(index);
  return err.status == CKPT_OK ? 0 : 1;
}
