/* Makes a unary call of a server that echoes, then a stream of calls, and prints what comes.

   echo_client shm:///run/user/1000/echo.sock /some.Service/Method "a message" */
#include <stdio.h>
#include <stdlib.h>
#include <tollfree.h>

#define SECOND 1000000000ull

static tollfree_loop loop;
static tollfree_event event = { .size = sizeof event };

static void must(int number, const char *what)
{
  if (number == 0)
    return;
  fprintf(stderr, "%s: error %d (%s): %s\n", what, number, tollfree_error_name(number), tollfree_error_text());
  exit(1);
}

/* The next event. What the one before brought is released. */
static void next(void)
{
  must(tollfree_buffer_release(event.payload.buffer), "releasing");
  must(tollfree_loop_wait(loop, 20 * SECOND, &event), "waiting");
  if (event.kind == TOLLFREE_EVENT_NONE) {
    fprintf(stderr, "nothing happens\n");
    exit(1);
  }
}

/* Prints what comes on a call, until its end. */
static void until_ended(void)
{
  for (;;) {
    next();
    switch (event.kind) {
    case TOLLFREE_EVENT_HEADERS: {
      tollfree_bytes name, value;
      size_t at = 0;
      while (tollfree_metadata_next(event.payload.bytes, &at, &name, &value) == 0 && name.data != NULL)
        printf("%.*s: %.*s\n", (int)name.len, (const char *)name.data, (int)value.len, (const char *)value.data);
      break;
    }
    case TOLLFREE_EVENT_MESSAGE:
      printf("message: %.*s\n", (int)event.payload.bytes.len, (const char *)event.payload.bytes.data);
      break;
    case TOLLFREE_EVENT_ENDED:
      printf("status %u %.*s\n", event.code, (int)event.text.len, (const char *)event.text.data);
      if (event.code != 0)
        exit(1);
      return;
    case TOLLFREE_EVENT_CLOSED:
      fprintf(stderr, "error %u: %.*s\n", event.code, (int)event.text.len, (const char *)event.text.data);
      exit(1);
    default:
      break;
    }
  }
}

int main(int argc, char **argv)
{
  tollfree_session session;
  tollfree_call call;
  tollfree_peer peer = { .size = sizeof peer };
  uint8_t metadata[256];
  size_t metadata_len = 0;
  tollfree_start start = { .size = sizeof start };

  if (argc != 4) {
    fprintf(stderr, "usage: echo_client ADDRESS PATH MESSAGE\n");
    return 2;
  }
  must(tollfree_loop_new(NULL, &loop), "making a loop");
  must(tollfree_connect(loop, tollfree_text(argv[1]), &session), "connecting");
  next();
  if (event.kind != TOLLFREE_EVENT_CONNECTED) {
    fprintf(stderr, "error %u: %.*s\n", event.code, (int)event.text.len, (const char *)event.text.data);
    return 1;
  }
  must(tollfree_session_peer(loop, session, &peer), "asking who is there");
  printf("user %u\n", peer.uid);

  /* Unary: one message, which is the last. */
  must(tollfree_metadata_put(metadata, sizeof metadata, &metadata_len, tollfree_text("x-from"), tollfree_text("c")), "metadata");
  start.path = tollfree_text(argv[2]);
  start.metadata.data = metadata;
  start.metadata.len = metadata_len;
  start.message.bytes = tollfree_text(argv[3]);
  start.flags = TOLLFREE_FLAG_HAS_MESSAGE | TOLLFREE_FLAG_LAST;
  start.deadline_ns = tollfree_now_ns() + 10 * SECOND;
  must(tollfree_call_start(loop, session, &start, &call), "calling");
  until_ended();

  /* A stream, as long as the server takes what is sent. */
  start.flags = TOLLFREE_FLAG_HAS_MESSAGE;
  must(tollfree_call_start(loop, session, &start, &call), "calling");
  for (int nth = 0; nth < 2; nth++)
    must(tollfree_call_send(loop, call, start.message, 0), "sending");
  must(tollfree_call_finish(loop, call), "finishing");
  until_ended();

  must(tollfree_buffer_release(event.payload.buffer), "releasing");
  must(tollfree_loop_free(loop), "ending the loop");
  return 0;
}
