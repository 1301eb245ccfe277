/* consumer - what a stranger's program may rely on once libckpt is installed; compiled as C17 and as C++17. */
#include <ckpt.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  ckpt_error err = {CKPT_OK, "", "", "", "", "", ""};
  ckpt_index *index = NULL;
  if (strcmp(ckpt_version(), CKPT_VERSION) != 0) return 1;
  if (ckpt_dtype_parse("torch.bfloat16") != CKPT_BF16) return 2;
  if (ckpt_open(&index, "no such checkpoint", NULL, &err) != CKPT_ENOTFOUND || index != NULL) return 3;
  char text[2048];
  puts(ckpt_error_text(&err, text, sizeof text));
  return 0;
}
