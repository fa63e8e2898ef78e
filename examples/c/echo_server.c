/* Serves at an address: each message comes back, on calls of all kinds, and so does the metadata. Ends when its input does.

   echo_server shm:///run/user/1000/echo.sock */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <pthread.h>
#include <tollfree.h>

static void must(int number, const char *what)
{
  if (number == 0)
    return;
  fprintf(stderr, "%s: error %d (%s): %s\n", what, number, tollfree_error_name(number), tollfree_error_text());
  exit(1);
}

/* A call may have ended by the time that it is answered: its client learns the rest from how it ended. */
static void answers(int number, const char *what)
{
  if (number != TOLLFREE_ERROR_CALL_ENDED)
    must(number, what);
}

static void handle(tollfree_loop loop, const tollfree_event *event)
{
  switch (event->kind) {
  case TOLLFREE_EVENT_CALL:
    answers(tollfree_call_answer_headers(loop, event->call, event->payload.bytes), "answering with headers");
    break;
  case TOLLFREE_EVENT_MESSAGE:
    answers(tollfree_call_send(loop, event->call, event->payload, event->flags & TOLLFREE_FLAG_COMPRESSED), "sending");
    break;
  case TOLLFREE_EVENT_HALF_CLOSED:
    answers(tollfree_call_answer_end(loop, event->call, 0, tollfree_text(NULL)), "ending a call");
    break;
  case TOLLFREE_EVENT_REFUSED:
  case TOLLFREE_EVENT_NOT_ACCEPTED:
    fprintf(stderr, "error %u: %.*s\n", event->code, (int)event->text.len, (const char *)event->text.data);
    break;
  default:
    break;
  }
  must(tollfree_buffer_release(event->payload.buffer), "releasing");
}

static tollfree_loop loop;
static volatile int is_over;

/* Another thread, which may do nothing with the loop but wake it. */
static void *watch_input(void *argument)
{
  char byte;
  (void)argument;
  while (read(STDIN_FILENO, &byte, 1) > 0)
    ;
  __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
  tollfree_loop_wake(loop);
  return NULL;
}

int main(int argc, char **argv)
{
  pthread_t watcher;
  tollfree_listener listener;
  tollfree_event event = { .size = sizeof event };

  if (argc != 2) {
    fprintf(stderr, "usage: echo_server ADDRESS\n");
    return 2;
  }
  must(tollfree_loop_new(NULL, &loop), "making a loop");
  must(tollfree_listen(loop, tollfree_text(argv[1]), &listener), "listening");
  if (pthread_create(&watcher, NULL, watch_input, NULL) != 0)
    return 1;
  puts("listening");
  fflush(stdout);
  while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE)) {
    must(tollfree_loop_wait(loop, UINT64_MAX, &event), "waiting");
    handle(loop, &event);
  }
  pthread_join(watcher, NULL);
  must(tollfree_loop_free(loop), "ending the loop");
  return 0;
}
