#include <tollfree/client_context.h>

namespace tollfree {

std::unique_ptr<grpc::ClientContext> ClientContextFrom(const grpc::ServerContextBase& server_context) {
  auto made = std::make_unique<grpc::ClientContext>();
  made->set_deadline(server_context.raw_deadline());
  return made;
}

}  // namespace tollfree
