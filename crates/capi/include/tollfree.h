/* Tollfree for C: gRPC calls between processes of one host, over shared memory.

   Written by cbindgen from crates/capi/src, and not to be changed here. docs/guide/c.md is the guide.

   Functions return 0, or a number of tollfree_errors.h, whose text tollfree_error_text gives. Unless a function says "any thread", it is
   called in the thread that made its loop. Of structures with a `size`, set that to their sizeof, and what is not needed to 0. */

#ifndef TOLLFREE_H
#define TOLLFREE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "tollfree_errors.h"

/*
 `flags` of a call's start: there is a message.
 */
#define TOLLFREE_FLAG_HAS_MESSAGE 8

/*
 `flags` of a call's start: no other message follows.
 */
#define TOLLFREE_FLAG_LAST 16

/*
 `flags` of the start of a channel's call: it waits for a connection however often connecting fails, until its deadline.
 */
#define TOLLFREE_FLAG_WAITS 32

/*
 `flags` of the start of a channel's call: it does not, whatever the service config says.
 */
#define TOLLFREE_FLAG_WAITS_NOT 64

/*
 Not connected, and nothing tries to. A call or `tollfree_channel_connect` changes that.
 */
#define TOLLFREE_CHANNEL_IDLE 0

/*
 Being connected.
 */
#define TOLLFREE_CHANNEL_CONNECTING 1

/*
 Calls can be made.
 */
#define TOLLFREE_CHANNEL_READY 2

/*
 The last attempts to connect have failed. The next follows.
 */
#define TOLLFREE_CHANNEL_FAILING 3

/*
 The first server that can be used.
 */
#define TOLLFREE_POLICY_PICK_FIRST 0

/*
 Each server in turn, as often as its weight says.
 */
#define TOLLFREE_POLICY_ROUND_ROBIN 1

/*
 The server with the fewest calls under way, beside its weight.
 */
#define TOLLFREE_POLICY_LEAST_OUTSTANDING 2

/*
 `wait`: spins where that costs no more than to be woken, and where nobody else wants the processor; else sleeps.
 */
#define TOLLFREE_WAIT_ADAPTIVE 0

/*
 `wait`: spins for as long as recent waits make worth while, whatever that costs.
 */
#define TOLLFREE_WAIT_LOW_LATENCY 1

/*
 `wait`: never sleeps.
 */
#define TOLLFREE_WAIT_POLL 2

/*
 `wait`: never spins.
 */
#define TOLLFREE_WAIT_PARK 3

/*
 `peers`: this process's user alone.
 */
#define TOLLFREE_PEERS_SAME_USER 0

/*
 `peers`: the users of the list.
 */
#define TOLLFREE_PEERS_USERS 1

/*
 `peers`: all who can reach the socket.
 */
#define TOLLFREE_PEERS_ANYONE 2

/*
 Nothing has happened.
 */
#define TOLLFREE_EVENT_NONE 0

/*
 `session` has begun, which `tollfree_connect` or `tollfree_attach` asked for.
 */
#define TOLLFREE_EVENT_CONNECTED 1

/*
 It has not, and never will: `code` is the error's number, `text` says why.
 */
#define TOLLFREE_EVENT_NOT_CONNECTED 2

/*
 A client has come to `listener`: `session` has begun.
 */
#define TOLLFREE_EVENT_ACCEPTED 3

/*
 A client of `listener` was refused: `code` is the error's number, `text` says why.
 */
#define TOLLFREE_EVENT_REFUSED 4

/*
 No client can be accepted at `listener`, for want of descriptors or memory most likely: told once, until a client was accepted again.
 */
#define TOLLFREE_EVENT_NOT_ACCEPTED 5

/*
 No call begins in `session` any more. Calls under way go on.
 */
#define TOLLFREE_EVENT_DRAINING 6

/*
 `session` is over, and its calls before: `code` is the error's number, `text` says why.
 */
#define TOLLFREE_EVENT_CLOSED 7

/*
 A client has begun `call`: `text` is its path, `payload` its metadata, `deadline_ns` its deadline.
 */
#define TOLLFREE_EVENT_CALL 8

/*
 The answer's headers have come on `call`: `payload` has them.
 */
#define TOLLFREE_EVENT_HEADERS 9

/*
 A message has come on `call`: `payload`; in a loop with a pool, its other pieces are `more`.
 */
#define TOLLFREE_EVENT_MESSAGE 10

/*
 The client of `call` sends nothing more.
 */
#define TOLLFREE_EVENT_HALF_CLOSED 11

/*
 All messages that were given to `call` are on their way: the next takes no memory here.
 */
#define TOLLFREE_EVENT_SENT 12

/*
 `call` is over: `code` is gRPC's status, `text` its message, `payload` the trailing metadata. On a server's side: it was cancelled.
 */
#define TOLLFREE_EVENT_ENDED 13

/*
 `channel` fares otherwise than before: `code` is `TOLLFREE_CHANNEL_…`.
 */
#define TOLLFREE_EVENT_CHANNEL 14

/*
 `flags` of a message: it is compressed as the call's `grpc-encoding` says. The library does neither.
 */
#define TOLLFREE_FLAG_COMPRESSED 1

/*
 `flags` of an end: the server has not looked at the call, which may be made again anywhere.
 */
#define TOLLFREE_FLAG_UNPROCESSED 2

/*
 `flags` of all events of a call that this end answers.
 */
#define TOLLFREE_FLAG_SERVED 4

/*
 The field is absent.
 */
#define TOLLFREE_VALUE_ABSENT 0

/*
 A bool: `integer` is 0 or 1.
 */
#define TOLLFREE_VALUE_BOOL 1

/*
 A signed number: `integer`.
 */
#define TOLLFREE_VALUE_INT 2

/*
 An unsigned number: `integer`, to be read as `uint64_t`.
 */
#define TOLLFREE_VALUE_UINT 3

/*
 A float or double: `number`.
 */
#define TOLLFREE_VALUE_DOUBLE 4

/*
 A value of an enum, also one that the schema does not list: `integer`.
 */
#define TOLLFREE_VALUE_ENUM 5

/*
 A string: `bytes`, which are UTF-8 where the schema demands it.
 */
#define TOLLFREE_VALUE_STRING 6

/*
 Bytes: `bytes`.
 */
#define TOLLFREE_VALUE_BYTES 7

/*
 A message: the path goes on with a field's number.
 */
#define TOLLFREE_VALUE_MESSAGE 8

/*
 `count` elements: the path goes on with an element's index, from 0 on.
 */
#define TOLLFREE_VALUE_LIST 9

/*
 `count` entries: messages with the fields 1, the key, and 2, the value. Of equal keys the last counts.
 */
#define TOLLFREE_VALUE_MAP 10

/*
 An event loop with its sessions and listeners. `{0}` is none. It belongs to the thread that made it, or that entered it; in other
 threads only `tollfree_loop_wake` may be called on it. It ends with `tollfree_loop_free`, or with its thread.
 */
typedef struct tollfree_loop {
  uint64_t id;
} tollfree_loop;

/*
 A session: a connection to one process. `{0}` is none. No two sessions of a loop have the same.
 */
typedef struct tollfree_session {
  uint64_t id;
} tollfree_session;

/*
 A call. `{{0}, 0}` is none. No two calls of a loop have the same.
 */
typedef struct tollfree_call {
  struct tollfree_session session;
  uint64_t number;
} tollfree_call;

/*
 Bytes somewhere in memory. `data` may be null where `len` is 0. What a function is passed it reads before it returns, and does not
 keep; how long bytes stay that the library gives is said where it gives them.
 */
typedef struct tollfree_bytes {
  const uint8_t *data;
  size_t len;
} tollfree_bytes;

/*
 A share in bytes that the library keeps: `{0}` stands for none. Each is released once, in any thread.
 */
typedef struct tollfree_buffer {
  uint64_t id;
} tollfree_buffer;

/*
 Bytes, and who keeps them. What an event gives is the program's to release, unless `buffer` is `{0}`. What a function is passed is
 copied where `buffer` is `{0}`; else `bytes` lie in the buffer, of which the library takes a share of its own: the program's is the
 program's to release, before or after.
 */
typedef struct tollfree_payload {
  struct tollfree_bytes bytes;
  struct tollfree_buffer buffer;
} tollfree_payload;

/*
 Called once, when nobody needs the memory any more: in the function of the library in which the last share in it goes, so in a thread
 that the program called in. It may release buffers and wake loops; it must neither throw nor jump out.
 */
typedef void (*tollfree_release)(void *argument);

/*
 How a call begins.
 */
typedef struct tollfree_start {
  /*
   `sizeof(tollfree_start)`.
   */
  size_t size;
  /*
   `/package.Service/Method`.
   */
  struct tollfree_bytes path;
  /*
   A block of metadata, or none.
   */
  struct tollfree_bytes metadata;
  /*
   The call ends with DEADLINE_EXCEEDED then, on the clock of `tollfree_now_ns`; 0: no matter when.
   */
  uint64_t deadline_ns;
  /*
   The first message, with `TOLLFREE_FLAG_HAS_MESSAGE`.
   */
  struct tollfree_payload message;
  /*
   Bits: `TOLLFREE_FLAG_HAS_MESSAGE`, `TOLLFREE_FLAG_LAST`, `TOLLFREE_FLAG_COMPRESSED`; in a channel, `TOLLFREE_FLAG_WAITS` or
   `TOLLFREE_FLAG_WAITS_NOT`.
   */
  uint32_t flags;
  /*
   0.
   */
  uint32_t reserved;
  /*
   The first message in pieces, in order, instead of `message`.
   */
  const struct tollfree_payload *pieces;
  /*
   How many there are; 0: the message is `message`.
   */
  size_t piece_count;
} tollfree_start;

/*
 A server of a channel.
 */
typedef struct tollfree_server {
  /*
   `shm:///path` or `shm-abstract:name`.
   */
  struct tollfree_bytes address;
  /*
   Its share of the calls beside the others of its priority; 0: it gets none.
   */
  uint32_t weight;
  /*
   0 is the highest. The next is used while no server of it can be.
   */
  uint32_t priority;
} tollfree_server;

/*
 What a channel is made of.
 */
typedef struct tollfree_channel_config {
  /*
   `sizeof(tollfree_channel_config)`.
   */
  size_t size;
  /*
   The servers.
   */
  const struct tollfree_server *servers;
  /*
   How many there are: one at least.
   */
  size_t server_count;
  /*
   How a server is chosen for a call: `TOLLFREE_POLICY_…`. `loadBalancingConfig` of the service config comes before.
   */
  uint32_t policy;
  /*
   0.
   */
  uint32_t reserved;
  /*
   gRPC's service config, as JSON, or nothing: `loadBalancingConfig`, `retryThrottling`, and `methodConfig` with `timeout`,
   `waitForReady` and `retryPolicy`.
   */
  struct tollfree_bytes service_config;
} tollfree_channel_config;

/*
 Calls to one or more servers. `{0}` is none. No two channels of a process have the same.
 */
typedef struct tollfree_channel {
  uint64_t id;
} tollfree_channel;

/*
 A membership of this process in a pool. `{0}` is none. Any thread; released once. The process leaves the pool when its last handle was
 released, its loops have ended, and no buffer is left that lies in the pool.
 */
typedef struct tollfree_pool {
  uint64_t id;
} tollfree_pool;

/*
 Settings of a loop, for all of its sessions. A member that is 0 has the value of a loop without settings.
 */
typedef struct tollfree_config {
  /*
   `sizeof(tollfree_config)`.
   */
  size_t size;
  /*
   How waiting is done: `TOLLFREE_WAIT_…`.
   */
  uint32_t wait;
  /*
   Who may be at the other end: `TOLLFREE_PEERS_…`.
   */
  uint32_t peers;
  /*
   User ids, for `TOLLFREE_PEERS_USERS`.
   */
  const uint32_t *users;
  /*
   How many there are.
   */
  size_t user_count;
  /*
   What the program calls itself towards peers; at most 120 bytes with this library's name.
   */
  struct tollfree_bytes agent;
  /*
   A handshake is over within this time, in nanoseconds.
   */
  uint64_t handshake_timeout_ns;
  /*
   The longest message that is taken, in bytes; 4 MiB. A longer one ends its call with RESOURCE_EXHAUSTED.
   */
  uint64_t message_len_max;
  /*
   Credit in bytes that each stream towards this side starts with; 65,536.
   */
  uint64_t stream_window;
  /*
   Calls at once that a client may make of this side; 1,024.
   */
  uint32_t stream_count;
  /*
   Longest block of metadata that is taken, in bytes; 15,360, from 256 on and no more.
   */
  uint32_t metadata_len_max;
  /*
   The pool whose member the loop is, or `{0}`. Long messages to and from other members go by ref.
   */
  struct tollfree_pool pool;
} tollfree_config;

/*
 A place at which clients arrive. `{0}` is none.
 */
typedef struct tollfree_listener {
  uint64_t id;
} tollfree_listener;

/*
 What has happened. What a kind does not name is 0. `text` lies in the loop, until the next event is taken from it; `payload` is the
 program's: its buffer is to be released.
 */
typedef struct tollfree_event {
  /*
   `sizeof(tollfree_event)`, set by the program.
   */
  size_t size;
  /*
   `TOLLFREE_EVENT_…`.
   */
  uint32_t kind;
  /*
   An error's number, or gRPC's status.
   */
  uint32_t code;
  /*
   Bits: `TOLLFREE_FLAG_COMPRESSED`, `TOLLFREE_FLAG_UNPROCESSED`, `TOLLFREE_FLAG_SERVED`.
   */
  uint32_t flags;
  /*
   0.
   */
  uint32_t reserved;
  /*
   Which listener.
   */
  struct tollfree_listener listener;
  /*
   Which session; a call's, too.
   */
  struct tollfree_session session;
  /*
   Which call.
   */
  struct tollfree_call call;
  /*
   When the call has to be over, on the clock of `tollfree_now_ns`; 0: no matter when.
   */
  uint64_t deadline_ns;
  /*
   A path, a status message, or an error's words: any bytes a peer may have sent.
   */
  struct tollfree_bytes text;
  /*
   A message, or a block of metadata.
   */
  struct tollfree_payload payload;
  /*
   Which channel.
   */
  struct tollfree_channel channel;
  /*
   The pieces of a message behind `payload`, in order: their buffers are the program's to release, each once, in any thread. The list lies in the
   loop as `text` does. Only loops with a pool receive messages in pieces.
   */
  const struct tollfree_payload *more;
  /*
   How many there are.
   */
  size_t more_count;
} tollfree_event;

/*
 Settings of a pool and of a member. A member that is 0 has the value of a pool without settings.
 */
typedef struct tollfree_pool_config {
  /*
   `sizeof(tollfree_pool_config)`.
   */
  size_t size;
  /*
   Of a pool that is created: bytes of all members together; 1 GiB.
   */
  uint64_t total;
  /*
   Of a pool that is created: bytes of one member; 256 MiB.
   */
  uint64_t member_quota;
  /*
   Of a pool that is created: bytes that a member gets at once, a multiple of 4,096; 8 MiB.
   */
  uint64_t batch;
  /*
   Longest to wait for an answer of the pool's coordinator, or of a member, in nanoseconds; 5 s.
   */
  uint64_t patience_ns;
  /*
   Longest that `tollfree_pool_buffer` waits for memory, in nanoseconds; 1 s.
   */
  uint64_t wait_ns;
  /*
   Most bytes of this member that another process may hold; what is sent to one that holds more goes without a ref. Half of the quota.
   */
  uint64_t reader_limit;
} tollfree_pool_config;

/*
 What became of the long messages of a loop with a pool.
 */
typedef struct tollfree_payload_counts {
  /*
   `sizeof(tollfree_payload_counts)`, set by the program.
   */
  size_t size;
  /*
   Messages sent with one ref or more.
   */
  uint64_t sent_by_ref;
  /*
   Long messages sent without.
   */
  uint64_t sent_inline;
  /*
   Messages for whose bytes the pool had no room, so that they went without a ref.
   */
  uint64_t pool_full;
  /*
   Messages received with one ref or more.
   */
  uint64_t received_by_ref;
  /*
   Messages with refs that could not be had, so that their sender was asked for the bytes.
   */
  uint64_t asked_for;
  /*
   Messages refused because a ref in them was forged, stale, of another pool, or not to be had.
   */
  uint64_t refused_refs;
  /*
   Bytes of messages with refs that were copied: into the pool, or beside the refs.
   */
  uint64_t copied_bytes;
} tollfree_payload_counts;

/*
 Who is at the other end of a session, by the kernel's word, at the time of connecting.
 */
typedef struct tollfree_peer {
  /*
   `sizeof(tollfree_peer)`, set by the program.
   */
  size_t size;
  /*
   Process id in this process's pid namespace, 0 where it has none there. For people to read: it may be another's by now.
   */
  int32_t pid;
  /*
   Effective user id.
   */
  uint32_t uid;
  /*
   Effective group id.
   */
  uint32_t gid;
  /*
   0.
   */
  uint32_t reserved;
} tollfree_peer;

/*
 Message types of a schema. `{0}` is none. Any thread; released once.
 */
typedef struct tollfree_table {
  uint64_t id;
} tollfree_table;

/*
 A message that is read where it lies. `{0}` is none. Any thread; released once.
 */
typedef struct tollfree_object {
  uint64_t id;
} tollfree_object;

/*
 A message type of a table.
 */
typedef struct tollfree_type {
  /*
   `sizeof(tollfree_type)`, set by the program.
   */
  size_t size;
  /*
   Its full name, without a leading dot. It lies in the table, until that is released.
   */
  struct tollfree_bytes name;
  /*
   Names the type and all that it reaches: flat messages carry it.
   */
  uint64_t fingerprint;
  /*
   How many fields it has.
   */
  uint32_t field_count;
  /*
   0.
   */
  uint32_t reserved;
} tollfree_type;

/*
 A field of a message type.
 */
typedef struct tollfree_field {
  /*
   `sizeof(tollfree_field)`, set by the program.
   */
  size_t size;
  /*
   Its name in the schema. It lies in the table, until that is released.
   */
  struct tollfree_bytes name;
  /*
   Its number, as paths have it.
   */
  uint32_t number;
  /*
   0.
   */
  uint32_t reserved;
} tollfree_field;

/*
 What a field holds. What its kind does not name is 0.
 */
typedef struct tollfree_value {
  /*
   `sizeof(tollfree_value)`, set by the program.
   */
  size_t size;
  /*
   `TOLLFREE_VALUE_…`.
   */
  uint32_t kind;
  /*
   How many elements a list or map has.
   */
  uint32_t count;
  /*
   A whole number.
   */
  int64_t integer;
  /*
   A number of floating point.
   */
  double number;
  /*
   They lie in the object, until that is released.
   */
  struct tollfree_bytes bytes;
} tollfree_value;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 The library's version, as `0.1.0`: a static text.
 */
const char *tollfree_version(void);

/*
 Sends messages of a stream together: `messages` has their bytes, one behind the other, and `lens` how long each is. Else as
 `tollfree_call_send` for each. Where this fails, none is sent.

 @return 0, or an error's number.

 # Safety
 Pointers that are not null point to as much as is said.
 */
int tollfree_call_send_batch(struct tollfree_loop of,
                             struct tollfree_call call,
                             struct tollfree_payload messages,
                             const size_t *lens,
                             size_t count);

/*
 Takes messages of a call that have come together with the event that was taken last, in the order of their arrival, as one buffer: call this
 after a `TOLLFREE_EVENT_MESSAGE`. `messages` has their bytes, one behind the other, and `lens` gets how long each is; `*count` is how many there
 are, `lens_max` at most, and 0 where none has come. Messages that are compressed or in several pieces come as events of their own. The buffer is
 to be released. Text and pieces of the last event stay.

 @return 0, or an error's number.

 # Safety
 Pointers that are not null point to as much as is said.
 */
int tollfree_call_take_batch(struct tollfree_loop of,
                             struct tollfree_call call,
                             size_t *lens,
                             size_t lens_max,
                             struct tollfree_payload *messages,
                             size_t *count);

/*
 A share in memory of the program's, which is not copied: it must stay as it is until `release` is called with `argument`. Memory that
 needs no release may go without the function. Where this fails, nothing is released.

 @return 0, or an error's number.
 */
int tollfree_buffer_wrap(struct tollfree_bytes bytes, tollfree_release release, void *argument, struct tollfree_payload *payload);

/*
 A copy of bytes, to be sent more than once or kept.

 @return 0, or an error's number.
 */
int tollfree_buffer_copy(struct tollfree_bytes bytes, struct tollfree_payload *payload);

/*
 Another share in the same bytes, to be released on its own. Any thread.

 @return 0, or an error's number.
 */
int tollfree_buffer_retain(struct tollfree_buffer buffer, struct tollfree_buffer *another);

/*
 Ends a share in bytes, which are not to be read by it any more. Any thread. Of `{0}` there is nothing to release.

 @return 0, or an error's number: `TOLLFREE_ERROR_USE_BUFFER` for a share that was released before.
 */
int tollfree_buffer_release(struct tollfree_buffer buffer);

/*
 Begins a call. Where it can't be opened now, it waits for its turn.

 @return 0, or an error's number.

 # Safety
 Pointers that are not null point to as much as is said.
 */
int tollfree_call_start(struct tollfree_loop of,
                        struct tollfree_session session,
                        const struct tollfree_start *start,
                        struct tollfree_call *call);

/*
 Sends a message; `flags` is 0 or `TOLLFREE_FLAG_COMPRESSED`. It is kept until there is room and credit for it: `TOLLFREE_EVENT_SENT` tells when. A
 server's first message sends empty headers where no others were sent.

 @return 0, or an error's number.
 */
int tollfree_call_send(struct tollfree_loop of,
                       struct tollfree_call call,
                       struct tollfree_payload message,
                       uint32_t flags);

/*
 Sends one message that is in several pieces, in order. Pieces that lie in a pool (`tollfree_pool_buffer`, and pieces that were received) go
 by ref to another member of it. Else as `tollfree_call_send`.

 @return 0, or an error's number.

 # Safety
 Pointers that are not null point to as much as is said.
 */
int tollfree_call_send_pieces(struct tollfree_loop of,
                              struct tollfree_call call,
                              const struct tollfree_payload *pieces,
                              size_t piece_count,
                              uint32_t flags);

/*
 Says that no message follows (client).

 @return 0, or an error's number.
 */
int tollfree_call_finish(struct tollfree_loop of, struct tollfree_call call);

/*
 Sends the headers of an answer, once, before its messages (server): a block of metadata, or none.

 @return 0, or an error's number.
 */
int tollfree_call_answer_headers(struct tollfree_loop of, struct tollfree_call call, struct tollfree_bytes metadata);

/*
 Ends a call with one of gRPC's statuses and a block of trailing metadata, or none, behind what was sent before (server).

 @return 0, or an error's number.
 */
int tollfree_call_answer_end(struct tollfree_loop of, struct tollfree_call call, uint32_t code, struct tollfree_bytes metadata);

/*
 Answers a unary call: a message and status 0, without metadata (server). `flags` as of `tollfree_call_send`.

 @return 0, or an error's number.
 */
int tollfree_call_answer(struct tollfree_loop of, struct tollfree_call call, struct tollfree_payload message, uint32_t flags);

/*
 Ends a call at once, in both directions; the peer sees one of gRPC's statuses. No event follows. A call that has ended before is left alone.

 @return 0, or an error's number.
 */
int tollfree_call_cancel(struct tollfree_loop of,
                         struct tollfree_call call,
                         uint32_t code);

/*
 Takes no more messages of a call for now: a few that have come may still be told. The peer sends as far as its credit goes, then waits. The
 call's end is told all the same, with what came before it. A call that has ended is left alone.

 @return 0, or an error's number.
 */
int tollfree_call_pause(struct tollfree_loop of, struct tollfree_call call);

/*
 Takes the messages of a paused call again.

 @return 0, or an error's number.
 */
int tollfree_call_resume(struct tollfree_loop of, struct tollfree_call call);

/*
 Opens a channel. It connects when a call needs it, and again when a session has ended. `TOLLFREE_EVENT_CHANNEL` tells how it fares.

 @return 0, or an error's number.

 # Safety
 Pointers that are not null point to as much as is said.
 */
int tollfree_channel_open(struct tollfree_loop of, const struct tollfree_channel_config *config, struct tollfree_channel *channel);

/*
 Ends a channel with all of its calls: `TOLLFREE_EVENT_ENDED` with gRPC's status CANCELLED follows for each.

 @return 0, or an error's number.
 */
int tollfree_channel_close(struct tollfree_loop of, struct tollfree_channel channel);

/*
 Connects a channel that is idle, and keeps it connected.

 @return 0, or an error's number.
 */
int tollfree_channel_connect(struct tollfree_loop of, struct tollfree_channel channel);

/*
 How a channel fares: `TOLLFREE_CHANNEL_…`.

 @return 0, or an error's number.
 */
int tollfree_channel_state(struct tollfree_loop of, struct tollfree_channel channel, uint32_t *state);

/*
 Begins a call in a channel. It waits for a connection. Where connecting fails it ends with UNAVAILABLE, whose text names the socket; with
 `TOLLFREE_FLAG_WAITS` it waits on. A call that no server has looked at moves to another connection; other calls are made again where the
 service config says so. Its events have no session.

 @return 0, or an error's number.

 # Safety
 Pointers that are not null point to as much as is said.
 */
int tollfree_channel_call(struct tollfree_loop of,
                          struct tollfree_channel channel,
                          const struct tollfree_start *start,
                          struct tollfree_call *call);

/*
 The text of this thread's last error, for people: it names what failed and what to do. Valid until the next function of the
 library fails in this thread. Empty before the first.
 */
const char *tollfree_error_text(void);

/*
 The name of an error's number, as `CALL_ENDED` for 401: a static text, empty for a number that has none.
 */
const char *tollfree_error_name(int number);

/*
 Makes a loop in this thread. `config` may be null, for defaults.

 @return 0, or an error's number.

 # Safety
 Pointers that are not null point to as much as is said.
 */
int tollfree_loop_new(const struct tollfree_config *config, struct tollfree_loop *made);

/*
 Lets another thread have a loop: until one enters it, it is nobody's, and nothing happens in it. It does not end with this thread.

 @return 0, or an error's number.
 */
int tollfree_loop_leave(struct tollfree_loop of);

/*
 Makes a loop that a thread has left this thread's. Any thread: of several that try, one succeeds, and the others get
 `TOLLFREE_ERROR_USE_THREAD`. What was done in a loop before it was left is seen where it is entered.

 @return 0, or an error's number.
 */
int tollfree_loop_enter(struct tollfree_loop of);

/*
 Ends a loop with its sessions and listeners. Nothing more is told of them; buffers stay until they are released.

 @return 0, or an error's number.
 */
int tollfree_loop_free(struct tollfree_loop of);

/*
 A descriptor that is readable when there is something to do, once the loop is armed. It is the loop's: poll it, and leave it open.

 @return 0, or an error's number.
 */
int tollfree_loop_fd(struct tollfree_loop of, int *fd);

/*
 What has happened next, if anything has: else the event's kind is `TOLLFREE_EVENT_NONE`. Never waits.

 @return 0, or an error's number.

 # Safety
 Pointers that are not null point to as much as is said.
 */
int tollfree_loop_poll(struct tollfree_loop of, struct tollfree_event *event);

/*
 Waits for what happens next, for `timeout_ns` nanoseconds at most, `UINT64_MAX` for as long as it takes: looks at the rings while that is worth it,
 and sleeps. The event's kind is `TOLLFREE_EVENT_NONE` when the time is over, and when another thread has called `tollfree_loop_wake`.

 @return 0, or an error's number.

 # Safety
 Pointers that are not null point to as much as is said.
 */
int tollfree_loop_wait(struct tollfree_loop of,
                       uint64_t timeout_ns,
                       struct tollfree_event *event);

/*
 Before the program sleeps on the loop's descriptor: puts all sessions to sleep. `*may_sleep` is 0 where there is something already, or a
 thread has called: call `tollfree_loop_poll` then. Else it is 1, and the program may sleep until the descriptor is readable, for `*timeout_ns`
 nanoseconds at most (`UINT64_MAX`: without an end).

 @return 0, or an error's number.
 */
int tollfree_loop_arm(struct tollfree_loop of,
                      int *may_sleep,
                      uint64_t *timeout_ns);

/*
 Has `tollfree_loop_wait`, or the program's own poll, return soon, also where the loop does not wait yet. Any thread; not in signal handlers.

 @return 0, or an error's number.
 */
int tollfree_loop_wake(struct tollfree_loop of);

/*
 Now, in nanoseconds on the clock of deadlines: this host's monotonic one.
 */
uint64_t tollfree_now_ns(void);

/*
 Appends a pair to a block of metadata that is built in memory of the program's: `room` bytes at `block`, of which `*len` are used.
 No call carries more than `TOLLFREE_METADATA_LEN_MAX` bytes, unless both ends are configured otherwise.

 Names have digits, lower-case letters, `_`, `-` and `.`. Values have printable ASCII characters; those of names that end in `-bin` are
 base64, as on HTTP/2.

 @return 0, or an error's number: nothing is appended then.

 # Safety
 Pointers that are not null point to as much as is said.
 */
int tollfree_metadata_put(uint8_t *block, size_t room, size_t *len, struct tollfree_bytes name, struct tollfree_bytes value);

/*
 Reads the pair of a block that begins at `*at`, and moves `*at` behind it; begin with 0. At the end, `name->data` is null. Names and
 values lie in the block: what a peer has sent is any bytes.

 @return 0, or an error's number.
 */
int tollfree_metadata_next(struct tollfree_bytes block, size_t *at, struct tollfree_bytes *name, struct tollfree_bytes *value);

/*
 Makes a pool that other processes of this user join at an address, `shm:///path` or `shm-abstract:name`, and joins it. The pool has a thread of
 its own for those who join. `config` may be null, for defaults. Waits for some milliseconds. Any thread.

 @return 0, or an error's number: `TOLLFREE_ERROR_POOL_JOIN` where the address is in use or can't be bound, or settings make no sense.

 # Safety
 Pointers that are not null point to as much as is said.
 */
int tollfree_pool_create(struct tollfree_bytes at,
                         const struct tollfree_pool_config *config,
                         struct tollfree_pool *made);

/*
 Joins the pool at an address. `config` may be null, for defaults. Waits for its coordinator's answer, as long as its patience says. Any thread.

 @return 0, or an error's number: `TOLLFREE_ERROR_POOL_JOIN` where nobody answers, or the coordinator refuses.

 # Safety
 Pointers that are not null point to as much as is said.
 */
int tollfree_pool_join(struct tollfree_bytes at,
                       const struct tollfree_pool_config *config,
                       struct tollfree_pool *made);

/*
 Ends the use of a handle. Loops and buffers that have the pool keep it. Any thread.

 @return 0, or an error's number.
 */
int tollfree_pool_release(struct tollfree_pool of);

/*
 Memory of the pool for `len` bytes, all 0, in one piece. Write to `*data` before the payload is sent, and never after. Sent to a member of the same
 pool, as a message or as a piece of it, it is not copied. The payload's buffer is to be released. Any thread; waits if the pool is full, as
 long as its settings say.

 @return 0, or an error's number: `TOLLFREE_ERROR_POOL_FULL` where the memory can't be had now.
 */
int tollfree_pool_buffer(struct tollfree_pool of,
                         size_t len,
                         uint8_t **data,
                         struct tollfree_payload *payload);

/*
 Whether the process at the other end of a session is a member of the loop's pool: `*shares` is 1 if so, and 0 if not.

 @return 0, or an error's number.
 */
int tollfree_session_shares_pool(struct tollfree_loop of, struct tollfree_session session, int *shares);

/*
 What became of the long messages of a loop with a pool, in all of its sessions.

 @return 0, or an error's number.

 # Safety
 Pointers that are not null point to as much as is said.
 */
int tollfree_loop_payloads(struct tollfree_loop of, struct tollfree_payload_counts *counts);

/*
 Begins to connect to the server at an address, `shm:///path` or `shm-abstract:name`. `TOLLFREE_EVENT_CONNECTED` or
 `TOLLFREE_EVENT_NOT_CONNECTED` follows, within the handshake's time.

 @return 0, or an error's number.
 */
int tollfree_connect(struct tollfree_loop of, struct tollfree_bytes to, struct tollfree_session *session);

/*
 Begins to attach to the gateway at an address, in a group of the gateway's config, as a server of services by their full names:
 the calls of its clients come in this session. `process` is any number that the connections of one server have in common, and no
 other server; `nth` counts these connections from 0. Events as of `tollfree_connect`.

 @return 0, or an error's number.

 # Safety
 Pointers that are not null point to as much as is said.
 */
int tollfree_attach(struct tollfree_loop of,
                    struct tollfree_bytes to,
                    struct tollfree_bytes group,
                    const struct tollfree_bytes *services,
                    size_t service_count,
                    const uint8_t (*process)[16],
                    uint32_t nth,
                    struct tollfree_session *session);

/*
 Listens at an address, `shm:///path` or `shm-abstract:name`: `TOLLFREE_EVENT_ACCEPTED` follows for each client.

 @return 0, or an error's number.
 */
int tollfree_listen(struct tollfree_loop of, struct tollfree_bytes at, struct tollfree_listener *listener);

/*
 Takes no new clients, and removes the socket. Sessions go on.

 @return 0, or an error's number.
 */
int tollfree_unlisten(struct tollfree_loop of, struct tollfree_listener listener);

/*
 Who is at the other end of a session.

 @return 0, or an error's number.

 # Safety
 Pointers that are not null point to as much as is said.
 */
int tollfree_session_peer(struct tollfree_loop of, struct tollfree_session session, struct tollfree_peer *peer);

/*
 How many calls are under way in a session, those included that wait for their turn.

 @return 0, or an error's number.
 */
int tollfree_session_call_count(struct tollfree_loop of, struct tollfree_session session, size_t *count);

/*
 Takes no more calls in a session (server): the client learns which it may make elsewhere. Calls under way go on.

 @return 0, or an error's number.
 */
int tollfree_session_drain(struct tollfree_loop of, struct tollfree_session session);

/*
 Ends a session with all of its calls: `TOLLFREE_EVENT_ENDED` follows for each, then `TOLLFREE_EVENT_CLOSED`.

 @return 0, or an error's number.
 */
int tollfree_session_close(struct tollfree_loop of, struct tollfree_session session);

/*
 Loads a table from its bytes, which are copied and checked.

 @return 0, or an error's number.
 */
int tollfree_table_load(struct tollfree_bytes blob, struct tollfree_table *made);

/*
 Makes a table of a descriptor set, as `protoc --include_imports --descriptor_set_out` writes it.

 @return 0, or an error's number.
 */
int tollfree_table_compile(struct tollfree_bytes descriptor_set, struct tollfree_table *made);

/*
 A table's bytes, for another program to load. The payload's buffer is to be released.

 @return 0, or an error's number.
 */
int tollfree_table_blob(struct tollfree_table of, struct tollfree_payload *payload);

/*
 The index of a message type in a table, by its full name, as `package.Message`.

 @return 0, or an error's number.
 */
int tollfree_table_type(struct tollfree_table of, struct tollfree_bytes name, uint32_t *index);

/*
 Ends the use of a table. Objects that were made by it stay.

 @return 0, or an error's number.
 */
int tollfree_table_release(struct tollfree_table of);

/*
 Takes a flat message of a type, if it is a sound one. It is read where it lies, if the payload has a buffer: what is wrapped there must stay as it is
 until the object is released. Else it is copied.

 @return 0, or an error's number.
 */
int tollfree_object_verify(struct tollfree_table of,
                           uint32_t index,
                           struct tollfree_payload flat,
                           struct tollfree_object *made);

/*
 Makes an object of an encoded message, as protobuf has it.

 @return 0, or an error's number.
 */
int tollfree_object_decode(struct tollfree_table of, uint32_t index, struct tollfree_bytes message, struct tollfree_object *made);

/*
 The message that an object is, encoded as protobuf has it. The payload's buffer is to be released.

 @return 0, or an error's number.
 */
int tollfree_object_encode(struct tollfree_object of, struct tollfree_payload *payload);

/*
 The flat message that an object is. It lies in the object, until that is released.

 @return 0, or an error's number.
 */
int tollfree_object_bytes(struct tollfree_object of, struct tollfree_bytes *flat);

/*
 Ends the use of an object, and of all that was read of it.

 @return 0, or an error's number.
 */
int tollfree_object_release(struct tollfree_object of);

/*
 The fingerprint of a table: of all of its bytes.

 @return 0, or an error's number.
 */
int tollfree_table_fingerprint(struct tollfree_table of, uint64_t *fingerprint);

/*
 How many message types a table has: their indexes are from 0 on.

 @return 0, or an error's number.
 */
int tollfree_table_type_count(struct tollfree_table of, uint32_t *count);

/*
 What a table says of the type of an index.

 @return 0, or an error's number.

 # Safety
 Pointers that are not null point to as much as is said.
 */
int tollfree_table_type_at(struct tollfree_table of, uint32_t index, struct tollfree_type *found);

/*
 What a table says of a field of the type of an index: the `nth`, from 0 on, in the order of their numbers.

 @return 0, or an error's number.

 # Safety
 Pointers that are not null point to as much as is said.
 */
int tollfree_table_field_at(struct tollfree_table of, uint32_t index, uint32_t nth, struct tollfree_field *found);

/*
 Reads a field of an object by its path: numbers of fields, and behind a list's or map's the index of an element. An empty path leads to the
 message itself. A field that is absent, or lies in a message that is, has the kind `TOLLFREE_VALUE_ABSENT`.

 # Safety
 Pointers that are not null point to as much as is said.

 @return 0, or an error's number.
 */
int tollfree_object_get(struct tollfree_object of, const uint32_t *path, size_t path_len, struct tollfree_value *value);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TOLLFREE_H */

#ifndef TOLLFREE_INLINE
#define TOLLFREE_INLINE

/* A text as the bytes that functions take. */
static inline tollfree_bytes tollfree_text(const char *text)
{
  tollfree_bytes bytes = { (const uint8_t *)text, text ? strlen(text) : 0 };
  return bytes;
}

/* Bytes that are copied, as the payload that functions take. */
static inline tollfree_payload tollfree_copied(const void *data, size_t len)
{
  tollfree_payload payload = { { (const uint8_t *)data, len }, { 0 } };
  return payload;
}

#endif  /* TOLLFREE_INLINE */
