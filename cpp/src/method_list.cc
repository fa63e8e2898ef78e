#include <tollfree/internal/generated.h>

namespace tollfree {
namespace internal {

grpc::Status MethodList::Register(const char* name, const grpc::Service& service) {
  // Where a service is passed as one of its base classes, its methods are others than they seem: gRPC's classes end the process then.
  bool hides_queues = service.has_async_methods() || service.has_generic_methods();
  if (hides_queues || (service.has_callback_methods() && reactor_count_ == 0)) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                        std::string("the service ") + name +
                            (hides_queues ? " has methods for completion queues, which Tollfree does not serve"
                                          : " has methods with reactors, and was passed as a base class: pass it by its own type"));
  }
  server_->AddService(name);
  for (auto& method : methods_) server_->AddMethod(method.first, std::move(method.second));
  methods_.clear();
  return grpc::Status::OK;
}

}  // namespace internal
}  // namespace tollfree
