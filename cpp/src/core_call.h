// What stands for a session in gRPC's own classes: a call of gRPC's core that never goes anywhere, one for all calls of a session.
//
// A context needs such a call to report who is at the other end (`peer()`), and to take a cancellation: with one, `TryCancel` runs the
// context's interceptors, and ours ends the call. gRPC's streams wait for batches of it: an empty batch is done at once.
#ifndef TOLLFREE_SRC_CORE_CALL_H
#define TOLLFREE_SRC_CORE_CALL_H

#include <grpc/grpc.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/security/auth_context.h>
#include <tollfree.h>

#include <memory>
#include <string>

namespace tollfree {
namespace internal {

class CoreCall {
 public:
  // `peer` is what `peer()` returns; `identity` is null for clients.
  explicit CoreCall(const std::string& peer, const tollfree_peer* identity = nullptr);
  ~CoreCall();
  CoreCall(const CoreCall&) = delete;
  CoreCall& operator=(const CoreCall&) = delete;

  grpc_call* call() const { return call_; }
  // Another that is done in a queue of the program's.
  grpc_call* NewCall(grpc_completion_queue* queue) const;
  grpc::CompletionQueue* queue() const { return queue_.get(); }
  const std::shared_ptr<const grpc::AuthContext>& identity() const { return identity_; }

 private:
  std::unique_ptr<grpc::CompletionQueue> queue_;
  grpc_channel* channel_;
  grpc_call* call_;
  std::shared_ptr<const grpc::AuthContext> identity_;
};

}  // namespace internal
}  // namespace tollfree

#endif
