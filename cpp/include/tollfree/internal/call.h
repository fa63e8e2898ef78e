// A call by bytes, of either side. Not for programs.
#ifndef TOLLFREE_INTERNAL_CALL_H
#define TOLLFREE_INTERNAL_CALL_H

#include <grpc/compression.h>
#include <tollfree/internal/bytes.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace tollfree {
namespace internal {

class Loop;
class Connection;
class ServerCore;

// Who knows a call by its number.
class CallOwner {
 public:
  virtual ~CallOwner() = default;
  // The call is over: no event of it follows that anybody needs. With the lock held.
  virtual void Forget(const tollfree_call& call) = 0;
};

// How a call has ended.
struct Outcome {
  uint32_t code = 0;
  std::string text;
  Payload trailers;
};

// Any thread may call any function; reads and writes are one at a time each. Functions named `When…` return at once: their argument runs
// in a thread of the crew.
class Call : public std::enable_shared_from_this<Call> {
 public:
  // The owner stays as long as the loop.
  Call(std::shared_ptr<Loop> loop, CallOwner* owner) : loop_(std::move(loop)), owner_(owner) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Waits for headers. Whether there are any: a call may end without.
  bool AwaitHeaders();
  // Waits for the next message. Whether there is one; else the other side sends no more.
  bool Read(Message* message);
  // Takes a message that is there, after `WhenReadable`.
  bool Take(Message* message);
  // How messages that are sent from here on are compressed. Before the first.
  void set_encoding(grpc_compression_algorithm encoding) { encoding_ = encoding; }
  bool compresses() const { return encoding_ != GRPC_COMPRESS_NONE; }
  // Compresses a message as the call's encoding says, where that makes it shorter.
  void Pack(Payload* message) const;
  // Sends a message, and waits until the library keeps none. Whether the call goes on.
  bool Write(Payload message, bool is_last);
  // No message follows (client).
  void FinishWriting();
  // Waits for the end (client).
  const Outcome& AwaitEnd();

  // `then(false)`: the call has ended without.
  void WhenHeaders(std::function<void(bool)> then);
  void WhenReadable(std::function<void()> then);
  // Sends a message. `then(false)`: the call is over.
  void WhenSent(Payload message, bool is_last, std::function<void(bool)> then);
  // Sends a message, and does not wait.
  void Submit(Payload message, bool is_last);
  // What there is to wait for.
  bool HasHeadersOrEnd() const { return has_headers_ || is_ended_; }
  bool HasMessageOrEnd() const { return !inbox_.empty() || is_half_closed_ || is_ended_; }
  bool HasSent() const { return !is_unsent_ || is_ended_; }
  bool HasEnded() const { return is_ended_; }
  bool HasDrained() const { return is_ended_ && inbox_.empty(); }
  // Whether what was written went out, once that is known.
  bool HasGoneOut();
  // Waits for it, for so long at most. Whether it is so.
  bool AwaitFor(bool (Call::*is_ready)() const, uint64_t timeout_ns);
  void WhenReady(bool (Call::*is_ready)() const, std::function<void()> then);
  // When all that was sent is on its way. `then(false)`: the call is over.
  void WhenWritable(std::function<void(bool)> then);
  // When the call is over and each message was taken.
  void WhenDrained(std::function<void()> then);

  // Ends the call at once; `text` is what this side's program sees.
  void Cancel(uint32_t code, const std::string& text);

  // Headers of the answer (server). Whether the call goes on.
  bool SendHeaders(const MetadataBlock& metadata);
  // The end of the answer (server), with a last message or none. Whether the call was still under way.
  bool End(uint32_t code, const MetadataBlock& trailers, const Payload* message, const MetadataBlock* headers);
  // Set, and then called with the lock held, when the client has gone or cancelled (server). To be reset before what it uses ends.
  void SetOnCancel(std::function<void()> on_cancel);

  bool IsEnded();
  // What has come, once it is there: it stays.
  const Payload& headers() const { return headers_; }
  const Outcome& outcome() const { return outcome_; }
  uint64_t deadline_ns() const { return deadline_ns_; }
  // Runs in a thread of the crew. With the lock held, in `SetOnCancel`'s function alone.
  void PostLocked(std::function<void()> run);
  void Post(std::function<void()> run);

 private:
  friend class Connection;
  friend class ServerCore;

  struct Watch {
    bool (Call::*is_ready)() const;
    std::function<void()> then;
  };

  // With the lock held, of a message that is there.
  Message TakeFirst(std::unique_lock<std::mutex>& lock);
  bool WasSent() const;
  void When(std::unique_lock<std::mutex>& lock, bool (Call::*is_ready)() const, std::function<void()> then);
  void Await(std::unique_lock<std::mutex>& lock, bool (Call::*is_ready)() const);
  // With the lock held, where the loop may be used.
  void Send(const Payload& message, bool is_last);
  void OnEvent(const tollfree_event& event);
  void OnEnded(uint32_t code, std::string text, Payload trailers);
  void Changed();

  const std::shared_ptr<Loop> loop_;
  CallOwner* const owner_;
  tollfree_call id_{};
  // The library knows it, and has not said that it is over.
  bool is_live_ = false;
  bool is_server_ = false;
  bool has_headers_ = false;
  bool is_half_closed_ = false;
  bool is_ended_ = false;
  bool is_unsent_ = false;
  bool is_finished_ = false;
  uint64_t deadline_ns_ = 0;
  grpc_compression_algorithm encoding_ = GRPC_COMPRESS_NONE;
  Payload headers_;
  std::deque<Message> inbox_;
  size_t inbox_len_ = 0;
  bool is_paused_ = false;
  Outcome outcome_;
  std::vector<Watch> watches_;
  std::function<void()> on_cancel_;
};

}  // namespace internal
}  // namespace tollfree

#endif
