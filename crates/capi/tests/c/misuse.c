/* Each function misused in each way that the library can notice: an error's number, and nothing else happens. */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static const tollfree_bytes none = { NULL, 0 };
/* A length without bytes. */
static const tollfree_bytes lost = { NULL, 7 };
/* More than memory has. */
static tollfree_bytes endless(void)
{
  tollfree_bytes bytes = { (const uint8_t *)"x", SIZE_MAX };
  return bytes;
}

static tollfree_payload payload_of(tollfree_bytes bytes)
{
  tollfree_payload payload = { { NULL, 0 }, { 0 } };
  payload.bytes = bytes;
  return payload;
}

/* All functions of a loop, with arguments that are good but for the loop: each returns the same number. */
static void all_return(int number, tollfree_loop loop, const ends *both)
{
  tollfree_bytes address = tollfree_text("shm:///nowhere/s.sock");
  tollfree_event event = { .size = sizeof event };
  tollfree_start start = { .size = sizeof start, .path = tollfree_text("/a.B/C") };
  tollfree_peer peer = { .size = sizeof peer };
  tollfree_payload_counts counts = { .size = sizeof counts };
  tollfree_call call = { both->client, 1 };
  tollfree_server server = { address, 1, 0 };
  tollfree_channel_config channels = { .size = sizeof channels, .servers = &server, .server_count = 1 };
  tollfree_channel channel = { 1 };
  uint32_t state;
  const uint8_t process[16] = { 1 };
  tollfree_session session;
  tollfree_listener listener;
  tollfree_payload messages;
  uint64_t timeout;
  size_t count;
  int fd, may_sleep;
  RETURNS(number, tollfree_loop_fd(loop, &fd));
  RETURNS(number, tollfree_loop_poll(loop, &event));
  RETURNS(number, tollfree_loop_wait(loop, 0, &event));
  RETURNS(number, tollfree_loop_arm(loop, &may_sleep, &timeout));
  RETURNS(number, tollfree_connect(loop, address, &session));
  RETURNS(number, tollfree_attach(loop, address, tollfree_text("g"), NULL, 0, &process, 0, &session));
  RETURNS(number, tollfree_listen(loop, address, &listener));
  RETURNS(number, tollfree_unlisten(loop, both->listener));
  RETURNS(number, tollfree_channel_open(loop, &channels, &channel));
  RETURNS(number, tollfree_channel_close(loop, channel));
  RETURNS(number, tollfree_channel_connect(loop, channel));
  RETURNS(number, tollfree_channel_state(loop, channel, &state));
  RETURNS(number, tollfree_channel_call(loop, channel, &start, &call));
  RETURNS(number, tollfree_session_peer(loop, both->client, &peer));
  RETURNS(number, tollfree_session_call_count(loop, both->client, &count));
  RETURNS(number, tollfree_session_shares_pool(loop, both->client, &may_sleep));
  RETURNS(number, tollfree_loop_payloads(loop, &counts));
  RETURNS(number, tollfree_session_drain(loop, both->client));
  RETURNS(number, tollfree_session_close(loop, both->client));
  RETURNS(number, tollfree_call_start(loop, both->client, &start, &call));
  RETURNS(number, tollfree_call_send(loop, call, payload_of(none), 0));
  RETURNS(number, tollfree_call_send_pieces(loop, call, NULL, 0, 0));
  RETURNS(number, tollfree_call_send_batch(loop, call, payload_of(none), NULL, 0));
  RETURNS(number, tollfree_call_take_batch(loop, call, NULL, 0, &messages, &count));
  RETURNS(number, tollfree_call_finish(loop, call));
  RETURNS(number, tollfree_call_answer_headers(loop, call, none));
  RETURNS(number, tollfree_call_answer_end(loop, call, 0, none));
  RETURNS(number, tollfree_call_answer(loop, call, payload_of(none), 0));
  RETURNS(number, tollfree_call_cancel(loop, call, 1));
  RETURNS(number, tollfree_call_pause(loop, call));
  RETURNS(number, tollfree_call_resume(loop, call));
}

static void *in_another_thread(void *argument)
{
  const ends *both = argument;
  all_return(TOLLFREE_ERROR_USE_THREAD, both->loop, both);
  RETURNS(TOLLFREE_ERROR_USE_THREAD, tollfree_loop_free(both->loop));
  RETURNS(TOLLFREE_ERROR_USE_THREAD, tollfree_loop_leave(both->loop));
  RETURNS(TOLLFREE_ERROR_USE_THREAD, tollfree_loop_enter(both->loop));
  CHECK(strstr(tollfree_error_text(), "another thread") != NULL);
  OK(tollfree_loop_wake(both->loop));
  return NULL;
}

/* A loop that nobody frees ends with its thread. */
static void *leaves_a_loop(void *argument)
{
  OK(tollfree_loop_new(NULL, argument));
  return NULL;
}

static void in_a_forked_process(const ends *both)
{
  int status;
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    all_return(TOLLFREE_ERROR_USE_FORKED, both->loop, both);
    OK(tollfree_loop_free(both->loop));
    /* Not by an exit: what of the loop is the parent's is forgotten here on purpose, and no leak. */
    kill(getpid(), SIGKILL);
  }
  CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void nulls(const ends *both)
{
  tollfree_loop loop = both->loop;
  tollfree_bytes address = tollfree_text("shm:///nowhere/s.sock");
  tollfree_start start = { .size = sizeof start, .path = tollfree_text("/a.B/C") };
  const uint8_t process[16] = { 0 };
  tollfree_session session;
  tollfree_bytes bytes;
  tollfree_payload payload;
  uint8_t block[8];
  size_t len = 0;
  int flag;
  uint64_t time;
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_loop_new(NULL, NULL));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_loop_fd(loop, NULL));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_loop_poll(loop, NULL));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_loop_wait(loop, 0, NULL));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_loop_arm(loop, NULL, &time));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_loop_arm(loop, &flag, NULL));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_connect(loop, address, NULL));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_connect(loop, lost, &session));
  RETURNS(TOLLFREE_ERROR_USE_LENGTH, tollfree_connect(loop, endless(), &session));
  RETURNS(TOLLFREE_ERROR_ADDRESS_SCHEME, tollfree_connect(loop, none, &session));
  RETURNS(TOLLFREE_ERROR_ADDRESS_SCHEME, tollfree_connect(loop, tollfree_text("unix:///x"), &session));
  RETURNS(TOLLFREE_ERROR_USE_VALUE, tollfree_connect(loop, tollfree_text("shm:///\xff"), &session));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_attach(loop, address, none, NULL, 0, NULL, 0, &session));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_attach(loop, address, none, NULL, 1, &process, 0, &session));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_attach(loop, address, none, &lost, 1, &process, 0, &session));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_listen(loop, address, NULL));
  RETURNS(TOLLFREE_ERROR_BIND_DIRECTORY, tollfree_listen(loop, address, &(tollfree_listener){ 0 }));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_session_peer(loop, both->client, NULL));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_session_call_count(loop, both->client, NULL));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_call_start(loop, both->client, NULL, &(tollfree_call){ { 0 }, 0 }));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_call_start(loop, both->client, &start, NULL));
  start.metadata = lost;
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_call_start(loop, both->client, &start, &(tollfree_call){ { 0 }, 0 }));
  start.metadata = none;
  start.flags = TOLLFREE_FLAG_HAS_MESSAGE;
  start.piece_count = 1;
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_call_start(loop, both->client, &start, &(tollfree_call){ { 0 }, 0 }));
  start.piece_count = 0;
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_call_send_pieces(loop, (tollfree_call){ both->client, 1 }, NULL, 1, 0));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_call_send_batch(loop, (tollfree_call){ both->client, 1 }, payload_of(none), NULL, 1));
  RETURNS(TOLLFREE_ERROR_USE_LENGTH, tollfree_call_send_batch(loop, (tollfree_call){ both->client, 1 }, payload_of(tollfree_text("x")), &len, 1));
  RETURNS(TOLLFREE_ERROR_CALL_ENDED, tollfree_call_send_batch(loop, (tollfree_call){ both->client, 1 }, payload_of(none), &len, 1));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_call_take_batch(loop, (tollfree_call){ both->client, 1 }, NULL, 1, &payload, &len));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_call_take_batch(loop, (tollfree_call){ both->client, 1 }, &len, 1, NULL, &len));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_call_take_batch(loop, (tollfree_call){ both->client, 1 }, &len, 1, &payload, NULL));
  start.flags = 1u << 31;
  RETURNS(TOLLFREE_ERROR_USE_VALUE, tollfree_call_start(loop, both->client, &start, &(tollfree_call){ { 0 }, 0 }));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_buffer_wrap(lost, NULL, NULL, &payload));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_buffer_wrap(none, NULL, NULL, NULL));
  RETURNS(TOLLFREE_ERROR_USE_LENGTH, tollfree_buffer_copy(endless(), &payload));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_buffer_copy(none, NULL));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_buffer_retain((tollfree_buffer){ 0 }, NULL));
  OK(tollfree_buffer_release((tollfree_buffer){ 0 }));
  RETURNS(TOLLFREE_ERROR_USE_BUFFER, tollfree_buffer_release((tollfree_buffer){ UINT64_MAX }));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_metadata_put(NULL, 8, &len, tollfree_text("a"), none));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_metadata_put(block, 8, NULL, tollfree_text("a"), none));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_metadata_next(none, NULL, &bytes, &bytes));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_metadata_next(none, &len, NULL, &bytes));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_metadata_next(none, &len, &bytes, NULL));
}

static void sizes(const ends *both)
{
  static const size_t bad[] = { 0, 1, 8, SIZE_MAX };
  tollfree_session session = both->client;
  for (size_t at = 0; at < sizeof bad / sizeof bad[0]; at++) {
    tollfree_loop made;
    tollfree_call call;
    tollfree_config config = { .size = bad[at] };
    tollfree_event event = { .size = bad[at] };
    tollfree_start start = { .size = bad[at] };
    tollfree_peer peer = { .size = bad[at] };
    RETURNS(TOLLFREE_ERROR_USE_SIZE, tollfree_loop_new(&config, &made));
    RETURNS(TOLLFREE_ERROR_USE_SIZE, tollfree_loop_poll(both->loop, &event));
    RETURNS(TOLLFREE_ERROR_USE_SIZE, tollfree_loop_wait(both->loop, 0, &event));
    RETURNS(TOLLFREE_ERROR_USE_SIZE, tollfree_call_start(both->loop, session, &start, &call));
    RETURNS(TOLLFREE_ERROR_USE_SIZE, tollfree_session_peer(both->loop, session, &peer));
  }
}

/* A program of a later version, whose event is longer: what this library does not know it leaves alone. */
static void a_longer_event(const ends *both)
{
  struct {
    tollfree_event event;
    uint64_t later;
  } room;
  memset(&room, 9, sizeof room);
  room.event.size = sizeof room;
  OK(tollfree_loop_poll(both->loop, &room.event));
  CHECK(room.event.kind == TOLLFREE_EVENT_NONE && room.event.size == sizeof room && room.later == 0x0909090909090909u);
}

static void handles_of_others(const ends *both, const char *address)
{
  tollfree_bytes none_ = none;
  tollfree_call unknown = { both->client, 77 }, nowhere = { { 12345 }, 1 };
  tollfree_start start = { .size = sizeof start, .path = tollfree_text("/a.B/C") };
  tollfree_call call;
  tollfree_loop other;
  tollfree_listener listener;
  tollfree_peer peer = { .size = sizeof peer };
  RETURNS(TOLLFREE_ERROR_CALL_ENDED, tollfree_call_send(both->loop, unknown, payload_of(none), 0));
  RETURNS(TOLLFREE_ERROR_CALL_ENDED, tollfree_call_send(both->loop, nowhere, payload_of(none), 0));
  RETURNS(TOLLFREE_ERROR_CALL_ENDED, tollfree_call_answer_end(both->loop, nowhere, 0, none_));
  OK(tollfree_call_cancel(both->loop, nowhere, 1));
  OK(tollfree_loop_new(NULL, &other));
  RETURNS(TOLLFREE_ERROR_USE_SESSION, tollfree_session_peer(other, both->client, &peer));
  RETURNS(TOLLFREE_ERROR_USE_SESSION, tollfree_session_close(other, both->client));
  RETURNS(TOLLFREE_ERROR_USE_SESSION, tollfree_session_drain(other, both->client));
  RETURNS(TOLLFREE_ERROR_CALL_NO_SESSION, tollfree_call_start(other, both->client, &start, &call));
  RETURNS(TOLLFREE_ERROR_USE_SESSION, tollfree_unlisten(other, both->listener));
  RETURNS(TOLLFREE_ERROR_USE_SESSION, tollfree_unlisten(other, (tollfree_listener){ 0 }));
  RETURNS(TOLLFREE_ERROR_BIND_IN_USE, tollfree_listen(other, tollfree_text(address), &listener));
  OK(tollfree_session_peer(both->loop, both->client, &peer));
  CHECK(peer.uid == getuid() && peer.gid == getgid() && peer.pid == getpid());
  OK(tollfree_loop_free(other));
  all_return(TOLLFREE_ERROR_USE_LOOP, other, both);
  RETURNS(TOLLFREE_ERROR_USE_LOOP, tollfree_loop_wake(other));
  RETURNS(TOLLFREE_ERROR_USE_LOOP, tollfree_loop_free(other));
  all_return(TOLLFREE_ERROR_USE_LOOP, (tollfree_loop){ 0 }, both);
  RETURNS(TOLLFREE_ERROR_USE_LOOP, tollfree_loop_enter(other));
  RETURNS(TOLLFREE_ERROR_USE_LOOP, tollfree_loop_leave(other));
}

static tollfree_loop busy;
static ends busy_ends;
static int called_back;

/* A release function that does what it may not. */
static void calls_the_loop(void *argument)
{
  CHECK(argument == &busy);
  all_return(TOLLFREE_ERROR_USE_BUSY, busy, &busy_ends);
  RETURNS(TOLLFREE_ERROR_USE_BUSY, tollfree_loop_leave(busy));
  RETURNS(TOLLFREE_ERROR_USE_BUSY, tollfree_loop_free(busy));
  OK(tollfree_loop_wake(busy));
  called_back++;
}

static void release_functions_that_call_the_loop(const ends *both)
{
  tollfree_start start = { .size = sizeof start, .path = tollfree_text("/a.B/C") };
  tollfree_call call;
  busy = both->loop;
  busy_ends = *both;
  OK(tollfree_buffer_wrap(tollfree_text("lent"), calls_the_loop, &busy, &start.message));
  start.flags = TOLLFREE_FLAG_HAS_MESSAGE | TOLLFREE_FLAG_LAST;
  OK(tollfree_call_start(both->loop, both->client, &start, &call));
  OK(tollfree_buffer_release(start.message.buffer));
  CHECK(called_back == 0);
  OK(tollfree_call_cancel(both->loop, call, 1));
  CHECK(called_back == 1);
}

static void tables(void)
{
  tollfree_table table = { 12345 };
  tollfree_object object = { 12345 };
  tollfree_type type = { .size = sizeof type };
  tollfree_field field = { .size = sizeof field };
  tollfree_value value = { .size = sizeof value };
  tollfree_payload payload;
  tollfree_bytes bytes;
  uint64_t fingerprint;
  uint32_t number = 1;
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_table_load(none, NULL));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_table_load(lost, &table));
  RETURNS(TOLLFREE_ERROR_TABLE_BLOB, tollfree_table_load(none, &table));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_table_compile(none, NULL));
  RETURNS(TOLLFREE_ERROR_TABLE_BLOB, tollfree_table_compile(tollfree_text("\xff"), &table));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_table_blob(table, NULL));
  RETURNS(TOLLFREE_ERROR_TABLE_HANDLE, tollfree_table_blob(table, &payload));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_table_type(table, none, NULL));
  RETURNS(TOLLFREE_ERROR_TABLE_HANDLE, tollfree_table_type(table, tollfree_text("a.B"), &number));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_table_fingerprint(table, NULL));
  RETURNS(TOLLFREE_ERROR_TABLE_HANDLE, tollfree_table_fingerprint(table, &fingerprint));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_table_type_count(table, NULL));
  RETURNS(TOLLFREE_ERROR_TABLE_HANDLE, tollfree_table_type_count(table, &number));
  RETURNS(TOLLFREE_ERROR_TABLE_HANDLE, tollfree_table_type_at(table, 0, &type));
  RETURNS(TOLLFREE_ERROR_TABLE_HANDLE, tollfree_table_field_at(table, 0, 0, &field));
  RETURNS(TOLLFREE_ERROR_TABLE_HANDLE, tollfree_table_release(table));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_object_verify(table, 0, payload_of(none), NULL));
  RETURNS(TOLLFREE_ERROR_TABLE_HANDLE, tollfree_object_verify(table, 0, payload_of(none), &object));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_object_decode(table, 0, none, NULL));
  RETURNS(TOLLFREE_ERROR_TABLE_HANDLE, tollfree_object_decode(table, 0, none, &object));
  object.id = 12345;
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_object_encode(object, NULL));
  RETURNS(TOLLFREE_ERROR_TABLE_HANDLE, tollfree_object_encode(object, &payload));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_object_bytes(object, NULL));
  RETURNS(TOLLFREE_ERROR_TABLE_HANDLE, tollfree_object_bytes(object, &bytes));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_object_get(object, NULL, 1, &value));
  RETURNS(TOLLFREE_ERROR_TABLE_HANDLE, tollfree_object_get(object, &number, 1, &value));
  RETURNS(TOLLFREE_ERROR_TABLE_HANDLE, tollfree_object_release(object));
}

int main(int argc, char **argv)
{
  pthread_t thread;
  tollfree_loop left;
  ends both;
  CHECK(argc == 2);
  CHECK(strcmp(tollfree_error_text(), "") == 0);
  CHECK(strcmp(tollfree_error_name(401), "CALL_ENDED") == 0 && strcmp(tollfree_error_name(7), "") == 0);
  CHECK(strlen(tollfree_version()) >= 5);
  both = both_ends(argv[1], NULL);
  nulls(&both);
  sizes(&both);
  tables();
  a_longer_event(&both);
  handles_of_others(&both, argv[1]);
  release_functions_that_call_the_loop(&both);
  CHECK(pthread_create(&thread, NULL, in_another_thread, &both) == 0 && pthread_join(thread, NULL) == 0);
  in_a_forked_process(&both);
  CHECK(pthread_create(&thread, NULL, leaves_a_loop, &left) == 0 && pthread_join(thread, NULL) == 0);
  RETURNS(TOLLFREE_ERROR_USE_LOOP, tollfree_loop_wake(left));
  all_return(TOLLFREE_ERROR_USE_LOOP, left, &both);
  OK(tollfree_loop_free(both.loop));
  puts("done");
  return 0;
}
