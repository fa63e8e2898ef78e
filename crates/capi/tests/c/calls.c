/* Calls of all four kinds, both ends in one loop: what is sent comes, and each buffer is released once. */
#include "check.h"

static unsigned released;

static void count_release(void *argument)
{
  free(argument);
  released++;
}

static tollfree_start unary(const char *path, tollfree_payload message)
{
  tollfree_start start = { .size = sizeof start };
  start.path = tollfree_text(path);
  start.message = message;
  start.flags = TOLLFREE_FLAG_HAS_MESSAGE | TOLLFREE_FLAG_LAST;
  return start;
}

/* The server's part: echoes, by path. */
static void serve(const ends *both, const tollfree_event *event)
{
  tollfree_bytes none = { NULL, 0 };
  CHECK(event->session.id == both->server.id);
  switch (event->kind) {
  case TOLLFREE_EVENT_CALL:
    OK(tollfree_call_answer_headers(both->loop, event->call, event->payload.bytes));
    RETURNS(TOLLFREE_ERROR_CALL_HEADERS_SAID, tollfree_call_answer_headers(both->loop, event->call, none));
    RETURNS(TOLLFREE_ERROR_CALL_NOT_A_CLIENT, tollfree_call_finish(both->loop, event->call));
    break;
  case TOLLFREE_EVENT_MESSAGE:
    OK(tollfree_call_send(both->loop, event->call, event->payload, event->flags & TOLLFREE_FLAG_COMPRESSED));
    break;
  case TOLLFREE_EVENT_HALF_CLOSED: {
    uint8_t block[64];
    size_t len = 0;
    tollfree_bytes trailers;
    OK(tollfree_metadata_put(block, sizeof block, &len, tollfree_text("grpc-message"), tollfree_text("as%20asked")));
    trailers.data = block;
    trailers.len = len;
    RETURNS(TOLLFREE_ERROR_USE_VALUE, tollfree_call_answer_end(both->loop, event->call, 17, trailers));
    OK(tollfree_call_answer_end(both->loop, event->call, 3, trailers));
    RETURNS(TOLLFREE_ERROR_CALL_ENDED, tollfree_call_answer_end(both->loop, event->call, 3, trailers));
    break;
  }
  default:
    break;
  }
}

typedef struct seen {
  unsigned headers, messages, sent;
  size_t bytes;
  uint32_t code;
} seen;

/* Serves until a client's call has ended. */
static seen until_ended(const ends *both, tollfree_call call, const tollfree_bytes *wanted)
{
  seen seen = { 0, 0, 0, 0, 99 };
  while (seen.code == 99) {
    tollfree_event event = next_event(both->loop);
    if (event.flags & TOLLFREE_FLAG_SERVED) {
      serve(both, &event);
    } else {
      CHECK(event.call.number == call.number && event.call.session.id == both->client.id);
      seen.headers += event.kind == TOLLFREE_EVENT_HEADERS;
      seen.sent += event.kind == TOLLFREE_EVENT_SENT;
      if (event.kind == TOLLFREE_EVENT_MESSAGE) {
        seen.messages++;
        seen.bytes += event.payload.bytes.len;
        if (wanted != NULL)
          CHECK(event.payload.bytes.len == wanted->len &&
                (wanted->len == 0 || memcmp(event.payload.bytes.data, wanted->data, wanted->len) == 0));
      }
      if (event.kind == TOLLFREE_EVENT_ENDED) {
        seen.code = event.code;
        if (event.code == 3)
          CHECK(event.text.len == 8 && memcmp(event.text.data, "as asked", 8) == 0);
      }
    }
    OK(tollfree_buffer_release(event.payload.buffer));
    if (event.payload.buffer.id != 0)
      RETURNS(TOLLFREE_ERROR_USE_BUFFER, tollfree_buffer_release(event.payload.buffer));
  }
  return seen;
}

static void unary_calls_of_all_lengths(const ends *both)
{
  static const size_t lens[] = { 0, 1, 64, 5000, 40000, 300000, 4u << 20 };
  for (size_t at = 0; at < sizeof lens / sizeof lens[0]; at++) {
    uint8_t *memory = malloc(lens[at] + 1);
    tollfree_bytes message = { memory, lens[at] };
    tollfree_payload lent;
    tollfree_start start;
    tollfree_call call;
    seen seen;
    unsigned before = released;
    for (size_t byte = 0; byte < lens[at]; byte++)
      memory[byte] = (uint8_t)(byte * 7);
    /* Copied. */
    start = unary("/test.Echo/Call", tollfree_copied(memory, lens[at]));
    OK(tollfree_call_start(both->loop, both->client, &start, &call));
    seen = until_ended(both, call, &message);
    CHECK(seen.code == 3 && seen.headers == 1 && seen.messages == 1);
    /* Lent: released when the ring has it, though the program's share has gone before. */
    OK(tollfree_buffer_wrap(message, count_release, memory, &lent));
    start = unary("/test.Echo/Call", lent);
    OK(tollfree_call_start(both->loop, both->client, &start, &call));
    OK(tollfree_buffer_release(lent.buffer));
    seen = until_ended(both, call, NULL);
    CHECK(seen.code == 3 && seen.bytes == lens[at]);
    CHECK(released == before + 1);
  }
}

static void streams(const ends *both)
{
  tollfree_start start = { .size = sizeof start, .path = tollfree_text("/test.Echo/Stream") };
  tollfree_call call;
  uint8_t message[3000];
  seen seen;
  memset(message, 7, sizeof message);
  OK(tollfree_call_start(both->loop, both->client, &start, &call));
  for (int nth = 0; nth < 300; nth++)
    OK(tollfree_call_send(both->loop, call, tollfree_copied(message, (size_t)nth * 10), nth % 2 ? TOLLFREE_FLAG_COMPRESSED : 0));
  RETURNS(TOLLFREE_ERROR_USE_VALUE, tollfree_call_send(both->loop, call, tollfree_copied(message, 1), 64));
  RETURNS(TOLLFREE_ERROR_CALL_NOT_A_SERVER, tollfree_call_answer_end(both->loop, call, 0, start.metadata));
  RETURNS(TOLLFREE_ERROR_CALL_NOT_A_SERVER, tollfree_call_answer(both->loop, call, tollfree_copied(message, 1), 0));
  OK(tollfree_call_finish(both->loop, call));
  RETURNS(TOLLFREE_ERROR_CALL_ENDED, tollfree_call_send(both->loop, call, tollfree_copied(message, 1), 0));
  seen = until_ended(both, call, NULL);
  CHECK(seen.messages == 300 && seen.bytes == 10 * 299 * 300 / 2);
}

/* Messages that are sent together, and taken together: as many, in order, by far fewer events. */
static void batches(const ends *both)
{
  enum { COUNT = 2000, AT_ONCE = 100 };
  static uint8_t bytes[AT_ONCE * AT_ONCE];
  size_t lens[AT_ONCE];
  tollfree_start start = { .size = sizeof start, .path = tollfree_text("/test.Echo/Stream") };
  tollfree_call call, served;
  unsigned came = 0, events = 0, ended = 0;
  memset(&served, 0, sizeof served);
  OK(tollfree_call_start(both->loop, both->client, &start, &call));
  for (unsigned nth = 0; nth < COUNT / AT_ONCE; nth++) {
    tollfree_payload lent;
    tollfree_bytes all = { bytes, 0 };
    for (size_t at = 0; at < AT_ONCE; at++) {
      lens[at] = at;
      memset(bytes + all.len, (int)at, at);
      all.len += at;
    }
    OK(tollfree_buffer_copy(all, &lent));
    OK(tollfree_call_send_batch(both->loop, call, lent, lens, AT_ONCE));
    OK(tollfree_buffer_release(lent.buffer));
  }
  OK(tollfree_call_finish(both->loop, call));
  while (!ended) {
    tollfree_event event = next_event(both->loop);
    if (event.kind == TOLLFREE_EVENT_CALL)
      served = event.call;
    if (event.kind == TOLLFREE_EVENT_MESSAGE) {
      tollfree_payload messages;
      size_t count, at = 0;
      int ours = event.flags & TOLLFREE_FLAG_SERVED;
      events += ours ? 0 : 1;
      OK(tollfree_call_take_batch(both->loop, event.call, lens, AT_ONCE, &messages, &count));
      CHECK(count <= AT_ONCE);
      if (ours) {
        OK(tollfree_call_send(both->loop, event.call, event.payload, 0));
        OK(tollfree_call_send_batch(both->loop, event.call, messages, lens, count));
      } else {
        CHECK(event.payload.bytes.len == came++ % AT_ONCE);
        for (size_t nth = 0; nth < count; nth++, came++) {
          CHECK(lens[nth] == came % AT_ONCE);
          CHECK(lens[nth] == 0 || messages.bytes.data[at] == (uint8_t)lens[nth]);
          at += lens[nth];
        }
        CHECK(at == messages.bytes.len);
      }
      OK(tollfree_buffer_release(messages.buffer));
    }
    if (event.kind == TOLLFREE_EVENT_HALF_CLOSED)
      OK(tollfree_call_answer_end(both->loop, served, 0, start.metadata));
    ended = event.kind == TOLLFREE_EVENT_ENDED;
    OK(tollfree_buffer_release(event.payload.buffer));
  }
  CHECK(came == COUNT && events < COUNT / 4);
}

/* A stream whose messages the program does not want for now: its peer waits, and all of them come afterwards. */
static void a_call_that_is_paused(const ends *both)
{
  tollfree_start start = { .size = sizeof start, .path = tollfree_text("/test.Echo/Stream") };
  tollfree_call call;
  uint8_t message[1000];
  unsigned came = 0, sent = 1;
  int is_resumed = 0;
  uint64_t until = 0;
  tollfree_event event = { .size = sizeof event };
  memset(message, 7, sizeof message);
  OK(tollfree_call_start(both->loop, both->client, &start, &call));
  OK(tollfree_call_pause(both->loop, call));
  OK(tollfree_call_send(both->loop, call, tollfree_copied(message, sizeof message), 0));
  while (came < 3000) {
    /* Long after the last was sent. */
    if (sent == 3000 && until == 0)
      until = tollfree_now_ns() + SECOND / 5;
    if (!is_resumed && until != 0 && tollfree_now_ns() > until) {
      /* Far less than 3,000 messages go into the window of a stream; the others wait at the server. */
      CHECK(came < 500);
      OK(tollfree_call_resume(both->loop, call));
      is_resumed = 1;
    }
    OK(tollfree_loop_wait(both->loop, SECOND / 100, &event));
    if (event.kind == TOLLFREE_EVENT_NONE)
      continue;
    if (event.flags & TOLLFREE_FLAG_SERVED)
      serve(both, &event);
    else if (event.kind == TOLLFREE_EVENT_MESSAGE)
      came++;
    else if (event.kind == TOLLFREE_EVENT_SENT && sent < 3000 && sent++)
      OK(tollfree_call_send(both->loop, call, tollfree_copied(message, sizeof message), 0));
    OK(tollfree_buffer_release(event.payload.buffer));
  }
  OK(tollfree_call_pause(both->loop, call));
  OK(tollfree_call_finish(both->loop, call));
  CHECK(until_ended(both, call, NULL).code == 3);
  OK(tollfree_call_resume(both->loop, call));
}

static void metadata_come_back(const ends *both)
{
  uint8_t block[64];
  size_t len = 0, at = 0;
  tollfree_start start = unary("/test.Echo/Call", tollfree_copied("x", 1));
  tollfree_call call;
  int is_over = 0;
  /* To the block's last byte: 2 + 6 + 2 + 54. */
  OK(tollfree_metadata_put(block, sizeof block, &len, tollfree_text("x-name"),
                           tollfree_text("012345678901234567890123456789012345678901234567890123")));
  CHECK(len == sizeof block);
  RETURNS(TOLLFREE_ERROR_USE_LENGTH, tollfree_metadata_put(block, sizeof block, &len, tollfree_text("a"), tollfree_text("")));
  start.metadata.data = block;
  start.metadata.len = len;
  OK(tollfree_call_start(both->loop, both->client, &start, &call));
  while (!is_over) {
    tollfree_event event = next_event(both->loop);
    if (event.flags & TOLLFREE_FLAG_SERVED) {
      if (event.kind == TOLLFREE_EVENT_CALL)
        CHECK(event.text.len == 15 && memcmp(event.text.data, "/test.Echo/Call", 15) == 0);
      serve(both, &event);
    } else if (event.kind == TOLLFREE_EVENT_HEADERS) {
      tollfree_bytes name, value;
      OK(tollfree_metadata_next(event.payload.bytes, &at, &name, &value));
      CHECK(name.len == 6 && memcmp(name.data, "x-name", 6) == 0 && value.len == 54);
      OK(tollfree_metadata_next(event.payload.bytes, &at, &name, &value));
      CHECK(name.data == NULL);
    }
    is_over = event.kind == TOLLFREE_EVENT_ENDED;
    OK(tollfree_buffer_release(event.payload.buffer));
  }
}

static void deadlines_and_cancellation(const ends *both)
{
  tollfree_start start = { .size = sizeof start, .path = tollfree_text("/test.Echo/Hang") };
  tollfree_call call, served;
  tollfree_event event;
  size_t count;
  start.deadline_ns = tollfree_now_ns() + 20000000;
  OK(tollfree_call_start(both->loop, both->client, &start, &call));
  CHECK(until_ended(both, call, NULL).code == 4);
  start.deadline_ns = 0;
  OK(tollfree_call_start(both->loop, both->client, &start, &call));
  do {
    event = next_event(both->loop);
    OK(tollfree_buffer_release(event.payload.buffer));
  } while (event.kind != TOLLFREE_EVENT_CALL);
  served = event.call;
  OK(tollfree_session_call_count(both->loop, both->client, &count));
  CHECK(count == 1);
  RETURNS(TOLLFREE_ERROR_USE_VALUE, tollfree_call_cancel(both->loop, call, 400));
  OK(tollfree_call_cancel(both->loop, call, 1));
  OK(tollfree_call_cancel(both->loop, call, 1));
  do {
    event = next_event(both->loop);
    OK(tollfree_buffer_release(event.payload.buffer));
  } while (event.kind != TOLLFREE_EVENT_ENDED || event.call.number != served.number);
  CHECK((event.flags & TOLLFREE_FLAG_SERVED) && event.code == 1);
}

static void drain_and_close(const ends *both)
{
  tollfree_start start = unary("/test.Echo/Call", tollfree_copied("x", 1));
  tollfree_call call;
  tollfree_event event;
  int closed = 0;
  OK(tollfree_session_drain(both->loop, both->server));
  event = next_event(both->loop);
  CHECK(event.kind == TOLLFREE_EVENT_DRAINING && event.session.id == both->client.id);
  RETURNS(TOLLFREE_ERROR_CALL_NO_SESSION, tollfree_call_start(both->loop, both->client, &start, &call));
  RETURNS(TOLLFREE_ERROR_CALL_NOT_A_CLIENT, tollfree_call_start(both->loop, both->server, &start, &call));
  OK(tollfree_session_close(both->loop, both->client));
  while (closed < 2) {
    event = next_event(both->loop);
    CHECK(event.kind == TOLLFREE_EVENT_CLOSED && event.text.len > 0 && event.payload.buffer.id == 0);
    CHECK(event.code == (event.session.id == both->client.id ? TOLLFREE_ERROR_SESSION_CLOSED_HERE : TOLLFREE_ERROR_SESSION_CLOSED_BY_PEER));
    closed++;
  }
  RETURNS(TOLLFREE_ERROR_USE_SESSION, tollfree_session_close(both->loop, both->client));
}

int main(int argc, char **argv)
{
  tollfree_config config = { .size = sizeof config, .agent = tollfree_text("calls.c") };
  tollfree_session lost;
  tollfree_event event;
  ends both;
  CHECK(argc == 2);
  both = both_ends(argv[1], &config);
  unary_calls_of_all_lengths(&both);
  streams(&both);
  batches(&both);
  a_call_that_is_paused(&both);
  metadata_come_back(&both);
  deadlines_and_cancellation(&both);
  drain_and_close(&both);
  OK(tollfree_unlisten(both.loop, both.listener));
  OK(tollfree_connect(both.loop, tollfree_text(argv[1]), &lost));
  event = next_event(both.loop);
  CHECK(event.kind == TOLLFREE_EVENT_NOT_CONNECTED && event.session.id == lost.id && event.code == TOLLFREE_ERROR_CONNECT_NO_SOCKET);
  OK(tollfree_loop_free(both.loop));
  puts("done");
  return 0;
}
