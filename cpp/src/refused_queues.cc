#include <grpcpp/impl/codegen/completion_queue_tag.h>
#include <tollfree/internal/connection.h>
#include <tollfree/internal/refused_queues.h>

#include "core_call.h"

namespace tollfree {
namespace internal {
namespace {

// What gRPC's queue makes of an operation that is done.
class DoneTag final : public grpc::internal::CompletionQueueTag {
 public:
  DoneTag(void* tag, bool ok) : tag_(tag), ok_(ok) {}
  bool FinalizeResult(void** tag, bool* status) override {
    *tag = tag_;
    *status = ok_;
    delete this;
    return true;
  }

 private:
  void* const tag_;
  const bool ok_;
};

}  // namespace

grpc::Status RefusedStatus() {
  return grpc::Status(grpc::StatusCode::UNIMPLEMENTED,
                      "Tollfree does not serve the API of completion queues: call by the stub's blocking functions, or by async()");
}

RefusedCall::RefusedCall(const Channel& channel, grpc::CompletionQueue* queue) : call_(channel.connection()->core()->NewCall(queue->cq())) {}

RefusedCall::~RefusedCall() { grpc_call_unref(call_); }

void RefusedCall::Done(void* tag, bool ok) { grpc_call_start_batch(call_, nullptr, 0, new DoneTag(tag, ok), nullptr); }

}  // namespace internal
}  // namespace tollfree
