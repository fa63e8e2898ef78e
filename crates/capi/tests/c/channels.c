/* Channels: connecting when a call needs it, servers that come and go, calls that wait, what is misused. */
#include "check.h"

static const char *address_text;

static tollfree_start unary(uint32_t more)
{
  tollfree_start start = { .size = sizeof start, .path = tollfree_text("/test.Echo/Call"), .message = tollfree_copied("hello", 5) };
  start.flags = TOLLFREE_FLAG_HAS_MESSAGE | TOLLFREE_FLAG_LAST | more;
  return start;
}

typedef struct seen {
  uint32_t code;
  unsigned messages, accepted;
  int is_ready, names_the_socket;
} seen;

/* Serves until a call of the channel's has ended, or for so long. */
static seen until_ended(tollfree_loop loop, tollfree_channel channel, tollfree_call call, uint64_t most_ns)
{
  seen seen = { 99, 0, 0, 0, 0 };
  uint64_t until = tollfree_now_ns() + most_ns;
  while (seen.code == 99 && tollfree_now_ns() < until) {
    tollfree_event event = { .size = sizeof event };
    OK(tollfree_loop_wait(loop, most_ns / 10, &event));
    if (event.kind == TOLLFREE_EVENT_CHANNEL) {
      CHECK(event.channel.id == channel.id && event.code <= TOLLFREE_CHANNEL_FAILING);
      seen.is_ready |= event.code == TOLLFREE_CHANNEL_READY;
    }
    seen.accepted += event.kind == TOLLFREE_EVENT_ACCEPTED;
    if (event.flags & TOLLFREE_FLAG_SERVED) {
      if (event.kind == TOLLFREE_EVENT_MESSAGE)
        OK(tollfree_call_answer(loop, event.call, event.payload, 0));
    } else if (event.call.number == call.number) {
      CHECK(event.session.id == 0);
      seen.messages += event.kind == TOLLFREE_EVENT_MESSAGE;
      if (event.kind == TOLLFREE_EVENT_ENDED) {
        char text[512] = "";
        CHECK(event.text.len < sizeof text);
        if (event.text.len > 0)
          memcpy(text, event.text.data, event.text.len);
        seen.code = event.code;
        seen.names_the_socket = strstr(text, strrchr(address_text, '/')) != NULL;
      }
    }
    OK(tollfree_buffer_release(event.payload.buffer));
  }
  return seen;
}

/* What a service config may not say, and what its error names. */
static const char *const wrong_configs[][2] = {
  { "{", "can't be read" },
  { "{\"loadBalancingPolicy\": \"ring_hash\"}", "ring_hash" },
  { "{\"methodConfig\": [{\"name\": [{}], \"timeout\": \"1m\"}]}", "timeout" },
};

static tollfree_channel_config config_of(const tollfree_server *servers, size_t count)
{
  tollfree_channel_config config = { .size = sizeof config, .servers = servers, .server_count = count };
  return config;
}

/* By its service config a call waits, fails at once where it says so itself, is made again, and has a deadline. */
static void follow_a_service_config(tollfree_loop loop, const tollfree_server *server)
{
  tollfree_channel_config config = config_of(server, 1);
  tollfree_channel channel;
  tollfree_listener listener;
  tollfree_call call;
  tollfree_start start = unary(TOLLFREE_FLAG_WAITS_NOT);
  unsigned attempts = 0;
  uint32_t code = 99;
  seen seen;
  config.service_config = tollfree_text(
    "{\"methodConfig\": [{\"name\": [{\"service\": \"test.Echo\"}], \"waitForReady\": true, \"retryPolicy\": {\"maxAttempts\": 4,"
    "\"initialBackoff\": \"0.001s\", \"maxBackoff\": \"0.01s\", \"backoffMultiplier\": 1, \"retryableStatusCodes\": [\"ABORTED\"]}},"
    "{\"name\": [{\"service\": \"test.Late\"}], \"timeout\": \"0.02s\", \"waitForReady\": true}]}");
  OK(tollfree_channel_open(loop, &config, &channel));
  OK(tollfree_channel_call(loop, channel, &start, &call));
  seen = until_ended(loop, channel, call, 10 * SECOND);
  CHECK(seen.code == 14);
  start = unary(0);
  start.path = tollfree_text("/test.Late/Call");
  OK(tollfree_channel_call(loop, channel, &start, &call));
  seen = until_ended(loop, channel, call, 10 * SECOND);
  CHECK(seen.code == 4);

  start = unary(0);
  OK(tollfree_channel_call(loop, channel, &start, &call));
  OK(tollfree_listen(loop, tollfree_text(address_text), &listener));
  while (code == 99) {
    tollfree_event event = next_event(loop);
    if (event.flags & TOLLFREE_FLAG_SERVED) {
      if (event.kind == TOLLFREE_EVENT_MESSAGE) {
        if (++attempts < 3)
          OK(tollfree_call_answer_end(loop, event.call, 10, tollfree_text("")));
        else
          OK(tollfree_call_answer(loop, event.call, event.payload, 0));
      }
    } else if (event.kind == TOLLFREE_EVENT_ENDED) {
      code = event.code;
    }
    OK(tollfree_buffer_release(event.payload.buffer));
  }
  CHECK(code == 0 && attempts == 3);
  OK(tollfree_unlisten(loop, listener));
  OK(tollfree_channel_close(loop, channel));
}

int main(int argc, char **argv)
{
  tollfree_config config = { .size = sizeof config };
  tollfree_loop loop;
  tollfree_listener listener;
  tollfree_channel channel, other = { 12345 };
  tollfree_server server = { .weight = 1 };
  tollfree_channel_config one = config_of(&server, 1);
  tollfree_server wrong = { .weight = 1, .address = tollfree_text("nonsense") };
  tollfree_start start = unary(0);
  tollfree_call call;
  uint32_t state;
  seen seen;
  CHECK(argc == 2);
  address_text = argv[1];
  server.address = tollfree_text(argv[1]);
  OK(tollfree_loop_new(&config, &loop));

  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_channel_open(loop, &one, NULL));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_channel_open(loop, NULL, &channel));
  one.policy = 9;
  RETURNS(TOLLFREE_ERROR_USE_VALUE, tollfree_channel_open(loop, &one, &channel));
  one = config_of(&server, 0);
  RETURNS(TOLLFREE_ERROR_USE_LENGTH, tollfree_channel_open(loop, &one, &channel));
  one = config_of(NULL, 1);
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_channel_open(loop, &one, &channel));
  one = config_of(&wrong, 1);
  CHECK(tollfree_channel_open(loop, &one, &channel) != 0);
  one = config_of(&server, 1);
  for (size_t at = 0; at < sizeof wrong_configs / sizeof *wrong_configs; at++) {
    one.service_config = tollfree_text(wrong_configs[at][0]);
    RETURNS(TOLLFREE_ERROR_USE_VALUE, tollfree_channel_open(loop, &one, &channel));
    CHECK(strstr(tollfree_error_text(), wrong_configs[at][1]) != NULL);
  }
  one.service_config = tollfree_text("");
  RETURNS(TOLLFREE_ERROR_USE_SESSION, tollfree_channel_state(loop, other, &state));
  RETURNS(TOLLFREE_ERROR_USE_SESSION, tollfree_channel_connect(loop, other));
  RETURNS(TOLLFREE_ERROR_USE_SESSION, tollfree_channel_close(loop, other));
  RETURNS(TOLLFREE_ERROR_USE_SESSION, tollfree_channel_call(loop, other, &start, &call));

  follow_a_service_config(loop, &server);

  /* Nobody is there. */
  one.policy = TOLLFREE_POLICY_ROUND_ROBIN;
  OK(tollfree_channel_open(loop, &one, &channel));
  OK(tollfree_channel_state(loop, channel, &state));
  CHECK(state == TOLLFREE_CHANNEL_IDLE);
  start.flags |= 1u << 20;
  RETURNS(TOLLFREE_ERROR_USE_VALUE, tollfree_channel_call(loop, channel, &start, &call));
  start = unary(TOLLFREE_FLAG_WAITS | TOLLFREE_FLAG_WAITS_NOT);
  RETURNS(TOLLFREE_ERROR_USE_VALUE, tollfree_channel_call(loop, channel, &start, &call));
  start = unary(0);
  OK(tollfree_channel_call(loop, channel, &start, &call));
  seen = until_ended(loop, channel, call, 10 * SECOND);
  CHECK(seen.code == 14 && seen.names_the_socket);

  /* One call waits for the server, and others follow when it has gone and come back. */
  start = unary(TOLLFREE_FLAG_WAITS);
  OK(tollfree_channel_call(loop, channel, &start, &call));
  seen = until_ended(loop, channel, call, SECOND / 20);
  CHECK(seen.code == 99);
  for (int round = 0; round < 3; round++) {
    OK(tollfree_listen(loop, tollfree_text(argv[1]), &listener));
    seen = until_ended(loop, channel, call, 10 * SECOND);
    CHECK(seen.code == 0 && seen.messages == 1 && seen.is_ready && seen.accepted == 1);
    OK(tollfree_channel_state(loop, channel, &state));
    CHECK(state == TOLLFREE_CHANNEL_READY);
    OK(tollfree_unlisten(loop, listener));
    OK(tollfree_channel_close(loop, channel));
    RETURNS(TOLLFREE_ERROR_USE_SESSION, tollfree_channel_close(loop, channel));
    one.policy = TOLLFREE_POLICY_LEAST_OUTSTANDING;
    OK(tollfree_channel_open(loop, &one, &channel));
    OK(tollfree_channel_connect(loop, channel));
    start = unary(TOLLFREE_FLAG_WAITS);
    OK(tollfree_channel_call(loop, channel, &start, &call));
  }

  /* Those under way are cancelled, and may be paused before. */
  OK(tollfree_call_pause(loop, call));
  OK(tollfree_call_resume(loop, call));
  OK(tollfree_channel_close(loop, channel));
  seen = until_ended(loop, channel, call, 10 * SECOND);
  CHECK(seen.code == 1);
  OK(tollfree_loop_free(loop));
  puts("done");
  return 0;
}
