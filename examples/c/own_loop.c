/* A server in a program that has a loop of its own, by epoll: the loop's descriptor is one of many. Here the other is the input, whose lines
   the program counts; it answers each call with their number, and ends with its input.

   own_loop shm:///run/user/1000/lines.sock */
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>
#include <tollfree.h>

static tollfree_loop loop;
static unsigned line_count;

static void must(int number, const char *what)
{
  if (number == 0)
    return;
  fprintf(stderr, "%s: error %d (%s): %s\n", what, number, tollfree_error_name(number), tollfree_error_text());
  exit(1);
}

/* Takes a number of events, and lets the program's other work have its turn then. */
static void take_events(void)
{
  for (int turn = 0; turn < 64; turn++) {
    tollfree_event event = { .size = sizeof event };
    must(tollfree_loop_poll(loop, &event), "polling");
    if (event.kind == TOLLFREE_EVENT_NONE)
      return;
    if (event.kind == TOLLFREE_EVENT_HALF_CLOSED) {
      char answer[16];
      int len = snprintf(answer, sizeof answer, "%u", line_count);
      int number = tollfree_call_answer(loop, event.call, tollfree_copied(answer, (size_t)len), 0);
      if (number != TOLLFREE_ERROR_CALL_ENDED)
        must(number, "answering");
    }
    must(tollfree_buffer_release(event.payload.buffer), "releasing");
  }
}

int main(int argc, char **argv)
{
  enum { TOLLFREE, INPUT };
  tollfree_listener listener;
  int fd, poller = epoll_create1(EPOLL_CLOEXEC);
  struct epoll_event of_loop = { .events = EPOLLIN, .data.u32 = TOLLFREE };
  struct epoll_event of_input = { .events = EPOLLIN, .data.u32 = INPUT };

  if (argc != 2 || poller < 0) {
    fprintf(stderr, "usage: own_loop ADDRESS\n");
    return 2;
  }
  must(tollfree_loop_new(NULL, &loop), "making a loop");
  must(tollfree_listen(loop, tollfree_text(argv[1]), &listener), "listening");
  must(tollfree_loop_fd(loop, &fd), "asking for the descriptor");
  if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &of_loop) != 0 || epoll_ctl(poller, EPOLL_CTL_ADD, STDIN_FILENO, &of_input) != 0) {
    perror("epoll_ctl");
    return 1;
  }
  puts("listening");
  fflush(stdout);
  for (;;) {
    struct epoll_event ready[2];
    uint64_t timeout_ns;
    int may_sleep, timeout_ms = 0, count;

    take_events();
    must(tollfree_loop_arm(loop, &may_sleep, &timeout_ns), "arming");
    if (may_sleep)
      timeout_ms = timeout_ns > 1000000000000ull ? -1 : (int)((timeout_ns + 999999) / 1000000);
    count = epoll_wait(poller, ready, 2, timeout_ms);
    for (int at = 0; at < count; at++) {
      char bytes[256];
      ssize_t len;
      if (ready[at].data.u32 != INPUT)
        continue;
      len = read(STDIN_FILENO, bytes, sizeof bytes);
      if (len <= 0) {
        must(tollfree_loop_free(loop), "ending the loop");
        return 0;
      }
      for (ssize_t byte = 0; byte < len; byte++)
        line_count += bytes[byte] == '\n';
    }
  }
}
