// What a verb says at its end, and what signals do to a job.
#include <gtest/gtest.h>
#include <jansson.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

extern "C" {
#include "tools/report/report.h"
}

namespace {

// The arguments of `ckpt convert in -o out ...`.
struct Args {
  std::vector<std::string> words = {"in", "-o", "out"};
  std::vector<char *> argv;
  ckpt_args *args = nullptr;
  explicit Args(const std::vector<std::string> &more = {}) {
    words.insert(words.end(), more.begin(), more.end());
    for (auto &word : words) argv.push_back(word.data());
    ckpt_error err = {};
    EXPECT_EQ(ckpt_args_parse(&args, ckpt_verb_find("convert"), static_cast<int>(argv.size()), argv.data(), &err),
              CKPT_OK)
        << err.message;
  }
  Args(const Args &) = delete;
  ~Args() { ckpt_args_free(args); }
};

struct Output {
  std::string out, err;
  int status;
};

template <typename Print>
Output Capture(Print print) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  int status = print();
  fflush(stdout);
  std::string out = testing::internal::GetCapturedStdout();
  return {out, testing::internal::GetCapturedStderr(), status};
}

const char *const kRemedied[] = {"exp_avg 30.4 GB", nullptr}, *const kDropped[] = {"3 objects", nullptr};
const char *const kLeft[] = {"2 files of training state (a.pt, b.pt)", nullptr};
const ckpt_said kSaid[] = {{"weights: master f32", false},
                           {"no config.json, transformers cannot load this folder (--like MODEL)", true},
                           {"underflow: 1 tensor lost 1 nonzero value to zero", true},
                           {nullptr, false}};

ckpt_written Written(const char *path) {
  ckpt_written written = {};
  written.path = path;
  written.format = "hf";
  written.n_tensors = 2;
  written.n_params = 1000;
  written.n_bytes = 4000000000;
  written.dtype = "f32";
  written.dropped = kDropped;
  written.remedied = kRemedied;
  written.remedy = "--include all";
  written.left = kLeft;
  written.said = kSaid;
  memset(written.digest.bytes, 0xAB, 32);
  return written;
}

std::string Hex() {
  std::string text = "ckpt1:";
  for (int i = 0; i < 32; i++) text += "ab";
  return text;
}

TEST(Report, WrittenAsText) {
  Args args;
  ckpt_job job = {};
  job.seconds = 2;
  ckpt_written outputs[] = {Written("out"), Written("a\nb")};
  outputs[1].remedied = outputs[1].dropped = outputs[1].left = nullptr;
  outputs[1].said = nullptr;
  Output output = Capture([&] { return ckpt_report_written(args.args, &job, outputs, 2); });
  EXPECT_EQ(output.status, 0);
  EXPECT_EQ(output.out, Hex() + "  out\n\\" + Hex() + "  a\\x0ab\n");
  EXPECT_EQ(output.err.find("8.0 GB (out 4.0 GB, a\\x0ab 4.0 GB) in 2 s, 4.0 GB/s, peak memory "), 0u) << output.err;
  EXPECT_EQ(output.err.substr(output.err.find('\n') + 1),
            "ckpt: warning: out: not written: exp_avg 30.4 GB (--include all), 3 objects, 2 files of training state "
            "(a.pt, b.pt)\n"
            "ckpt: note: weights: master f32\n"
            "ckpt: warning: no config.json, transformers cannot load this folder (--like MODEL)\n"
            "ckpt: warning: underflow: 1 tensor lost 1 nonzero value to zero\n");
  Args quiet({"--quiet"}); /* hides notes and rates, no warning */
  EXPECT_EQ(Capture([&] { return ckpt_report_written(quiet.args, &job, outputs, 2); }).err,
            "ckpt: warning: out: not written: exp_avg 30.4 GB (--include all), 3 objects, 2 files of training state "
            "(a.pt, b.pt)\n"
            "ckpt: warning: no config.json, transformers cannot load this folder (--like MODEL)\n"
            "ckpt: warning: underflow: 1 tensor lost 1 nonzero value to zero\n");
}

TEST(Report, WrittenAsJson) {
  Args args({"--json", "--quiet"});
  ckpt_job job = {};
  job.seconds = 0.5;
  ckpt_written outputs[] = {Written("out"), Written("other")};
  Output one = Capture([&] { return ckpt_report_written(args.args, &job, outputs, 1); });
  size_t peak = one.out.find(",\"peak_bytes\":");
  EXPECT_EQ(
      one.out.substr(0, peak),
      "{\"status\":\"ok\",\"output\":\"out\",\"format\":\"hf\",\"n_tensors\":2,\"n_params\":1000,"
      "\"n_bytes\":4000000000,\"dtype\":\"f32\",\"weights\":null,\"dropped\":[\"exp_avg 30.4 GB\",\"3 objects\",\"2 "
      "files of training state (a.pt, b.pt)\"],"
      "\"n_underflow\":0,\"underflowed\":[],\"digest\":\"" +
          Hex() + "\",\"seconds\":0.5");
  Output two = Capture([&] { return ckpt_report_written(args.args, &job, outputs, 2); });
  json_t *root = json_loads(two.out.c_str(), 0, nullptr);
  ASSERT_NE(root, nullptr);
  EXPECT_EQ(json_array_size(json_object_get(root, "outputs")), 2u);
  json_decref(root);
}

TEST(Report, FailuresAndExitStatus) {
  ckpt_error err = {};
  err.status = CKPT_EFORMAT;
  snprintf(err.file, sizeof err.file, "a/b.safetensors");
  snprintf(err.tensor, sizeof err.tensor, "w\x1b[2J");
  snprintf(err.message, sizeof err.message, "truncated");
  Output text = Capture([&] { return ckpt_report_failure(false, &err); });
  EXPECT_EQ(text.status, 1);
  EXPECT_EQ(text.out, "");
  EXPECT_EQ(text.err, "ckpt: a/b.safetensors: tensor 'w\\x1b[2J': truncated\n");
  err.tensor[0] = '\0';
  err.status = CKPT_EINVAL;
  Output json = Capture([&] { return ckpt_report_failure(true, &err); });
  EXPECT_EQ(json.status, 2);
  EXPECT_EQ(json.out,
            "{\"status\":\"error\",\"error\":{\"code\":\"invalid\",\"file\":\"a/"
            "b.safetensors\",\"tensor\":null,\"message\":\"truncated\"}}\n");
}

TEST(Report, PeakIsOurOwn) {
  uint64_t before = ckpt_report_peak();
  EXPECT_GT(before, UINT64_C(1) << 20);
  std::vector<char> block(64 << 20, 1);
  EXPECT_GE(ckpt_report_peak(), before + (UINT64_C(60) << 20)) << block[1];
}

// The exit status of a child that runs `body`.
template <typename Body>
int InChild(Body body) {
  pid_t pid = fork();
  if (pid == 0) _exit(body());
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST(Job, TheFirstSignalCancels) {
  for (int number : {SIGINT, SIGTERM, SIGHUP}) {
    Args args;
    EXPECT_EQ(InChild([&] {
                ckpt_job job;
                ckpt_job_begin(&job, args.args);
                if (*job.run.cancel != 0) return 1;
                raise(number);
                if (*job.run.cancel == 0) return 2;
                ckpt_job_end(&job);
                ckpt_error err = {};
                err.status = CKPT_ECANCELED;
                return ckpt_report_failure(false, &err);
              }),
              128 + number);
  }
}

TEST(Job, TheSecondSignalEnds) {
  Args args;
  EXPECT_EQ(InChild([&] {
              ckpt_job job;
              ckpt_job_begin(&job, args.args);
              raise(SIGINT);
              raise(SIGINT);  // a second delivery of the same interruption
              usleep(600 * 1000);
              raise(SIGINT);
              return 1;
            }),
            130);
}

TEST(Job, SignalsAreGivenBackAndIgnoredOnesStayIgnored) {
  Args args;
  EXPECT_EQ(InChild([&] {
              ckpt_job job;
              ckpt_job_begin(&job, args.args);
              ckpt_job_end(&job);
              raise(SIGTERM);
              return 1;
            }),
            1000 + SIGTERM);
  EXPECT_EQ(InChild([&] {
              signal(SIGHUP, SIG_IGN);
              ckpt_job job;
              ckpt_job_begin(&job, args.args);
              raise(SIGHUP);
              raise(SIGHUP);
              return *job.run.cancel;
            }),
            0);
}

TEST(Job, TakesOptions) {
  Args args({"--memory", "64M", "--threads", "3", "--trace", "t.jsonl", "--progress", "always", "--quiet"});
  ckpt_job job;
  ckpt_job_begin(&job, args.args);
  ckpt_job_end(&job);
  EXPECT_EQ(job.run.memory, UINT64_C(64) << 20);
  EXPECT_EQ(job.run.n_threads, 3u);
  EXPECT_STREQ(job.run.trace, "t.jsonl");
  EXPECT_EQ(job.run.progress_arg, &job.meter);
  EXPECT_EQ(job.run.struct_size, sizeof(ckpt_run_options));
  EXPECT_FALSE(job.meter.is_active);
}

}  // namespace
