/* The side `c` of `tollfree-lab bench echo`: an end of calls by bytes, told what to do as the program in Go is.

   peer serve -side c -dir DIRECTORY -size LENGTH
   peer call -side c -address ADDRESS -size LENGTH -inflight COUNT -warm-up 5ns -measure 5ns -calls COUNT */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tollfree.h>
#include <unistd.h>

#define CALL_PATH "/tollfree.bench.v1.Echo/Call"
/* How long calls took, to the nanosecond up to here; longer ones are counted by their tenths of microseconds. */
#define EXACT_NS 100000u
#define COARSE_COUNT 1000000u
#define COARSE_NS 100u

static void must(int number, const char *what)
{
  if (number == 0)
    return;
  fprintf(stderr, "%s: error %d (%s): %s\n", what, number, tollfree_error_name(number), tollfree_error_text());
  exit(1);
}

static const char *option(int argc, char **argv, const char *name)
{
  for (int at = 2; at + 1 < argc; at += 2)
    if (strcmp(argv[at], name) == 0)
      return argv[at + 1];
  fprintf(stderr, "%s is missing\n", name);
  exit(2);
}

/* A number, whose unit may follow. */
static uint64_t number(int argc, char **argv, const char *name)
{
  const char *text = option(argc, argv, name);
  char *end;
  unsigned long long value;
  errno = 0;
  value = strtoull(text, &end, 10);
  if (errno != 0 || end == text || (*end != '\0' && strcmp(end, "ns") != 0)) {
    fprintf(stderr, "%s is %s\n", name, text);
    exit(2);
  }
  return value;
}

static tollfree_loop new_loop(uint64_t size)
{
  tollfree_config config = { .size = sizeof config, .message_len_max = size + 64 };
  tollfree_loop loop;
  must(tollfree_loop_new(&config, &loop), "making a loop");
  return loop;
}

/* The process ends with its input, which the bench holds. */
static void *ends_with_input(void *argument)
{
  char byte;
  (void)argument;
  while (read(STDIN_FILENO, &byte, 1) > 0)
    ;
  _exit(0);
}

static int serve(int argc, char **argv)
{
  tollfree_loop loop = new_loop(number(argc, argv, "-size"));
  tollfree_event event = { .size = sizeof event };
  tollfree_listener listener;
  pthread_t watcher;
  char address[256];
  snprintf(address, sizeof address, "shm://%s/c.sock", option(argc, argv, "-dir"));
  must(tollfree_listen(loop, tollfree_text(address), &listener), "listening");
  if (pthread_create(&watcher, NULL, ends_with_input, NULL) != 0)
    return 1;
  puts(address);
  fflush(stdout);
  for (;;) {
    must(tollfree_loop_wait(loop, UINT64_MAX, &event), "waiting");
    /* A client that has gone does not get its answer. */
    if (event.kind == TOLLFREE_EVENT_MESSAGE)
      (void)tollfree_call_answer(loop, event.call, event.payload, 0);
    must(tollfree_buffer_release(event.payload.buffer), "releasing");
  }
}

/* Calls in flight of one thread, each with a session of its own, as those of other sides have. */
typedef struct caller {
  const char *address;
  uint64_t size, from_ns, until_ns, calls;
  uint32_t *exact, *coarse;
  uint64_t last_ns;
} caller;

static void record(caller *of, uint64_t took_ns)
{
  uint64_t coarse = took_ns / COARSE_NS;
  if (took_ns < EXACT_NS)
    of->exact[took_ns]++;
  else
    of->coarse[coarse < COARSE_COUNT ? coarse : COARSE_COUNT - 1]++;
}

static void exchange(tollfree_loop loop, tollfree_session session, tollfree_payload body, int is_compared)
{
  tollfree_start start = { .size = sizeof start, .path = tollfree_text(CALL_PATH), .message = body };
  tollfree_event event = { .size = sizeof event };
  tollfree_call call;
  start.flags = TOLLFREE_FLAG_HAS_MESSAGE | TOLLFREE_FLAG_LAST;
  must(tollfree_call_start(loop, session, &start, &call), "calling");
  do {
    must(tollfree_loop_wait(loop, UINT64_MAX, &event), "waiting");
    if (event.kind == TOLLFREE_EVENT_MESSAGE) {
      size_t len = event.payload.bytes.len;
      if (len != body.bytes.len || (is_compared && len > 0 && memcmp(event.payload.bytes.data, body.bytes.data, len) != 0)) {
        fprintf(stderr, "other bytes came back\n");
        exit(1);
      }
    }
    if (event.kind == TOLLFREE_EVENT_CLOSED || (event.kind == TOLLFREE_EVENT_ENDED && event.code != 0)) {
      fprintf(stderr, "a call ended with %u: %.*s\n", event.code, (int)event.text.len, (const char *)event.text.data);
      exit(1);
    }
    must(tollfree_buffer_release(event.payload.buffer), "releasing");
  } while (event.kind != TOLLFREE_EVENT_ENDED);
}

static void *call_on(void *argument)
{
  caller *of = argument;
  tollfree_loop loop = new_loop(of->size);
  tollfree_event event = { .size = sizeof event };
  tollfree_session session;
  tollfree_payload body;
  uint8_t *bytes = malloc(of->size + 1);
  uint64_t counted = 0, before;
  for (uint64_t at = 0; at < of->size; at++)
    bytes[at] = (uint8_t)at;
  must(tollfree_buffer_wrap((tollfree_bytes){ bytes, of->size }, free, bytes, &body), "wrapping");
  must(tollfree_connect(loop, tollfree_text(of->address), &session), "connecting");
  must(tollfree_loop_wait(loop, UINT64_MAX, &event), "waiting");
  if (event.kind != TOLLFREE_EVENT_CONNECTED) {
    fprintf(stderr, "cannot connect: %.*s\n", (int)event.text.len, (const char *)event.text.data);
    exit(1);
  }
  exchange(loop, session, body, 1);
  for (before = tollfree_now_ns();;) {
    uint64_t after;
    exchange(loop, session, body, 0);
    after = tollfree_now_ns();
    if (of->calls == 0 && after > of->until_ns) {
      of->last_ns = of->until_ns;
      break;
    }
    if (before > of->from_ns) {
      record(of, after - before);
      of->last_ns = after;
      if (++counted == of->calls)
        break;
    }
    before = after;
  }
  must(tollfree_buffer_release(body.buffer), "releasing");
  must(tollfree_loop_free(loop), "ending the loop");
  return NULL;
}

static int call(int argc, char **argv)
{
  uint64_t count = number(argc, argv, "-inflight"), calls = number(argc, argv, "-calls");
  uint64_t from_ns = tollfree_now_ns() + number(argc, argv, "-warm-up"), last_ns = from_ns;
  pthread_t *threads = calloc(count, sizeof *threads);
  caller *callers = calloc(count, sizeof *callers);
  const char *comma = "";
  for (uint64_t at = 0; at < count; at++) {
    callers[at] = (caller){ .address = option(argc, argv, "-address"), .size = number(argc, argv, "-size"), .from_ns = from_ns };
    callers[at].until_ns = from_ns + number(argc, argv, "-measure");
    callers[at].calls = (calls + count - 1) / count;
    callers[at].exact = calloc(EXACT_NS, sizeof(uint32_t));
    callers[at].coarse = calloc(COARSE_COUNT, sizeof(uint32_t));
    if (pthread_create(&threads[at], NULL, call_on, &callers[at]) != 0)
      return 1;
  }
  for (uint64_t at = 0; at < count; at++) {
    pthread_join(threads[at], NULL);
    if (callers[at].last_ns > last_ns)
      last_ns = callers[at].last_ns;
    for (size_t bin = 0; at > 0 && bin < EXACT_NS; bin++)
      callers[0].exact[bin] += callers[at].exact[bin];
    for (size_t bin = 0; at > 0 && bin < COARSE_COUNT; bin++)
      callers[0].coarse[bin] += callers[at].coarse[bin];
  }
  printf("{\"elapsed_ns\":%llu,\"latencies\":[", (unsigned long long)(last_ns - from_ns));
  for (size_t bin = 0; bin < EXACT_NS + COARSE_COUNT; bin++) {
    int is_exact = bin < EXACT_NS;
    uint32_t found = is_exact ? callers[0].exact[bin] : callers[0].coarse[bin - EXACT_NS];
    unsigned long long took_ns = is_exact ? bin : (bin - EXACT_NS) * COARSE_NS + COARSE_NS / 2;
    if (found == 0)
      continue;
    printf("%s[%llu,%u]", comma, took_ns == 0 ? 1 : took_ns, found);
    comma = ",";
  }
  puts("]}");
  return 0;
}

int main(int argc, char **argv)
{
  if (argc > 1 && strcmp(argv[1], "serve") == 0)
    return serve(argc, argv);
  if (argc > 1 && strcmp(argv[1], "call") == 0)
    return call(argc, argv);
  fprintf(stderr, "usage: peer serve|call -side c …\n");
  return 2;
}
