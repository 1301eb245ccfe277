/* floor - what moving a checkpoint cannot be faster than: N threads each read a tile, hash it, write it; then fsync.
 *
 *   floor [-t THREADS] [-b TILE_MIB] [-H] [-h] [--madds N] INPUT [OUTPUT]
 *
 * -H leaves the hashing out, -h writes only half of the bytes (a cast from f32 to bf16), no OUTPUT leaves the writing
 * out. --madds N takes the bytes as bf16 and adds N products to each value, in f32, as merging an adapter does: N is
 * the rank. It hashes each MiB that it writes with SHA-256, as the content digest does, and prints one line of JSON. It
 * knows no format and checks nothing but system calls: bench/run compares `ckpt` with it. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LEAF_BYTES = 1 << 20, MAX_THREADS = 256, COLUMNS = 64, MAX_MADDS = 1024 };

typedef struct floor_job {
  int in, out; /* out is -1 when nothing is written */
  uint64_t n_bytes, n_tile;
  size_t n_madds;
  const float *factors;
  bool hash, half;
  _Atomic uint64_t next; /* offset of the next tile nobody has taken */
  _Atomic int failed;    /* errno of the first failure */
} floor_job;

static bool read_all(int fd, uint8_t *dst, uint64_t n_bytes, uint64_t offset) {
  while (n_bytes > 0) {
    ssize_t n = pread(fd, dst, n_bytes, (off_t)offset);
    if (n <= 0) {
      if (n == 0) errno = EIO;
      return false;
    }
    dst += n, offset += (uint64_t)n, n_bytes -= (uint64_t)n;
  }
  return true;
}

static bool write_all(int fd, const uint8_t *src, uint64_t n_bytes, uint64_t offset) {
  while (n_bytes > 0) {
    ssize_t n = pwrite(fd, src, n_bytes, (off_t)offset);
    if (n < 0) return false;
    src += n, offset += (uint64_t)n, n_bytes -= (uint64_t)n;
  }
  return true;
}

static bool hash_leaves(EVP_MD_CTX *sha, const uint8_t *bytes, uint64_t n_bytes) {
  uint8_t digest[EVP_MAX_MD_SIZE];
  for (uint64_t at = 0; at < n_bytes; at += LEAF_BYTES) {
    uint64_t n = n_bytes - at < LEAF_BYTES ? n_bytes - at : LEAF_BYTES;
    if (!EVP_DigestInit_ex(sha, EVP_sha256(), NULL) || !EVP_DigestUpdate(sha, bytes + at, n) ||
        !EVP_DigestFinal_ex(sha, digest, NULL))
      return false;
  }
  return true;
}

#if defined(__x86_64__)
#define LEVELS __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define LEVELS
#endif

/* COLUMNS values at a time, so that their sums stay in registers; the factors stay in the nearest cache. */
LEVELS static void add_products(uint16_t *values, uint64_t n_values, size_t n_madds, const float *factors) {
  for (uint64_t at = 0; at + COLUMNS <= n_values; at += COLUMNS) {
    float sums[COLUMNS];
    for (size_t j = 0; j < COLUMNS; j++) {
      const uint32_t bits = (uint32_t)values[at + j] << 16;
      memcpy(&sums[j], &bits, sizeof bits);
    }
    for (size_t k = 0; k < n_madds; k++) {
      const float factor = factors[(at / COLUMNS + k) % MAX_MADDS];
      for (size_t j = 0; j < COLUMNS; j++) sums[j] += factor * factors[k * COLUMNS + j];
    }
    for (size_t j = 0; j < COLUMNS; j++) {
      uint32_t bits;
      memcpy(&bits, &sums[j], sizeof bits);
      values[at + j] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
  }
}

static bool move_tile(const floor_job *job, EVP_MD_CTX *sha, uint8_t *tile, uint64_t offset) {
  uint64_t n = job->n_bytes - offset < job->n_tile ? job->n_bytes - offset : job->n_tile;
  if (!read_all(job->in, tile, n, offset)) return false;
  if (job->n_madds != 0) add_products((uint16_t *)(void *)tile, n / 2, job->n_madds, job->factors);
  if (job->half) n /= 2, offset /= 2;
  if (job->hash && !hash_leaves(sha, tile, n)) return false;
  return job->out < 0 || write_all(job->out, tile, n, offset);
}

static void *work(void *arg) {
  floor_job *job = arg;
  uint8_t *tile = malloc(job->n_tile);
  EVP_MD_CTX *sha = EVP_MD_CTX_new();
  while (tile != NULL && sha != NULL && job->failed == 0) {
    uint64_t offset = atomic_fetch_add(&job->next, job->n_tile);
    if (offset >= job->n_bytes) break;
    if (!move_tile(job, sha, tile, offset)) job->failed = errno != 0 ? errno : EIO;
  }
  if (tile == NULL || sha == NULL) job->failed = ENOMEM;
  EVP_MD_CTX_free(sha);
  free(tile);
  return NULL;
}

static int run_threads(floor_job *job, long n_threads) {
  pthread_t threads[MAX_THREADS];
  long n_started = 0;
  while (n_started < n_threads && job->failed == 0) {
    int error = pthread_create(&threads[n_started], NULL, work, job);
    if (error != 0)
      job->failed = error;
    else
      n_started++;
  }
  for (long i = 0; i < n_started; i++) pthread_join(threads[i], NULL);
  if (job->failed == 0 && job->out >= 0 && fsync(job->out) != 0) job->failed = errno;
  return job->failed;
}

static int fail(const char *what, int error) {
  fprintf(stderr, "floor: %s: %s\n", what, strerror(error));
  return 1;
}

int main(int argc, char **argv) {
  floor_job job = {.in = -1, .out = -1, .hash = true};
  long n_threads = sysconf(_SC_NPROCESSORS_ONLN), tile_mib = 4;
  static float factors[MAX_MADDS * COLUMNS];
  static const struct option names[] = {{"madds", required_argument, NULL, 'm'}, {0}};
  for (size_t i = 0; i < MAX_MADDS * COLUMNS; i++) factors[i] = (float)(i % 7) * 1e-6f;
  job.factors = factors;
  int option;
  while ((option = getopt_long(argc, argv, "t:b:Hh", names, NULL)) != -1) {
    if (option == 'm') job.n_madds = strtoul(optarg, NULL, 10);
    if (option == 't') n_threads = strtol(optarg, NULL, 10);
    if (option == 'b') tile_mib = strtol(optarg, NULL, 10);
    if (option == 'H') job.hash = false;
    if (option == 'h') job.half = true;
    if (option == '?') return 2;
  }
  if (optind >= argc || optind + 2 < argc || n_threads < 1 || n_threads > MAX_THREADS || tile_mib < 1 ||
      job.n_madds > MAX_MADDS) {
    fprintf(stderr, "usage: floor [-t THREADS] [-b TILE_MIB] [-H] [-h] [--madds N] INPUT [OUTPUT]\n");
    return 2;
  }
  job.n_tile = (uint64_t)tile_mib * LEAF_BYTES;
  struct stat status;
  job.in = open(argv[optind], O_RDONLY | O_CLOEXEC);
  if (job.in < 0 || fstat(job.in, &status) != 0) return fail(argv[optind], errno);
  job.n_bytes = (uint64_t)status.st_size;
  const char *output = argv[optind + 1];
  if (output != NULL && (job.out = open(output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) < 0)
    return fail(output, errno);

  struct timespec start, end;
  clock_gettime(CLOCK_MONOTONIC, &start);
  int error = run_threads(&job, n_threads);
  clock_gettime(CLOCK_MONOTONIC, &end);
  if (error != 0) return fail(output != NULL ? output : argv[optind], error);
  double seconds = (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
  printf("{\"seconds\": %.6f, \"n_bytes\": %" PRIu64 ", \"gb_per_s\": %.3f}\n", seconds, job.n_bytes,
         1e-9 * (double)job.n_bytes / seconds);
  return 0;
}
