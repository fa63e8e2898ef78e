// Joins a server's context with its call. Not for programs.
#ifndef TOLLFREE_INTERNAL_SERVER_LINK_H
#define TOLLFREE_INTERNAL_SERVER_LINK_H

#include <grpcpp/impl/call.h>
#include <grpcpp/server_context.h>
#include <tollfree/internal/call.h>

#include <functional>
#include <memory>

namespace tollfree {
namespace internal {

class CoreCall;

// A call that has come.
struct ServerCall {
  std::shared_ptr<Call> call;
  std::shared_ptr<CoreCall> core;
  // It stays.
  const char* path;
  // Until the last of them goes, the server is not shut down.
  std::shared_ptr<void> token;
  // How its answer is compressed if its context does not say it.
  grpc_compression_algorithm encoding;
};

// A method of a service: how its calls are served.
class ServerMethod {
 public:
  explicit ServerMethod(bool reads_stream) : reads_stream_(reads_stream) {}
  virtual ~ServerMethod() = default;
  // In a thread of the crew, when the request is there, or at once if the method reads a stream.
  virtual void Run(ServerCall call) = 0;

  bool reads_stream() const { return reads_stream_; }
  // Whether handlers have taken so long that another thread should drive the loop.
  bool is_slow() const { return average_ns_.load(std::memory_order_relaxed) > kSlowNs; }
  // A handler has run for so long without a pause in which its thread drove the loop.
  void Learn(uint64_t took_ns);

 private:
  static constexpr uint64_t kSlowNs = 50'000;

  const bool reads_stream_;
  std::atomic<uint64_t> average_ns_{0};
};

class ServerLink {
 public:
  // `on_cancel` is called at most once, with the loop's lock held, if the client goes or cancels before the call is ended here.
  ServerLink(ServerCall call, grpc::ServerContextBase* context, std::function<void()> on_cancel = nullptr);
  ~ServerLink();
  ServerLink(const ServerLink&) = delete;
  ServerLink& operator=(const ServerLink&) = delete;

  Call& call() const { return *call_.call; }
  const std::shared_ptr<CoreCall>& core() const { return call_.core; }
  // gRPC's own class for a call, whose operations go to a hook.
  grpc::internal::Call Hooked(grpc::internal::CallHook* hook) const;

  // The context's headers, once. Whether the call goes on.
  bool SendHeaders();
  // The end: with a message only where the status is OK. Whether the call was still under way.
  bool End(const grpc::Status& status, const Payload* message);

 private:
  // How messages are compressed, as its headers say then.
  void ChooseEncoding(MetadataBlock* headers);

  ServerCall call_;
  grpc::ServerContextBase* const context_;
  bool has_sent_headers_ = false;
};

}  // namespace internal
}  // namespace tollfree

#endif
