// docs/architectures.md is made of the rows of formats/arch/: with CKPT_WRITE_PAGES=1 this test writes it.
#include "tests/formats/formats_testing.h"

extern "C" {
#include "libckpt/index/arch.h"
}

namespace formats_testing {
namespace {

std::string listed(const char *const *texts, const std::string &mark = "`") {
  std::string out;
  for (; texts != nullptr && *texts != nullptr; texts++) out += (out.empty() ? "" : ", ") + mark + *texts + mark;
  return out;
}

std::string transforms_of(const ckpt_arch_name &row) {
  const std::string hf = row.hf, gguf = row.gguf == nullptr ? "" : row.gguf;
  const auto holes = [](const std::string &text) { return std::count(text.begin(), text.end(), '#'); };
  const std::pair<unsigned, const char *> notes[] = {{CKPT_NAME_ROPE_PERMUTE, "rotary pairs side by side"},
                                                     {CKPT_NAME_TRANSPOSE, "transposed"},
                                                     {CKPT_NAME_BY_HEAD, "q, k and v of each head apart"},
                                                     {CKPT_NAME_PLUS_ONE, "1 added"},
                                                     {CKPT_NAME_OPTIONAL, "only some models"}};
  std::string out;
  for (const auto &[bit, text] : notes)
    if ((row.notes & bit) != 0) out += (out.empty() ? "" : "; ") + std::string(text);
  if (row.gguf != nullptr && holes(hf) > holes(gguf)) out += (out.empty() ? "" : "; ") + std::string("experts stacked");
  if (row.gguf == nullptr)
    out = (row.notes & CKPT_NAME_COPY) != 0       ? "left out where it is tied"
          : (row.notes & CKPT_NAME_OPTIONAL) != 0 ? "only some models; llama.cpp loads none"
                                                  : "left out: computed anew";
  return out;
}

std::string stands_for(const ckpt_arch_joined &row) {
  std::string out = "in memory since transformers 5: ";
  for (size_t i = 0; i < std::size(row.parts) && row.parts[i] != nullptr; i++)
    out += (i == 0 ? "`" : ", `") + std::string(row.parts[i]) + "`";
  const bool is_stacked = std::count(row.parts[0], row.parts[0] + strlen(row.parts[0]), '#') == 2;
  return out + (is_stacked ? " of all experts" : "");
}

std::string cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.replace(at, 1, "\\|");
  return text;
}

std::string page() {
  std::string out =
      "# Families of models\n\n"
      "What is known of each family: the names of its tensors, what GGUF makes of them, and which key of GGUF a value "
      "of\n"
      "config.json is. `#` is the number of a layer or expert. This page is made of the rows in `formats/arch/`.\n";
  for (const ckpt_arch *const *at = ckpt_archs; *at != nullptr; at++) {
    const ckpt_arch &arch = **at;
    out += "\n## " + std::string(arch.name) + "\n\nNames `hf:" + arch.name + "/" + std::to_string(arch.revision) +
           "`, model types " + listed(arch.model_types) + ".";
    if (arch.gguf != nullptr)
      out += " In GGUF: `" + std::string(arch.gguf->architecture) + "`" +
             (arch.gguf->having == nullptr ? "" : " with `" + std::string(arch.gguf->having) + "`") + ", of " +
             listed(arch.gguf->classes) + ".";
    out += "\n\n| tensor | in GGUF | what becomes of it |\n|---|---|---|\n";
    for (const ckpt_arch_name *row = arch.names; row->hf != nullptr; row++)
      out += "| `" + std::string(row->hf) + "` | " + (row->gguf == nullptr ? "" : "`" + std::string(row->gguf) + "`") +
             " | " + transforms_of(*row) + " |\n";
    for (const ckpt_arch_joined *row = arch.joined; row != nullptr && row->hf != nullptr; row++)
      out += "| `" + std::string(row->hf) + "` | | " + stands_for(*row) + " |\n";
    if (arch.gguf == nullptr) continue;
    out += "\n| key of GGUF | config.json |\n|---|---|\n";
    for (const ckpt_arch_key *key = arch.gguf->keys; key->gguf != nullptr; key++)
      if (key->config[0] != '\0') out += "| `" + std::string(key->gguf) + "` | `" + cell(key->config) + "` |\n";
    for (const ckpt_arch_default *one = arch.gguf->defaults; one != nullptr && one->config != nullptr; one++)
      out += "| (where config.json lacks it" +
             (one->model_type == nullptr ? "" : ", of " + std::string(one->model_type)) + ") | `" + one->config +
             "` is `" + one->value + "` |\n";
    if (arch.rope.theta_key != nullptr)
      out += "| (rotary positions) | `rope_theta` of `rope_scaling`, or where that is empty of `rope_parameters`" +
             std::string(arch.rope.by_layer ? " (`full_attention`)" : "") + "; else `" + arch.rope.theta_key +
             "` beside them; else " + std::to_string(static_cast<int>(arch.rope.theta)) +
             ". `partial_rotary_factor` likewise; else `" + arch.rope.part_key + "` beside them; else " +
             (arch.rope.part == 1 ? "1" : "0.25") + " |\n";
    for (const ckpt_arch_constant *one = arch.gguf->constants; one != nullptr && one->config != nullptr; one++)
      out += "| (none: llama.cpp computes nothing else) | `" + std::string(one->config) + "` is `" + cell(one->values) +
             "` |\n";
    for (const ckpt_arch_implied *one = arch.gguf->implied; one != nullptr && one->config != nullptr; one++)
      out += "| (none: llama.cpp works it out) | `" + std::string(one->config) + "` is `" + cell(one->extent) + "`" +
             (one->n_layers == 0 ? "" : " where there are " + std::to_string(one->n_layers) + " layers") + " |\n";
  }
  return out;
}

TEST(ArchPage, IsMadeOfTheRows) {
  const std::string path = std::string(CKPT_TESTS_DIR) + "/../docs/architectures.md";
  if (getenv("CKPT_WRITE_PAGES") != nullptr) spill(path, page());
  EXPECT_EQ(slurp(path), page()) << "CKPT_WRITE_PAGES=1 test_formats --gtest_filter=ArchPage.* writes it";
}

}  // namespace
}  // namespace formats_testing
