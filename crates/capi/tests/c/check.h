/* What all test programs need: a check that names what it saw, and events of a loop with both ends. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tollfree.h>

#define SECOND 1000000000ull

#define CHECK(truth)                                                      \
  do {                                                                    \
    if (!(truth)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s (last error: %s)\n", __FILE__, __LINE__, #truth, tollfree_error_text()); \
      exit(1);                                                            \
    }                                                                     \
  } while (0)

/* A call of the library, and the number that it is to return. */
#define RETURNS(wanted, call)                                             \
  do {                                                                    \
    int number_ = (call);                                                 \
    if (number_ != (int)(wanted)) {                                       \
      fprintf(stderr, "%s:%d: %s returned %d (%s: %s), not %d\n", __FILE__, __LINE__, #call, number_,       \
              tollfree_error_name(number_), tollfree_error_text(), (int)(wanted));                        \
      exit(1);                                                            \
    }                                                                     \
  } while (0)

#define OK(call) RETURNS(0, call)

static tollfree_event next_event(tollfree_loop loop)
{
  tollfree_event event = { .size = sizeof event };
  OK(tollfree_loop_wait(loop, 60 * SECOND, &event));
  CHECK(event.kind != TOLLFREE_EVENT_NONE);
  return event;
}

/* Both ends of a session in one loop. */
typedef struct ends {
  tollfree_loop loop;
  tollfree_listener listener;
  tollfree_session client, server;
} ends;

static inline ends both_ends(const char *address, const tollfree_config *config)
{
  ends both;
  memset(&both, 0, sizeof both);
  OK(tollfree_loop_new(config, &both.loop));
  OK(tollfree_listen(both.loop, tollfree_text(address), &both.listener));
  OK(tollfree_connect(both.loop, tollfree_text(address), &both.client));
  for (int seen = 0; seen < 2; seen++) {
    tollfree_event event = next_event(both.loop);
    if (event.kind == TOLLFREE_EVENT_ACCEPTED) {
      CHECK(event.listener.id == both.listener.id);
      both.server = event.session;
    } else {
      CHECK(event.kind == TOLLFREE_EVENT_CONNECTED && event.session.id == both.client.id);
    }
  }
  return both;
}

#endif
