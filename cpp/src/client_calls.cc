#include <tollfree/internal/client_calls.h>

namespace tollfree {
namespace internal {

grpc::Status Unsendable(Call* call, const grpc::Status& status) {
  call->Cancel(static_cast<uint32_t>(status.error_code()), status.error_message());
  return status;
}

grpc::Status WithoutMessage(const grpc::Status&) {
  return grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "the server has ended the call as a success, and sent no message");
}

}  // namespace internal
}  // namespace tollfree
