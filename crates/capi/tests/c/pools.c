/* Two processes in one pool: what one writes there the other reads in place, in one message of several pieces, and releases in another
   thread. Without a pool in common the same bytes go. pools SOCKET. */
#include <dirent.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { BIG = 4 << 20, SMALL = 1000 };

static char pool_at[256], server_at[256];

static const tollfree_bytes nothing = { NULL, 0 };

static tollfree_pool joined(void)
{
  tollfree_pool pool;
  uint64_t until_ns = tollfree_now_ns() + 60 * SECOND;
  struct timespec pause = { 0, 1000000 };
  while (tollfree_pool_join(tollfree_text(pool_at), NULL, &pool) != 0) {
    CHECK(tollfree_now_ns() < until_ns);
    nanosleep(&pause, NULL);
  }
  return pool;
}

static tollfree_loop loop_in(tollfree_pool pool)
{
  tollfree_config config = { .size = sizeof config, .message_len_max = 64 << 20, .pool = pool };
  tollfree_loop loop;
  OK(tollfree_loop_new(&config, &loop));
  return loop;
}

/* Echoes each message in the pieces that it came in, and says in the trailers how many there were. */
static void serve(tollfree_loop loop)
{
  char count[16] = "0";
  for (;;) {
    tollfree_event event = next_event(loop);
    if (event.kind == TOLLFREE_EVENT_MESSAGE) {
      tollfree_payload pieces[8] = { event.payload };
      CHECK(event.more_count < 8);
      for (size_t at = 0; at < event.more_count; at++)
        pieces[at + 1] = event.more[at];
      snprintf(count, sizeof count, "%zu", event.more_count + 1);
      OK(tollfree_call_send_pieces(loop, event.call, pieces, event.more_count + 1, 0));
      for (size_t at = 0; at <= event.more_count; at++)
        OK(tollfree_buffer_release(pieces[at].buffer));
      continue;
    }
    if (event.kind == TOLLFREE_EVENT_HALF_CLOSED) {
      uint8_t block[64];
      size_t len = 0;
      tollfree_bytes trailers = { block, 0 };
      OK(tollfree_metadata_put(block, sizeof block, &len, tollfree_text("x-pieces"), tollfree_text(count)));
      trailers.len = len;
      OK(tollfree_call_answer_end(loop, event.call, 0, trailers));
    }
    OK(tollfree_buffer_release(event.payload.buffer));
    if (event.kind == TOLLFREE_EVENT_CLOSED)
      return;
  }
}

/* A server that is a member of the pool, or of none. */
static pid_t served(int is_member)
{
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    tollfree_pool pool = { 0 };
    tollfree_listener listener;
    tollfree_loop loop;
    if (is_member)
      pool = joined();
    loop = loop_in(pool);
    if (is_member)
      OK(tollfree_pool_release(pool));
    OK(tollfree_listen(loop, tollfree_text(server_at), &listener));
    serve(loop);
    OK(tollfree_loop_free(loop));
    /* What it has of the parent's threads is no leak. */
    _exit(0);
  }
  return child;
}

static void *release_in_another_thread(void *argument)
{
  tollfree_payload *payload = argument;
  OK(tollfree_buffer_release(payload->buffer));
  RETURNS(TOLLFREE_ERROR_USE_BUFFER, tollfree_buffer_release(payload->buffer));
  return NULL;
}

static void check_byte(const tollfree_payload *piece, size_t *at)
{
  for (size_t nth = 0; nth < piece->bytes.len; nth++, (*at)++)
    CHECK(piece->bytes.data[nth] == (*at < SMALL ? 'h' : (uint8_t)(*at - SMALL)));
}

/* One message of two pieces, the second in the pool, there and back. */
static void exchange(tollfree_loop loop, tollfree_pool pool, tollfree_channel channel, const char *pieces_seen)
{
  char head[SMALL];
  uint8_t *memory;
  tollfree_payload pieces[2];
  tollfree_call call;
  tollfree_start start = { .size = sizeof start, .path = tollfree_text("/test.Echo/Call") };
  tollfree_event event;
  size_t at = 0;
  memset(head, 'h', sizeof head);
  pieces[0] = tollfree_copied(head, sizeof head);
  OK(tollfree_pool_buffer(pool, BIG, &memory, &pieces[1]));
  CHECK(pieces[1].bytes.len == BIG && pieces[1].bytes.data == memory && memory[0] == 0 && memory[BIG - 1] == 0);
  for (size_t nth = 0; nth < BIG; nth++)
    memory[nth] = (uint8_t)nth;
  start.pieces = pieces;
  start.piece_count = 2;
  start.flags = TOLLFREE_FLAG_HAS_MESSAGE | TOLLFREE_FLAG_LAST | TOLLFREE_FLAG_WAITS;
  OK(tollfree_channel_call(loop, channel, &start, &call));
  OK(tollfree_buffer_release(pieces[1].buffer));
  do {
    event = next_event(loop);
    if (event.kind == TOLLFREE_EVENT_MESSAGE) {
      check_byte(&event.payload, &at);
      for (size_t nth = 0; nth < event.more_count; nth++) {
        tollfree_payload piece = event.more[nth];
        pthread_t thread;
        check_byte(&piece, &at);
        CHECK(pthread_create(&thread, NULL, release_in_another_thread, &piece) == 0 && pthread_join(thread, NULL) == 0);
      }
    }
    if (event.kind == TOLLFREE_EVENT_ENDED) {
      size_t place = 0;
      tollfree_bytes name, value;
      CHECK(event.code == 0);
      OK(tollfree_metadata_next(event.payload.bytes, &place, &name, &value));
      CHECK(value.len == strlen(pieces_seen) && memcmp(value.data, pieces_seen, value.len) == 0);
    }
    OK(tollfree_buffer_release(event.payload.buffer));
  } while (event.kind != TOLLFREE_EVENT_ENDED);
  CHECK(at == SMALL + BIG);
}

static void calls(tollfree_pool pool, int is_member)
{
  tollfree_loop loop = loop_in(pool);
  tollfree_server server = { tollfree_text(server_at), 1, 0 };
  tollfree_channel_config config = { .size = sizeof config, .servers = &server, .server_count = 1 };
  tollfree_payload_counts counts = { .size = sizeof counts };
  tollfree_channel channel;
  pid_t child = served(is_member);
  int status;
  OK(tollfree_channel_open(loop, &config, &channel));
  for (int turn = 0; turn < 3; turn++)
    exchange(loop, pool, channel, is_member ? "2" : "1");
  OK(tollfree_loop_payloads(loop, &counts));
  CHECK(counts.sent_by_ref == (is_member ? 3 : 0) && counts.received_by_ref == counts.sent_by_ref);
  CHECK(counts.refused_refs == 0);
  /* The short pieces travel beside the refs. */
  CHECK(counts.copied_bytes == (is_member ? 3 * SMALL : 0));
  OK(tollfree_loop_free(loop));
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void sessions_say_whether_they_share(tollfree_pool pool, const char *address)
{
  tollfree_config config = { .size = sizeof config, .pool = pool };
  ends both = both_ends(address, &config);
  int shares = 7;
  OK(tollfree_session_shares_pool(both.loop, both.client, &shares));
  CHECK(shares == 1);
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_session_shares_pool(both.loop, both.client, NULL));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_loop_payloads(both.loop, NULL));
  OK(tollfree_loop_free(both.loop));
  both = both_ends(address, NULL);
  OK(tollfree_session_shares_pool(both.loop, both.client, &shares));
  CHECK(shares == 0);
  OK(tollfree_loop_free(both.loop));
}

static void misuses(tollfree_pool pool)
{
  tollfree_pool_config small = { .size = sizeof small, .batch = 5 };
  tollfree_pool_config short_ = { .size = sizeof short_, .total = 1 << 20, .member_quota = 1 << 20, .batch = 1 << 16, .wait_ns = SECOND };
  tollfree_pool_config sizeless = { .size = 3 };
  tollfree_config config = { .size = sizeof config };
  tollfree_pool other, gone;
  tollfree_payload payload, held;
  tollfree_loop loop;
  uint8_t *memory;
  char at[sizeof pool_at + 8];
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_pool_create(tollfree_text(pool_at), NULL, NULL));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_pool_join(tollfree_text(pool_at), NULL, NULL));
  RETURNS(TOLLFREE_ERROR_ADDRESS_SCHEME, tollfree_pool_create(nothing, NULL, &other));
  RETURNS(TOLLFREE_ERROR_ADDRESS_SCHEME, tollfree_pool_join(nothing, NULL, &other));
  RETURNS(TOLLFREE_ERROR_USE_SIZE, tollfree_pool_join(tollfree_text(pool_at), &sizeless, &other));
  RETURNS(TOLLFREE_ERROR_POOL_JOIN, tollfree_pool_create(tollfree_text(pool_at), NULL, &other));
  CHECK(strstr(tollfree_error_text(), pool_at + strlen("shm://")) != NULL);
  RETURNS(TOLLFREE_ERROR_POOL_JOIN, tollfree_pool_join(tollfree_text("shm:///nowhere/pool.sock"), NULL, &other));
  snprintf(at, sizeof at, "%s.other", pool_at);
  RETURNS(TOLLFREE_ERROR_POOL_JOIN, tollfree_pool_create(tollfree_text(at), &small, &other));
  OK(tollfree_pool_create(tollfree_text(at), &short_, &other));
  gone = other;
  OK(tollfree_pool_buffer(other, 1 << 16, &memory, &held));
  RETURNS(TOLLFREE_ERROR_USE_LENGTH, tollfree_pool_buffer(other, 0, &memory, &payload));
  RETURNS(TOLLFREE_ERROR_USE_LENGTH, tollfree_pool_buffer(other, SIZE_MAX, &memory, &payload));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_pool_buffer(other, 1, NULL, &payload));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_pool_buffer(other, 1, &memory, NULL));
  RETURNS(TOLLFREE_ERROR_POOL_FULL, tollfree_pool_buffer(other, 1 << 20, &memory, &payload));
  OK(tollfree_pool_release(other));
  held.bytes.len = 1;
  OK(tollfree_buffer_release(held.buffer));
  RETURNS(TOLLFREE_ERROR_POOL_HANDLE, tollfree_pool_release(gone));
  RETURNS(TOLLFREE_ERROR_POOL_HANDLE, tollfree_pool_release((tollfree_pool){ 0 }));
  RETURNS(TOLLFREE_ERROR_POOL_HANDLE, tollfree_pool_buffer(gone, 1, &memory, &payload));
  config.pool = gone;
  RETURNS(TOLLFREE_ERROR_POOL_HANDLE, tollfree_loop_new(&config, &loop));
  (void)pool;
}

static void a_forked_process_is_no_member(tollfree_pool pool)
{
  pid_t child = fork();
  int status;
  CHECK(child >= 0);
  if (child == 0) {
    tollfree_payload payload;
    tollfree_config config = { .size = sizeof config, .pool = pool };
    tollfree_loop loop;
    uint8_t *memory;
    RETURNS(TOLLFREE_ERROR_USE_FORKED, tollfree_pool_buffer(pool, 1, &memory, &payload));
    RETURNS(TOLLFREE_ERROR_USE_FORKED, tollfree_loop_new(&config, &loop));
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* The pool's thread ends soon after its last handle was released: what it has until then is no leak. */
static void until_no_other_thread_is_left(void)
{
  uint64_t until_ns = tollfree_now_ns() + 60 * SECOND;
  struct timespec pause = { 0, 1000000 };
  for (;;) {
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;
    CHECK(tasks != NULL && tollfree_now_ns() < until_ns);
    for (struct dirent *each; (each = readdir(tasks)) != NULL;)
      count += each->d_name[0] != '.';
    closedir(tasks);
    if (count == 1)
      return;
    nanosleep(&pause, NULL);
  }
}

int main(int argc, char **argv)
{
  tollfree_pool pool;
  CHECK(argc == 2);
  snprintf(pool_at, sizeof pool_at, "%s.pool", argv[1]);
  snprintf(server_at, sizeof server_at, "%s.server", argv[1]);
  OK(tollfree_pool_create(tollfree_text(pool_at), NULL, &pool));
  calls(pool, 1);
  calls(pool, 0);
  sessions_say_whether_they_share(pool, argv[1]);
  misuses(pool);
  a_forked_process_is_no_member(pool);
  OK(tollfree_pool_release(pool));
  until_no_other_thread_is_left();
  puts("done");
  return 0;
}
