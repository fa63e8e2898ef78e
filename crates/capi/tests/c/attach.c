/* A backend of a gateway: attaches, and echoes what the gateway's clients send, until its input ends. A line on its input has it take no more calls.
   attach SOCKET. */
#include <poll.h>
#include <unistd.h>

#include "check.h"

static void handle(tollfree_loop loop, const tollfree_event *event)
{
  if (event->kind == TOLLFREE_EVENT_CALL)
    OK(tollfree_call_answer_headers(loop, event->call, event->payload.bytes));
  if (event->kind == TOLLFREE_EVENT_MESSAGE)
    OK(tollfree_call_send(loop, event->call, event->payload, 0));
  if (event->kind == TOLLFREE_EVENT_HALF_CLOSED)
    OK(tollfree_call_answer_end(loop, event->call, 0, tollfree_text(NULL)));
  OK(tollfree_buffer_release(event->payload.buffer));
}

int main(int argc, char **argv)
{
  static const uint8_t process[16] = { 7 };
  tollfree_bytes service;
  tollfree_session session;
  tollfree_event event;
  tollfree_loop loop;
  CHECK(argc == 2);
  service = tollfree_text("tollfree.probe.v1.Probe");
  OK(tollfree_loop_new(NULL, &loop));
  OK(tollfree_attach(loop, tollfree_text(argv[1]), tollfree_text("echoes"), &service, 1, &process, 0, &session));
  event = next_event(loop);
  CHECK(event.kind == TOLLFREE_EVENT_CONNECTED && event.session.id == session.id);
  puts("listening");
  fflush(stdout);
  for (;;) {
    struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };
    memset(&event, 0, sizeof event);
    event.size = sizeof event;
    OK(tollfree_loop_wait(loop, 10000000, &event));
    handle(loop, &event);
    if (event.kind == TOLLFREE_EVENT_NONE && poll(&input, 1, 0) > 0) {
      char line[16];
      if (read(STDIN_FILENO, line, sizeof line) <= 0)
        break;
      OK(tollfree_session_drain(loop, session));
    }
  }
  OK(tollfree_loop_free(loop));
  return 0;
}
