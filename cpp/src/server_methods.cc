#include <tollfree/internal/server_methods.h>

namespace tollfree {
namespace internal {

grpc::Status WithoutRequest() {
  return grpc::Status(grpc::StatusCode::INTERNAL, "the client has sent no message, or more than one, to a method that takes one");
}

}  // namespace internal
}  // namespace tollfree
