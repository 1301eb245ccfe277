// Folders of tokenizer files: the keys that llama.cpp's converter makes of them, in its order, and the ids that
// transformers gives (tests/data/make_tokenizer_folders.py); and what of them is refused.
#include "tests/formats/tokenizer/tokenizer_testing.h"

extern "C" {
#include "libckpt/base/little.h"
#include "libckpt/codec/gguf/value.h"
}

namespace formats_testing {
namespace {

namespace fs = std::filesystem;

std::string data(const std::string &name) { return std::string(CKPT_TESTS_DIR) + "/data/" + name; }

struct Json {
  json_t *root;
  explicit Json(const std::string &text) : root(json_loads(text.c_str(), JSON_DECODE_ANY, nullptr)) {}
  Json(const Json &) = delete;
  ~Json() { json_decref(root); }
  const json_t *at(const char *key) const { return json_object_get(root, key); }
  std::string text(const char *key) const { return json_string_value(at(key)); }
};

std::string dumped(const json_t *value) {
  char *text = json_dumps(value, JSON_COMPACT);
  std::string out = text;
  free(text);
  return out;
}

void spill_in(const std::string &folder, const std::string &name, const std::string &bytes) {
  fs::create_directories(fs::path(folder + "/" + name).parent_path());
  spill(folder + "/" + name, bytes);
}

// The files of a line.
void fill(const std::string &folder, const Json &row) {
  static const std::map<std::string, std::vector<std::pair<std::string, std::string>>> bases = {
      {"byte", {{"tokenizer.json", "dialect/llama-scaled/tokenizer.json"}}},
      {"slow", {{"vocab.json", "tokenizer/gpt2-slow/vocab.json"}, {"merges.txt", "tokenizer/gpt2-slow/merges.txt"}}},
      {"spm", {{"tokenizer.model", "tokenizer/spm/tokenizer.model"}}},
      {"both",
       {{"tokenizer.model", "tokenizer/spm/tokenizer.model"}, {"tokenizer.json", "tokenizer/both/tokenizer.json"}}}};
  for (const auto &[name, source] : bases.at(row.text("base"))) {
    std::string bytes = slurp(data(source));
    if (name == "tokenizer.json") {
      const Json state(bytes);
      json_object_update(state.root, const_cast<json_t *>(row.at("tokenizer")));
      bytes = dumped(state.root);
    }
    spill_in(folder, name, bytes);
  }
  const char *name;
  json_t *text;
  json_object_foreach(const_cast<json_t *>(row.at("files")), name, text) {
    spill_in(folder, name, std::string(json_string_value(text), json_string_length(text)));
  }
  spill_in(folder, "config.json", dumped(row.at("config")));
}

// An index over the files of a folder, without tensors.
struct Files {
  ckpt_index *index = nullptr;
  ckpt_error err = {};
  explicit Files(const std::string &folder) {
    ckpt_open_options options = {};
    options.struct_size = sizeof options;
    ckpt_source *source = nullptr;
    EXPECT_EQ(ckpt_source_open(&source, folder.c_str(), &err), CKPT_OK);
    EXPECT_EQ(ckpt_index_new(&index, source, folder.c_str(), "hf", &options, &err), CKPT_OK);
    for (const auto &entry : fs::recursive_directory_iterator(folder)) {
      if (!entry.is_regular_file()) continue;
      const std::string name = fs::relative(entry.path(), folder).string();
      uint32_t file;
      uint64_t size;
      EXPECT_EQ(ckpt_source_add(index->source, name.c_str(), &file, &size, &err), CKPT_OK);
      EXPECT_EQ(ckpt_index_add_side_file(index, name.c_str(), file, size, &err), CKPT_OK);
    }
  }
  Files(const Files &) = delete;
  ~Files() { ckpt_index_free(index); }
};

using Keys = std::vector<std::pair<std::string, std::string>>;

std::string shown(const ckpt_meta &meta) {
  if (meta.typed == nullptr) return meta.value;
  if (meta.typed->type == CKPT_GGUF_STRING)
    return std::string(reinterpret_cast<const char *>(meta.typed->bytes) + 8, meta.typed->n_bytes - 8);
  if (meta.typed->type != CKPT_GGUF_ARRAY) return meta.value;
  return sha256_of(meta.typed->bytes, meta.typed->n_bytes);
}

// A description with a tokenizer's keys.
struct Keyed {
  ckpt_index *index = nullptr;
  explicit Keyed(const std::string &architecture) {
    ckpt_open_options options = {};
    ckpt_error err = {};
    options.struct_size = sizeof options;
    EXPECT_EQ(ckpt_index_new(&index, nullptr, "made.gguf", "gguf", &options, &err), CKPT_OK);
    EXPECT_EQ(ckpt_index_set_metadata(index, CKPT_GGUF_ARCHITECTURE, architecture.c_str(), &err), CKPT_OK);
  }
  Keyed(const Keyed &) = delete;
  ~Keyed() { ckpt_index_free(index); }
  std::map<std::string, std::string> keys() const {
    std::map<std::string, std::string> out;
    for (uint32_t i = 0; i < index->n_metadata; i++) out[index->metadata[i].key] = shown(index->metadata[i]);
    return out;
  }
};

// The keys of a folder; what is said of them, or where there are none.
std::string keys_of(Keys *out, const std::string &folder, const std::string &architecture, const char *pre,
                    uint32_t n_vocab, std::vector<uint32_t> *types = nullptr) {
  Files files(folder);
  Keyed made(architecture);
  ckpt_tokenizer *tokenizer = nullptr;
  ckpt_error err = {};
  const ckpt_tokenizer_ggml_options how = {pre, n_vocab};
  ckpt_status status = ckpt_tokenizer_read_for_ggml(&tokenizer, files.index, &how, &err);
  if (status == CKPT_OK) status = ckpt_tokenizer_to_ggml(made.index, tokenizer, &how, &err);
  for (uint32_t i = 1; status == CKPT_OK && i < made.index->n_metadata; i++) {
    const ckpt_meta &meta = made.index->metadata[i];
    out->push_back({meta.key, shown(meta)});
    if (types == nullptr || strcmp(meta.key, "tokenizer.ggml.token_type") != 0) continue;
    for (uint64_t k = 0; k < ckpt_le64(meta.typed->bytes + 4); k++)
      types->push_back(ckpt_le32(meta.typed->bytes + 12 + 4 * k));
  }
  ckpt_tokenizer_free(tokenizer);
  if (status != CKPT_OK) return text_of(err);
  return made.index->n_notes == 0 ? "" : made.index->notes[0].text;
}

// The converter's keys, in its order, but for those that are said to differ.
void expect_keys(const Json &row, const std::string &folder) {
  Keys made, wanted;
  std::map<std::string, std::string> ours;
  std::vector<uint32_t> types;
  const uint32_t n_vocab = static_cast<uint32_t>(json_integer_value(json_object_get(row.at("config"), "vocab_size")));
  const std::string said = keys_of(&made, folder, row.text("architecture"),
                                   row.text("base") == "slow" ? nullptr : row.text("pre").c_str(), n_vocab, &types);
  ASSERT_EQ(said, "");
  const char *name;
  json_t *value;
  json_object_foreach(const_cast<json_t *>(row.at("ours")), name, value) {
    ours[name] = json_is_string(value) ? json_string_value(value) : "";
  }
  for (size_t i = 0; i < json_array_size(row.at("keys")); i++) {
    const json_t *pair = json_array_get(row.at("keys"), i);
    wanted.push_back({json_string_value(json_array_get(pair, 0)), json_string_value(json_array_get(pair, 1))});
  }
  Keys rest, others;
  for (const auto &key : made) {
    if (ours.count(key.first) == 0) {
      rest.push_back(key);
    } else if (key.first == "tokenizer.ggml.token_type") {
      ASSERT_GT(types.size(), 3U);
      EXPECT_EQ(types[3], static_cast<uint32_t>(CKPT_TOKEN_USER_DEFINED)); /* <tool>, alone */
    } else {
      EXPECT_EQ(key.second, ours[key.first]) << key.first;
    }
  }
  for (const auto &key : wanted)
    if (ours.count(key.first) == 0) others.push_back(key);
  EXPECT_EQ(rest, others);
}

class TokenizerFolders : public testing::TestWithParam<std::string> {};

TEST_P(TokenizerFolders, AreAsThePeersReadThem) {
  std::ifstream lines(tokenizer_data() + "folders.jsonl");
  size_t n = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json row(line);
    if (row.text("base") != GetParam()) continue;
    SCOPED_TRACE(row.text("name"));
    Folder folder;
    fill(folder.path(), row);
    expect_keys(row, folder.path());
    Tool tool(folder.path());
    ASSERT_NE(tool.encoder, nullptr);
    for (size_t i = 0; i < json_array_size(row.at("ids")); i++) {
      const json_t *pair = json_array_get(row.at("ids"), i);
      const std::string text = unhex(json_string_value(json_array_get(pair, 0)));
      EXPECT_EQ(tool.encode(text, CKPT_TEXT_SPECIAL | CKPT_TEXT_PARSE_SPECIAL), ids_of(json_array_get(pair, 1)))
          << text;
    }
    n++;
  }
  EXPECT_GE(n, 3U);
}

INSTANTIATE_TEST_SUITE_P(Bases, TokenizerFolders, testing::Values("byte", "slow", "spm", "both"),
                         [](const auto &one) { return one.param; });

// Keys to files and back: the same keys, but for those that files have no place for.
TEST(TokenizerFoldersBack, KeysComeBackFromFiles) {
  static const std::map<std::string, std::set<std::string>> lost = {
      {"byte-template-eos", {"tokenizer.ggml.eot_token_id"}}, /* tokenizer_config.json has no key of it */
      {"byte-template-dict", {"tokenizer.ggml.eot_token_id"}},
      {"byte-32016", {"tokenizer.ggml.eot_token_id"}}};
  std::ifstream lines(tokenizer_data() + "folders.jsonl");
  size_t n = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json row(line);
    if (row.text("base") == "spm" || row.text("base") == "both") continue; /* files have no scores */
    SCOPED_TRACE(row.text("name"));
    Folder folder;
    fill(folder.path(), row);
    Files files(folder.path());
    Keys first, again;
    ckpt_error err = {};
    ckpt_tokenizer *tokenizer = nullptr, *read = nullptr, *back = nullptr;
    Keyed made(row.text("architecture")), remade(row.text("architecture"));
    const ckpt_tokenizer_ggml_options how = {row.text("pre").c_str(), 0};
    ASSERT_EQ(ckpt_tokenizer_read_for_ggml(&tokenizer, files.index, &how, &err), CKPT_OK) << text_of(err);
    ASSERT_EQ(ckpt_tokenizer_to_ggml(made.index, tokenizer, &how, &err), CKPT_OK) << text_of(err);
    ASSERT_EQ(ckpt_tokenizer_read(&read, made.index, &err), CKPT_OK) << text_of(err);
    ckpt_arena arena;
    ckpt_arena_init(&arena, 64 << 20);
    char *json, *config;
    size_t n_json, n_config;
    ASSERT_EQ(ckpt_tokenizer_print(&json, &n_json, &config, &n_config, read, &arena, &err), CKPT_OK) << text_of(err);
    ASSERT_EQ(ckpt_tokenizer_parse(&back, json, n_json, config, n_config, &err), CKPT_OK) << text_of(err);
    ASSERT_EQ(ckpt_tokenizer_to_ggml(remade.index, back, &how, &err), CKPT_OK) << text_of(err);
    std::map<std::string, std::string> wanted = made.keys(), got = remade.keys();
    const auto without = lost.find(row.text("name"));
    if (without != lost.end())
      for (const std::string &key : without->second) wanted.erase(key);
    EXPECT_EQ(got, wanted);
    ckpt_arena_free(&arena);
    ckpt_tokenizer_free(tokenizer);
    ckpt_tokenizer_free(read);
    ckpt_tokenizer_free(back);
    n++;
  }
  EXPECT_GE(n, 25U);
}

// A folder of the byte-level tokenizer with other files; what is said of it.
std::string said_of(const std::map<std::string, std::string> &files, const std::string &base = "byte",
                    const char *pre = "llama-bpe", const std::string &edit = "{}") {
  const Json row(R"({"base":")" + base + R"(","tokenizer":)" + edit +
                 R"(,"files":{},"config":{"model_type":"llama"}})");
  Folder folder;
  fill(folder.path(), row);
  for (const auto &[name, bytes] : files) spill_in(folder.path(), name, bytes);
  Keys keys;
  return keys_of(&keys, folder.path(), "llama", pre, 0);
}

#define EXPECT_SAID(said, words) EXPECT_NE((said).find(words), std::string::npos) << (said)

TEST(TokenizerFoldersRefused, ChatTemplates) {
  const std::map<std::string, std::string> config = {{"tokenizer_config.json", "{}"}};
  EXPECT_EQ(said_of(config), "");
  EXPECT_SAID(said_of({{"chat_template.jinja", "a\xff"}}),
              "chat_template.jinja: a chat template that is not UTF-8 (byte 1)");
  EXPECT_SAID(said_of({{"chat_template.jinja", std::string("ab\0c", 4)}}),
              "chat_template.jinja: a chat template with a NUL (byte 2)");
  EXPECT_SAID(said_of({{"tokenizer_config.json", R"({"chat_template":"x\u0000y"})"}}),
              "tokenizer_config.json: a chat template with a NUL (byte 1)");
  EXPECT_SAID(said_of({{"chat_template.jinja", "a"}, {"additional_chat_templates/b.jinja", "\xc3"}}),
              "additional_chat_templates/b.jinja: a chat template that is not UTF-8 (byte 0)");
  EXPECT_SAID(said_of({{"chat_template.jinja", "a"},
                       {"additional_chat_templates/a-b.jinja", "x"},
                       {"additional_chat_templates/a_b.jinja", "y"}}),
              "chat templates 'a-b' and 'a_b' would be one key of GGUF (tokenizer.chat_template.a_b)");
  EXPECT_SAID(said_of({{"tokenizer_config.json",
                        R"({"chat_template":[{"name":"default","template":"x"},{"name":"default","template":"y"}]})"}}),
              "chat templates 'default' and 'default' would be one key of GGUF (tokenizer.chat_template)");
}

TEST(TokenizerFoldersRefused, ClassesThatCutOtherwise) {
  const std::string other = R"({"tokenizer_class":"CodeGenTokenizer"})";
  EXPECT_SAID(said_of({{"tokenizer_config.json", other}}, "slow", nullptr),
              "vocab.json and merges.txt of a CodeGenTokenizer");
  EXPECT_SAID(said_of({{"tokenizer_config.json", other}}, "slow", nullptr), "pre=NAME");
  EXPECT_EQ(said_of({{"tokenizer_config.json", other}}, "slow", "mpt"), "");  // not that it were gpt-2, cut alike
  Folder folder;
  const Json row(R"({"base":"slow","tokenizer":{},"files":{},"config":{}})");
  fill(folder.path(), row);
  spill_in(folder.path(), "tokenizer_config.json", other);
  ckpt_tokenizer *tokenizer = nullptr;
  ckpt_error err = {};
  EXPECT_EQ(ckpt_tokenizer_open(&tokenizer, folder.path().c_str(), &err), CKPT_EUNSUPPORTED);
  EXPECT_SAID(text_of(err), "save it with a tokenizer.json");
}

TEST(TokenizerFoldersRefused, TheCauseIsSaid) {
  EXPECT_SAID(said_of({}, "byte", nullptr, R"({"normalizer":{"type":"NFC"}})"),
              "(the regex is that of llama-bpe, and the normalizer NFC stands before it; give");
  EXPECT_SAID(
      said_of({}, "byte", nullptr, R"({"normalizer":{"type":"Replace","pattern":{"String":"a"},"content":"b"}})"),
      "(the regex is that of llama-bpe, and the normalizer Replace stands before it; give");
  EXPECT_SAID(said_of({}, "byte", nullptr, R"({"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":true}})"),
              "(add_prefix_space: it puts a space before a text, and llama.cpp none; give");
}

// A tokenizer.model that has other ids than tokenizer.json, or is none of sentencepiece's, is not used.
TEST(TokenizerFoldersPieces, OthersAreNotUsed) {
  const Json row(R"({"base":"both","tokenizer":{},"files":{},"config":{}})");
  Folder folder;
  fill(folder.path(), row);
  std::string bytes = slurp(folder / "tokenizer.json");
  const size_t at = bytes.find("\"\xE2\x96\x81the\"");
  ASSERT_NE(at, std::string::npos);
  const ckpt_tokenizer_ggml_options how = {};
  ckpt_tokenizer *tokenizer = nullptr;
  ckpt_error err = {};
  {
    Files files(folder.path());
    ASSERT_EQ(ckpt_tokenizer_read_for_ggml(&tokenizer, files.index, &how, &err), CKPT_OK) << text_of(err);
    EXPECT_EQ(tokenizer->left, nullptr);
    EXPECT_TRUE(tokenizer->has_scores);
    ckpt_tokenizer_free(tokenizer);
  }
  for (int i = 0; i < 2; i++) {
    if (i == 0) {
      Json state(bytes);
      json_t *vocab = json_object_get(json_object_get(state.root, "model"), "vocab");
      json_object_set_new(vocab, "~", json_integer(699));
      const char *name, *last = nullptr;
      json_t *id;
      json_object_foreach(vocab, name, id) {
        if (json_integer_value(id) == 699 && strcmp(name, "~") != 0) last = name;
      }
      ASSERT_NE(last, nullptr);
      json_object_del(vocab, std::string(last).c_str());
      spill(folder / "tokenizer.json", dumped(state.root));
    } else {
      spill(folder / "tokenizer.json", bytes);
      spill(folder / "tokenizer.model", "IQ== 0\n");
    }
    Files files(folder.path());
    ASSERT_EQ(ckpt_tokenizer_read_for_ggml(&tokenizer, files.index, &how, &err), CKPT_OK) << text_of(err);
    EXPECT_EQ(tokenizer->left != nullptr, i == 0);
    EXPECT_SAID(std::string(i == 0 ? tokenizer->left : "another token of id 699"), "another token of id 699");
    EXPECT_FALSE(tokenizer->has_scores);
    ckpt_tokenizer_free(tokenizer);
  }
}

}  // namespace
}  // namespace formats_testing
