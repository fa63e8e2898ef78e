// A channel's session with its server, made again when it has ended. Not for programs.
#ifndef TOLLFREE_INTERNAL_CONNECTION_H
#define TOLLFREE_INTERNAL_CONNECTION_H

#include <tollfree/channel.h>
#include <tollfree/internal/call.h>

#include <memory>
#include <string>

namespace tollfree {
namespace internal {

class CoreCall;

// How a call begins.
struct CallStart {
  // `/package.Service/Method`, which stays.
  const char* path = nullptr;
  const MetadataBlock* metadata = nullptr;
  // On the clock of `tollfree_now_ns`; 0: no matter when.
  uint64_t deadline_ns = 0;
  bool waits_for_ready = false;
  // The first message, or none. Copied unless it has a buffer.
  const Payload* message = nullptr;
  bool is_last = false;
};

// Its calls end with it.
class Connection {
 public:
  static std::shared_ptr<Connection> Make(const std::string& address, const ChannelOptions& options);
  ~Connection();

  std::shared_ptr<Call> NewCall();
  // Begins a call, and waits until it is over if it `waits`.
  void Begin(const std::shared_ptr<Call>& call, const CallStart& start, bool waits);

  const std::string& address() const;
  // What stands for the session towards gRPC's classes.
  const std::shared_ptr<CoreCall>& core() const { return core_; }

 private:
  class State;
  Connection() = default;

  std::shared_ptr<State> state_;
  std::shared_ptr<Loop> loop_;
  std::shared_ptr<CoreCall> core_;
};

}  // namespace internal
}  // namespace tollfree

#endif
