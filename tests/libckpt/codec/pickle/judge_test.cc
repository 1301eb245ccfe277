// What a pickle would call, by the names that it has and how it uses them.
#include "tests/libckpt/codec/pickle/pickle_testing.h"

namespace pickle_testing {
namespace {

TEST_F(PickleTest, MaliciousPicklesAreJudged) {
  struct {
    const char *row, *reason;
    ckpt_pickle_verdict verdict;
  } cases[] = {
      {"os-system", "os.system", CKPT_PICKLE_DANGEROUS},
      {"posix-reduce", "posix.system", CKPT_PICKLE_DANGEROUS},
      {"stack-global", "os.system", CKPT_PICKLE_DANGEROUS},
      {"stack-global-memo", "os.system", CKPT_PICKLE_DANGEROUS},
      {"inst", "os.system", CKPT_PICKLE_DANGEROUS},
      {"obj", "os.system", CKPT_PICKLE_DANGEROUS},
      {"newobj", "builtins.eval", CKPT_PICKLE_DANGEROUS},
      {"newobj-ex", "builtins.eval", CKPT_PICKLE_DANGEROUS},
      {"getattr", "__builtin__.getattr", CKPT_PICKLE_DANGEROUS},
      {"dotted", "torch._utils.sys.modules", CKPT_PICKLE_FOREIGN},
      {"submodule", "torch.utils.collect_env.run", CKPT_PICKLE_DANGEROUS},
      {"load-from-bytes", "torch.storage._load_from_bytes", CKPT_PICKLE_DANGEROUS},
      {"popped", "os.system", CKPT_PICKLE_DANGEROUS},
      {"after-payload", "os.system", CKPT_PICKLE_DANGEROUS},
      {"in-state", "builtins.exec", CKPT_PICKLE_DANGEROUS},
      {"ext", "copyreg extension.5", CKPT_PICKLE_FOREIGN},
      {"nested", "subprocess.Popen", CKPT_PICKLE_DANGEROUS},
  };
  size_t n_judged = 0;
  for (const Row &row : rows()) {
    const ckpt_pickle_global *reason = nullptr;
    Read(row.data);
    ckpt_pickle_verdict verdict = ckpt_pickle_judge_all(&report_, &reason);
    if (row.name.rfind("malicious-", 0) != 0) continue;
    bool found = false;
    for (const auto &c : cases) {
      if (row.name != std::string("malicious-") + c.row) continue;
      found = true;
      EXPECT_EQ(verdict, c.verdict) << row.name;
      ASSERT_NE(reason, nullptr) << row.name;
      EXPECT_STREQ(reason->name, c.reason);
    }
    EXPECT_TRUE(found) << row.name;
    n_judged++;
  }
  EXPECT_EQ(n_judged, sizeof cases / sizeof *cases);
}

TEST_F(PickleTest, HonestPicklesAreNotForeign) {
  for (const Row &row : rows())
    for (const char *zoo :
         {"state-dict-", "ordered-", "namespace-", "paths-", "size-", "bytes-", "sets-", "collections-"})
      if (row.name.rfind(zoo, 0) == 0) {
        Read(row.data);
        const ckpt_pickle_global *reason = nullptr;
        const bool is_class = row.name.rfind("namespace-", 0) == 0 || row.name.rfind("paths-", 0) == 0;
        EXPECT_EQ(ckpt_pickle_judge_all(&report_, &reason), is_class ? CKPT_PICKLE_KNOWN : CKPT_PICKLE_DATA)
            << row.name << " " << (reason == nullptr ? "" : reason->name);
      }
}

// Loading imports what is only named: a program runs then, a module of another name does not.
TEST_F(PickleTest, ProgramsRunWhenTheyAreNamed) {
  const std::pair<const char *, ckpt_pickle_verdict> cases[] = {{"cunittest.__main__\nx\n.", CKPT_PICKLE_DANGEROUS},
                                                                {"cantigravity\ngeohash\n.", CKPT_PICKLE_DANGEROUS},
                                                                {"c__main__\nArgs\n.", CKPT_PICKLE_FOREIGN},
                                                                {"ca.main__\nx\n.", CKPT_PICKLE_FOREIGN}};
  for (const auto &[pickle, wanted] : cases) {
    Read(pickle);
    EXPECT_EQ(ckpt_pickle_judge_all(&report_, nullptr), wanted) << pickle;
  }
}

// A real unpickler has run the payload before it meets the broken opcode: the report must have it.
TEST_F(PickleTest, ReportsWhatCameBeforeAFailure) {
  EXPECT_EQ(Read("cos\nsystem\n(S'true'\ntR\xff")[0], '!');
  ASSERT_EQ(report_.n_globals, 1u);
  EXPECT_EQ(report_.globals[0]->n_called, 1u);
  EXPECT_EQ(report_.n_consumed, 22u);
  EXPECT_EQ(ckpt_pickle_judge_all(&report_, nullptr), CKPT_PICKLE_DANGEROUS);
  EXPECT_EQ(Read("ca\nb\n}b.")[0], '!');
  EXPECT_EQ(report_.n_changed_globals, 1u);
}

TEST_F(PickleTest, NamesArePartedWhereTheFilePartsThem) {
  Read("(ca\nb.c\nca.b\nc\nca\nb.c\nl.");
  EXPECT_EQ(report_.n_globals, 2u);
  EXPECT_EQ(root_->items[0], root_->items[2]);
  EXPECT_NE(root_->items[0], root_->items[1]);
  EXPECT_TRUE(ckpt_foreign_is_name(root_->items[0], "a", "b.c"));
  EXPECT_FALSE(ckpt_foreign_is_name(root_->items[0], "a.b", "c"));
  EXPECT_FALSE(ckpt_object_equal(root_->items[0], root_->items[1]));
}

TEST_F(PickleTest, ReportCounts) {
  Read(
      "\x80\x02"
      "ca\nb\n)\x81}bca\nb\n)R(I1\nia\nb\n\x82\x05)RPx\nNQK\x01K\x02.");
  ASSERT_EQ(status_, CKPT_OK) << err_.message;
  const ckpt_pickle_global *global = Global("a.b");
  ASSERT_NE(global, nullptr);
  EXPECT_EQ(global->first, 2u);
  EXPECT_EQ(global->n_named, 3u);
  EXPECT_EQ(global->n_called, 3u);
  EXPECT_EQ(global->n_built, 1u);
  EXPECT_EQ(Global("copyreg extension.5")->n_called, 1u);
  EXPECT_EQ(report_.protocol, 2);
  EXPECT_EQ(report_.n_persistent, 2u);
  EXPECT_EQ(report_.n_left, 7u);
  EXPECT_EQ(report_.counts[0x63], 2u);
  Read("ca\nb\n)R)R)R.");
  EXPECT_EQ(report_.n_value_calls, 2u);
  EXPECT_EQ(report_.first_value_call, 8u);
  EXPECT_EQ(ckpt_pickle_judge_all(&report_, nullptr), CKPT_PICKLE_FOREIGN);
}

// Known names alone run code where they are used as no honest file uses them.
TEST_F(PickleTest, KnownNamesThatAreMisused) {
  const std::string space = "cargparse\nNamespace\n)\x81", key = "U\x09__class__", dict = "cbuiltins\ndict\n";
  const std::string v2 = "ctorch._tensor\n_rebuild_from_type_v2\n(", type = "ctorch\nTensor\n",
                    rebuild = "ctorch._utils\n_rebuild_tensor_v2\n", config = "cpeft.tuners.lora.config\nLoraConfig\n",
                    task = "cpeft.utils.peft_types\nTaskType\n",
                    path =
                        "cpathlib\nPath\n(U\x01"
                        "atR";
  const std::string ctor =
                        "cnumpy.random._pickle\n__generator_ctor\n(U\x01"
                        "a",
                    model = "cdeepspeed.runtime.zero.config\nDeepSpeedZeroConfig\n)\x81";

  const struct {
    std::string pickle;
    ckpt_pickle_verdict verdict;
  } cases[] = {
      {space + "}U\x05"
               "classNsb",
       CKPT_PICKLE_KNOWN},
      {space + "}" + key + "Nsb", CKPT_PICKLE_DANGEROUS},
      {space + "}U\x0d__overloads__}sb", CKPT_PICKLE_KNOWN},
      {space + "}U\x0d__overloads__Nsb", CKPT_PICKLE_DANGEROUS},
      {space + "}U\x0d__overloads__}s" + key + "Nsb", CKPT_PICKLE_DANGEROUS},
      {space + "N}" + key +
           "Ns\x86"
           "b",
       CKPT_PICKLE_DANGEROUS},
      {space + "}" + key +
           "NsN\x86"
           "b",
       CKPT_PICKLE_DANGEROUS},
      {space + dict + "(](" + key + "NtatRb", CKPT_PICKLE_DANGEROUS},
      {space + "}cbuiltins\nstr\n(" + key + "tRNsb", CKPT_PICKLE_DANGEROUS},
      {model + "}(" + "U\x08__dict__}U\x0e__fields_set__Nub", CKPT_PICKLE_KNOWN},
      {model + "}(" + "U\x08__dict__}" + key + "NsU\x0e__fields_set__Nub", CKPT_PICKLE_DANGEROUS},
      {model + "}U\x08__dict__}sb", CKPT_PICKLE_DANGEROUS},
      {v2 + rebuild + type + ")}tR", CKPT_PICKLE_DATA},
      {v2 + rebuild + type + ")}" + key + "NstR", CKPT_PICKLE_DANGEROUS},
      {v2 + type + type + ")}tR", CKPT_PICKLE_DANGEROUS},
      {v2 +
           "U\x01"
           "a" +
           type + ")}tR",
       CKPT_PICKLE_DANGEROUS},
      {v2 + space + type + ")}tR", CKPT_PICKLE_DANGEROUS},
      {v2 + rebuild + space + ")}tR", CKPT_PICKLE_DANGEROUS},
      {ctor + "cnumpy.random._pickle\n__bit_generator_ctor\ntR", CKPT_PICKLE_DATA},
      {ctor + config + "tR", CKPT_PICKLE_DANGEROUS},
      {"ccopyreg\n_reconstructor\n(" + config + dict + "}tR", CKPT_PICKLE_KNOWN},
      {"ccopyreg\n_reconstructor\n(" + config + config + "}tR", CKPT_PICKLE_DANGEROUS},
      {config + ")\x81}b", CKPT_PICKLE_KNOWN},
      {config + "(NtR", CKPT_PICKLE_FOREIGN},
      {"(" + config + "No", CKPT_PICKLE_FOREIGN},
      {"(Nipeft.tuners.lora.config\nLoraConfig\n", CKPT_PICKLE_FOREIGN},
      {"(ctorch.nn.modules.linear\nLinear\nK\x01K\x01o", CKPT_PICKLE_FOREIGN},
      {task + "(U\x01"
              "atR",
       CKPT_PICKLE_KNOWN},
      {path, CKPT_PICKLE_KNOWN},
      {"ccollections\ndeque\n)RK\x01"
       "a",
       CKPT_PICKLE_DATA},
      {space + "K\x01"
               "a",
       CKPT_PICKLE_FOREIGN},
      {space + "(K\x01"
               "e",
       CKPT_PICKLE_FOREIGN},
  };
  const std::string masked = "cnumpy.ma.core\n_mareconstruct\n(", array = "cnumpy\nndarray\n",
                    code =
                        "U\x01"
                        "b",
                    mine = "cnumpy.ma\nMaskedArray\n", made = masked + mine + array + "K\x01\x85" + code + "tR",
                    dtype =
                        "cnumpy\ndtype\n(U\x02"
                        "f4\x89\x88tR",
                    values = "C\x01z", state = "(K\x01K\x01\x85";
  const struct {
    std::string pickle;
    ckpt_pickle_verdict verdict;
  } arrays[] = {
      {made + state + dtype + "\x89" + values + values + "Ntb", CKPT_PICKLE_KNOWN},
      {made + state + dtype + "\x89" + values + values + "K\x07tb", CKPT_PICKLE_KNOWN},
      {made + state + dtype + "\x89]" + values + "Ntb", CKPT_PICKLE_KNOWN},
      {made + state + dtype + "\x89" + values + values + space + "tb", CKPT_PICKLE_DANGEROUS},
      {made + state + dtype + "\x89" + space + values + "Ntb", CKPT_PICKLE_DANGEROUS},
      {made + state + space + "\x89" + values + values + "Ntb", CKPT_PICKLE_DANGEROUS},
      {made + "}b", CKPT_PICKLE_DANGEROUS},
      {masked + config + array + "K\x01\x85" + code + "tR", CKPT_PICKLE_DANGEROUS},
      {masked + mine + mine + "K\x01\x85" + code + "tR", CKPT_PICKLE_DANGEROUS},
      {masked + mine + config + "K\x01\x85" + code + "tR", CKPT_PICKLE_DANGEROUS},
      {masked + mine + array + space + "\x85" + code + "tR", CKPT_PICKLE_DANGEROUS},
      {masked + mine + array + "K\x01\x85" + space + "tR", CKPT_PICKLE_DANGEROUS},
      {"cnumpy.ma.core\nMaskedConstant\n)R", CKPT_PICKLE_KNOWN},
      {mine + "(K\x01tR", CKPT_PICKLE_FOREIGN},
  };
  for (const auto &c : arrays) {
    Read("\x80\x03" + c.pickle + ".");
    EXPECT_EQ(ckpt_pickle_judge_all(&report_, nullptr), c.verdict) << c.pickle;
  }
  for (const auto &c : cases) {
    const ckpt_pickle_global *reason = nullptr;
    Read("\x80\x02" + c.pickle + ".");
    EXPECT_EQ(status_, CKPT_OK) << c.pickle << err_.message;
    EXPECT_EQ(ckpt_pickle_judge_all(&report_, &reason), c.verdict) << c.pickle;
  }
}

TEST_F(PickleTest, TableOfGlobals) {
  struct Entry {
    const char *module, *name, *verdict;
  };
  const Entry table[] = {
#define CKPT_PICKLE_GLOBAL(module, name, verdict) {module, name, #verdict},
#include "libckpt/codec/pickle/globals.def"
#undef CKPT_PICKLE_GLOBAL
  };
  std::vector<std::string> names;
  for (const Entry &row : table) {
    if (std::string(row.name) == "*") {
      EXPECT_STREQ(row.verdict, "DANGEROUS") << row.module;
      continue;
    }
    Read(std::string("c") + row.module + "\n" + row.name + "\n.");
    const char *wanted = std::string(row.verdict) == "DATA"    ? "tensor data"
                         : std::string(row.verdict) == "KNOWN" ? "known framework class"
                                                               : "dangerous";
    EXPECT_STREQ(ckpt_pickle_verdict_name(ckpt_pickle_judge(report_.globals[0])), wanted) << row.module << row.name;
    names.push_back(std::string(row.module) + " " + row.name);
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
  for (const char *other :
       {"torch\nload2", "torch\nfloat32.x", "torc\nhfloat32", "torch.float32\nx", "x\ntorch.float32"}) {
    Read(std::string("c") + other + "\n.");
    EXPECT_EQ(ckpt_pickle_judge(report_.globals[0]), CKPT_PICKLE_FOREIGN) << other;
  }
}

}  // namespace
}  // namespace pickle_testing
