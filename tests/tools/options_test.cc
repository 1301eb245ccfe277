// The parser of option tables, the values of options, and the tables themselves.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

extern "C" {
#include "libckpt/base/error.h"
#include "tools/cli/values.h"
}

namespace {

ckpt_option row(const char *name, char letter, ckpt_option_kind kind, unsigned flags, const char *metavar) {
  ckpt_option option = {};
  option.name = name, option.letter = letter, option.kind = kind, option.flags = flags, option.metavar = metavar;
  option.help = "h";
  return option;
}

const ckpt_option kOptions[] = {
    row("match", 'm', CKPT_OPTION_PATTERN, CKPT_OPTION_REPEATED, "P"), row("level", 0, CKPT_OPTION_INTEGER, 0, "N"),
    row("atol", 0, CKPT_OPTION_NUMBER, 0, "X"), row("cast", 0, CKPT_OPTION_CAST, CKPT_OPTION_REPEATED, "[P=]D"),
    row(nullptr, 0, CKPT_OPTION_FLAG, 0, nullptr)};

ckpt_verb TestVerb() {
  ckpt_verb verb = {};
  verb.name = "try";
  verb.forms = "try A B -o OUT";
  verb.options = kOptions;
  verb.sets = CKPT_SET_RUN | CKPT_SET_INPUT | CKPT_SET_OUTPUT;
  verb.min_inputs = 1;
  verb.max_inputs = 3;
  return verb;
}

struct Parsed {
  ckpt_verb verb = TestVerb();
  std::vector<std::string> words;
  std::vector<char *> argv;
  ckpt_args *args = nullptr;
  ckpt_error err = {};
  ckpt_status status;

  explicit Parsed(std::vector<std::string> line) : words(std::move(line)) {
    for (auto &word : words) argv.push_back(word.data());
    status = ckpt_args_parse(&args, &verb, static_cast<int>(argv.size()), argv.data(), &err);
  }
  Parsed(const Parsed &) = delete;
  ~Parsed() { ckpt_args_free(args); }
};

std::string Message(std::vector<std::string> line) {
  Parsed parsed(std::move(line));
  EXPECT_EQ(parsed.status, CKPT_EINVAL);
  EXPECT_EQ(parsed.args, nullptr);
  return parsed.err.message;
}

TEST(Options, AnyOrderBothFormsAndShort) {
  Parsed p({"--level=3", "a", "-o", "out", "--match", "x*", "b", "-mre:y", "--force", "-o=other"});
  ASSERT_EQ(p.status, CKPT_OK) << p.err.message;
  ASSERT_EQ(p.args->n_inputs, 2u);
  EXPECT_STREQ(p.args->inputs[0], "a");
  EXPECT_STREQ(p.args->inputs[1], "b");
  EXPECT_EQ(ckpt_args_size(p.args, "level", 0), 3u);
  EXPECT_TRUE(ckpt_args_has(p.args, "force"));
  EXPECT_FALSE(ckpt_args_has(p.args, "json"));
  const char *const *texts;
  ASSERT_EQ(ckpt_args_texts(&texts, p.args, "match", nullptr), CKPT_OK);
  EXPECT_STREQ(texts[0], "x*");
  EXPECT_STREQ(texts[1], "re:y");
  EXPECT_EQ(texts[2], nullptr);
  EXPECT_STREQ(ckpt_args_text(p.args, "output", nullptr), "other");
  ASSERT_EQ(ckpt_args_texts(&texts, p.args, "cast", nullptr), CKPT_OK);
  EXPECT_EQ(texts, nullptr);
}

TEST(Options, DoubleDashEndsOptionsAndDashIsAnInput) {
  Parsed p({"-o", "out", "-", "--", "--force", "-x"});
  ASSERT_EQ(p.status, CKPT_OK) << p.err.message;
  ASSERT_EQ(p.args->n_inputs, 3u);
  EXPECT_STREQ(p.args->inputs[0], "-");
  EXPECT_STREQ(p.args->inputs[1], "--force");
  EXPECT_STREQ(p.args->inputs[2], "-x");
  EXPECT_FALSE(ckpt_args_has(p.args, "force"));
}

TEST(Options, ModifiersBelongToTheInputBefore) {
  Parsed p({"a", "--weights", "master", "b", "-o", "out", "--names", "stored", "c", "--weights", "model"});
  ASSERT_EQ(p.status, CKPT_OK) << p.err.message;
  EXPECT_STREQ(ckpt_args_of(p.args, "weights", 0)->text, "master");
  EXPECT_EQ(ckpt_args_of(p.args, "weights", 1), nullptr);
  EXPECT_STREQ(ckpt_args_of(p.args, "weights", 2)->text, "model");
  EXPECT_NE(ckpt_args_of(p.args, "names", 1), nullptr);
  EXPECT_EQ(ckpt_args_of(p.args, "names", 0), nullptr);

  Parsed before({"--weights", "model", "a", "-o", "out"});
  ASSERT_EQ(before.status, CKPT_OK) << before.err.message;
  EXPECT_STREQ(ckpt_args_of(before.args, "weights", 0)->text, "model");
  EXPECT_EQ(Message({"--weights", "model", "a", "b", "-o", "out"}),
            "try: --weights stands after the input that it belongs to");
  EXPECT_EQ(Message({"a", "--weights", "model", "b", "--weights", "model", "--weights", "master", "-o", "out"}),
            "try: --weights is given 2 times");
  EXPECT_EQ(Message({"--names", "stored", "a", "--names", "stored", "-o", "out"}), "try: --names is given 2 times");
}

TEST(Options, CastSplitsAtTheLastEqualsSign) {
  Parsed p({"a", "-o", "out", "--cast", "re:a=b=BF16", "--cast=torch.half"});
  ASSERT_EQ(p.status, CKPT_OK) << p.err.message;
  uint32_t at = 0;
  const ckpt_arg *first = ckpt_args_next(p.args, "cast", &at), *second = ckpt_args_next(p.args, "cast", &at);
  EXPECT_STREQ(first->pattern, "re:a=b");
  EXPECT_EQ(first->dtype, CKPT_BF16);
  EXPECT_EQ(second->pattern, nullptr);
  EXPECT_EQ(second->dtype, CKPT_F16);
  EXPECT_EQ(ckpt_args_next(p.args, "cast", &at), nullptr);
}

// docs/records.md names every key that receipts keep of options.
TEST(Options, TheirKeysInReceiptsAreInThePage) {
  std::ifstream file(CKPT_TESTS_DIR "/../docs/records.md");
  std::stringstream page;
  page << file.rdbuf();
  size_t n = 0;
  for (const ckpt_option *option = ckpt_written_options; option->name != nullptr; option++) {
    if (option->key == 0) continue;
    EXPECT_NE(page.str().find("`" + std::string(option->field) + "`"), std::string::npos) << option->field;
    n++;
  }
  EXPECT_GT(n, 30u);
}

TEST(Options, WrongUsageNamesWhatIsWrong) {
  EXPECT_EQ(Message({"-o", "out"}), "try: the input is missing: ckpt try A B -o OUT");
  EXPECT_EQ(Message({"a"}), "try: -o, --output is missing: ckpt try A B -o OUT");
  EXPECT_EQ(Message({"a", "b", "c", "d", "-o", "x"}), "try: unexpected argument 'd' (ckpt try A B -o OUT)");
  EXPECT_EQ(Message({"a", "-o"}), "try: --output needs a value: --output PATH");
  EXPECT_EQ(Message({"a", "-o", "--force"}), "try: --output needs a value: --output PATH");
  EXPECT_EQ(Message({"a", "-o="}), "try: --output: its value is empty (--output PATH)");
  EXPECT_EQ(Message({"a", "--force=yes"}), "try: --force takes no value");
  EXPECT_EQ(Message({"a", "--mtach", "x"}), "try: unknown option '--mtach', did you mean '--match'?");
  EXPECT_EQ(Message({"a", "--mem", "1"}), "try: unknown option '--mem', did you mean '--memory'?");
  EXPECT_EQ(Message({"a", "--zebra=1"}), "try: unknown option '--zebra' (ckpt help try lists them)");
  EXPECT_EQ(Message({"a", "-q"}), "try: unknown option '-q' (ckpt help try lists them)");
  EXPECT_EQ(Message({"a", "--level", "1", "--level", "2", "-o", "x"}), "try: --level is given 2 times");
  EXPECT_EQ(Message({"a", "--level", "4294967296"}), "try: --level '4294967296' is not a whole number from 0 to 4096");
  EXPECT_EQ(Message({"a", "--atol", "nan"}), "try: --atol 'nan' is not a number from 0 to 1.8e308 (0.5, 1e-3)");
  EXPECT_EQ(Message({"a", "--atol=-1"}), "try: --atol '-1' is not a number from 0 to 1.8e308 (0.5, 1e-3)");
  EXPECT_EQ(Message({"a", "--atol", "-1"}), "try: --atol '-1' is not a number from 0 to 1.8e308 (0.5, 1e-3)");
  EXPECT_EQ(Message({"a", "--progress", "auto|always"}),
            "try: --progress 'auto|always' is not one of auto|always|never");
  EXPECT_EQ(Message({"a", "--cast", "=f32"}), "try: --cast '=f32' has no pattern before the '='");
  EXPECT_EQ(Message({""}), "try: an argument is empty (a variable that is not set?)");
}

TEST(Options, HelpWinsOverEverythingElse) {
  Parsed p({"--zebra", "--help"});
  ASSERT_EQ(p.status, CKPT_OK);
  EXPECT_TRUE(p.args->help);
  Parsed after({"a", "-o", "x", "--", "--help"});
  ASSERT_EQ(after.status, CKPT_OK);
  EXPECT_FALSE(after.args->help);
}

TEST(Values, Sizes) {
  const struct {
    const char *text;
    uint64_t n_bytes;  // 0: refused
  } cases[] = {{"1", 1},
               {"4096", 4096},
               {"128M", UINT64_C(128) << 20},
               {"1.5G", UINT64_C(3) << 29},
               {"1.5gb", 1500000000},
               {"5GB", UINT64_C(5000000000)},
               {"2T", UINT64_C(2) << 40},
               {"0.25k", 256},
               {"1.000001MB", 1000001},
               {"18446744073709551615", UINT64_MAX},
               {"18446744073709551616", 0},
               {"16777216T", 0},
               {"16777215.999999T", UINT64_C(18446744073708452104)},
               {"", 0},
               {"0", 0},
               {"0.0M", 0},
               {"1.5", 0},
               {"1.M", 0},
               {".5M", 0},
               {"-1", 0},
               {"+1", 0},
               {" 1", 0},
               {"1 M", 0},
               {"1MiB", 0},
               {"12Q", 0},
               {"1.0000001G", 0},
               {"0x10", 0}};
  for (const auto &one : cases) {
    uint64_t n_bytes = 0;
    EXPECT_EQ(ckpt_value_size(one.text, &n_bytes), one.n_bytes != 0) << one.text;
    if (one.n_bytes != 0) {
      EXPECT_EQ(n_bytes, one.n_bytes) << one.text;
    }
  }
}

TEST(Values, EditDistance) {
  EXPECT_EQ(ckpt_value_distance("", ""), 0u);
  EXPECT_EQ(ckpt_value_distance("", "abc"), 3u);
  EXPECT_EQ(ckpt_value_distance("abc", ""), 3u);
  EXPECT_EQ(ckpt_value_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(ckpt_value_distance("mtach", "match"), 1u);
  EXPECT_EQ(ckpt_value_distance("abcd", "badc"), 2u);
  EXPECT_EQ(ckpt_value_distance(std::string(1000, 'a').c_str(), std::string(1000, 'b').c_str()), 64u);
}

TEST(Values, NearestIsNearOrNothing) {
  const char *nearest = nullptr;
  for (const char *name : {"inspect", "diff", "split"}) ckpt_value_nearest("insepct", name, &nearest);
  EXPECT_STREQ(nearest, "inspect");
  nearest = nullptr;
  for (const char *name : {"inspect", "diff", "split"}) ckpt_value_nearest("frobnicate", name, &nearest);
  EXPECT_EQ(nearest, nullptr);
}

// What every table must satisfy, so that a new row cannot break help, completion or the parser.
TEST(Tables, AreSound) {
  std::set<std::string> verbs;
  for (size_t v = 0; ckpt_verbs[v] != nullptr; v++) {
    const ckpt_verb *verb = ckpt_verbs[v];
    SCOPED_TRACE(verb->name);
    EXPECT_TRUE(verbs.insert(verb->name).second);
    EXPECT_EQ(ckpt_verb_find(verb->name), verb);
    std::string forms = verb->forms;
    EXPECT_EQ(forms.compare(0, strlen(verb->name) + 1, std::string(verb->name) + " "), 0);
    EXPECT_LE(verb->min_inputs, verb->max_inputs);
    std::set<std::string> names;
    std::set<char> letters = {'h'};
    const char *section = nullptr;
    const ckpt_option *option;
    for (size_t i = 0; (option = ckpt_verb_option(verb, i, &section)) != nullptr; i++) {
      SCOPED_TRACE(option->name);
      EXPECT_NE(section, nullptr);
      EXPECT_TRUE(names.insert(option->name).second);
      EXPECT_TRUE(option->letter == 0 || letters.insert(option->letter).second);
      EXPECT_EQ(option->metavar == nullptr, option->kind == CKPT_OPTION_FLAG);
      std::string help = option->help;
      ASSERT_FALSE(help.empty());
      EXPECT_NE(help.back(), '.');
      EXPECT_TRUE(option->with == nullptr || ckpt_verb_takes(verb, option->with)) << option->with;
    }
    EXPECT_EQ(verb->json != nullptr, names.count("json") == 1);
  }
}

// A row that no verb has would never be an option.
TEST(Tables, RowsAreOptionsOfVerbs) {
  size_t n = 0;
  for (const ckpt_option *option = ckpt_option_rows; option->name != nullptr; option++, n++) {
    SCOPED_TRACE(option->name);
    EXPECT_NE(option->verbs == nullptr, option->set == 0) << "either verbs or a set";
    std::istringstream verbs(option->verbs == nullptr ? "" : option->verbs);
    size_t n_verbs = 0;
    for (std::string name; verbs >> name; n_verbs++) {
      const ckpt_verb *verb = ckpt_verb_find(name.c_str());
      ASSERT_NE(verb, nullptr) << name;
      bool has_row = false;
      const ckpt_option *other;
      for (size_t i = 0; (other = ckpt_verb_option(verb, i, nullptr)) != nullptr; i++) has_row |= other == option;
      EXPECT_TRUE(has_row) << name;
    }
    EXPECT_TRUE(option->verbs == nullptr || n_verbs != 0);
  }
  EXPECT_GT(n, 80u);
}

// What a row's value is, against what its format declares: both state its words.
void ExpectOneKind(const ckpt_option *option, const ckpt_format_option *declared) {
  std::string words = declared->words == nullptr ? "" : declared->words;
  for (uint64_t word = 1; declared->words == nullptr && word <= declared->most && declared->most < 10; word++)
    words += (word == 1 ? "" : "|") + std::to_string(word);
  const bool is_number = declared->kind == CKPT_VALUE_NUMBER;
  EXPECT_EQ(option->kind == CKPT_OPTION_FLAG, is_number && declared->most == 1);
  EXPECT_EQ((option->flags & CKPT_OPTION_REPEATED) != 0, declared->kind == CKPT_VALUE_LIST);
  EXPECT_EQ(option->kind == CKPT_OPTION_PATH, declared->kind == CKPT_VALUE_INPUT);
  if (option->kind == CKPT_OPTION_CHOICE) {
    EXPECT_EQ(option->metavar, words);
  }
}

// A row of what is written has its turn in receipts once, and is an option of some verb; a value is one that a format
// declares, and each that a format declares has a row.
TEST(Tables, WhatIsWrittenIsKeptAndTaken) {
  std::set<std::pair<int, unsigned>> turns;
  std::set<std::string> values;
  for (const ckpt_option *option = ckpt_written_options; option->name != nullptr; option++) {
    SCOPED_TRACE(option->name);
    EXPECT_NE(option->field, nullptr);
    EXPECT_TRUE(option->key == 0 || turns.insert({option->place, option->key}).second);
    if (option->place == CKPT_PLACE_FORMAT) {
      const ckpt_format_option *declared = ckpt_format_option_known(option->field, nullptr);
      ASSERT_NE(declared, nullptr);
      ExpectOneKind(option, declared);
      EXPECT_NE(option->key, 0u);
      values.insert(option->field);
    }
    EXPECT_NE(option->verbs == nullptr, option->set == 0);
    std::istringstream verbs(option->verbs == nullptr ? "" : option->verbs);
    for (std::string verb; verbs >> verb;) EXPECT_NE(ckpt_verb_find(verb.c_str()), nullptr) << verb;
    std::istringstream always(option->always == nullptr ? "" : option->always);
    for (std::string verb; always >> verb;) EXPECT_TRUE(ckpt_option_is_taken(option, verb.c_str())) << verb;
  }
  EXPECT_EQ(turns.count({CKPT_PLACE_CONVERT, CKPT_VALUES_TURN_OF_CONVERT}), 0u);
  EXPECT_EQ(turns.count({CKPT_PLACE_TARGET, CKPT_VALUES_TURN_OF_TARGET}), 0u);
  for (auto [place, key] : turns)
    for (unsigned before = 1; before < key; before++)
      EXPECT_TRUE(turns.count({place, before}) != 0 || before == CKPT_VALUES_TURN_OF_CONVERT ||
                  before == CKPT_VALUES_TURN_OF_TARGET)
          << place << " " << before;
  const ckpt_format_option *declared;
  size_t n_inputs = 0;
  for (size_t i = 0; (declared = ckpt_format_option_at(i)) != nullptr; i++) {
    EXPECT_EQ(values.count(declared->name), 1u) << declared->name;
    EXPECT_LE(declared->least, declared->most) << declared->name;
    n_inputs += declared->kind == CKPT_VALUE_INPUT;
    EXPECT_EQ(declared->kind == CKPT_VALUE_INPUT, declared->changed != nullptr) << declared->name;
  }
  EXPECT_LT(n_inputs, static_cast<size_t>(CKPT_MAX_FURTHER_INPUTS)); /* and the importance matrix */
  std::istringstream verbs(CKPT_VERBS_THAT_WRITE);
  std::set<std::string> writing;
  for (std::string verb; verbs >> verb;) writing.insert(verb);
  for (size_t v = 0; ckpt_verbs[v] != nullptr; v++)
    EXPECT_EQ(writing.count(ckpt_verbs[v]->name) != 0,
              ckpt_verb_takes(ckpt_verbs[v], "receipt") && ckpt_verb_takes(ckpt_verbs[v], "output"))
        << ckpt_verbs[v]->name;
}

TEST(Tables, FieldsAreOptions) {
  char text[64];
  const auto named = [&](const char *field, const char *value) {
    ckpt_option_name_field(field, value, text, sizeof text);
    return std::string(text);
  };
  EXPECT_EQ(named("like", "MODEL"), "--like MODEL");
  EXPECT_EQ(named("zstd_level", ""), "--zstd");
  EXPECT_EQ(named("include", "all"), "--include all");
  EXPECT_EQ(named("include", "no-optimizer"), "--drop optimizer");
  EXPECT_EQ(named("output", "FOLDER"), "-o FOLDER");
  EXPECT_EQ(named("struct_size", "3"), "struct_size 3");
}

// What the library's advice names, the command has an option for.
TEST(Tables, AdviceNamesOptions) {
  const std::regex statement("_advise(?:_value)?\\([^;]*;"), literal("\"((?:[^\"\\\\]|\\\\.)*)\""),
      mark("%([a-z_]{2,})");
  size_t n = 0;
  for (const char *folder : {"libckpt", "formats"})
    for (const auto &entry :
         std::filesystem::recursive_directory_iterator(CKPT_TESTS_DIR "/../" + std::string(folder))) {
      if (entry.path().extension() != ".c") continue;
      std::ifstream in(entry.path());
      const std::string source((std::istreambuf_iterator<char>(in)), {});
      for (std::sregex_iterator at(source.begin(), source.end(), statement), end; at != end; ++at) {
        const std::string words = at->str();
        for (std::sregex_iterator text(words.begin(), words.end(), literal); text != end; ++text) {
          const std::string said = (*text)[1];
          for (std::sregex_iterator found(said.begin(), said.end(), mark); found != end; ++found) {
            const std::string field = (*found)[1];
            if (field == "llu" || field == "zu") continue; /* of a message */
            char name[64];
            ckpt_option_name_field(field.c_str(), "", name, sizeof name);
            EXPECT_EQ(name[0], '-') << entry.path() << ": " << said;
            n++;
          }
        }
      }
    }
  EXPECT_GT(n, 40u);
}

}  // namespace
